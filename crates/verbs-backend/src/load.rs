//! Loads libibverbs at run time, so that one binary runs everywhere and can say that the library is missing.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::availability::Unavailable;
use crate::linked;
use crate::sys::table::{Symbol, VerbsTable};

/// Names another libibverbs than the system's, for example of a vendor's installation.
pub const LIBRARY_VARIABLE: &str = "HUGEMR_VERBS_LIB";

/// Never the bare `libibverbs.so`: that link is in the development package.
const SONAME: &str = "libibverbs.so.1";

/// Where libibverbs comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LibrarySource {
    /// `$HUGEMR_VERBS_LIB` where it is set; else the linked one in a build with the feature `linked-verbs`; else
    /// `libibverbs.so.1` by the dynamic linker's rules.
    #[default]
    Default,
    /// This file.
    Path(PathBuf),
}

/// A libibverbs with all the functions that hugemr needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Library {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: VerbsTable,
    path: Option<PathBuf>,
    versioned: bool,
    provider_abi: Option<u32>,
}

impl Library {
    /// Loads the library, or answers why not.
    ///
    /// It stays loaded for the rest of the process: providers register themselves in it and keep threads and
    /// fork handlers that must not lose their code.
    ///
    /// # Errors
    /// [`Unavailable::NoLibrary`] or [`Unavailable::NoSymbol`].
    pub fn load(source: &LibrarySource) -> Result<Self, Unavailable> {
        match source {
            LibrarySource::Path(path) => load_file(path.as_os_str()),
            LibrarySource::Default => match env::var_os(LIBRARY_VARIABLE) {
                Some(path) if !path.is_empty() => load_file(&path),
                _ => linked::table().map_or_else(
                    || load_file(OsStr::new(SONAME)),
                    |table| Ok(Self::new(table, None, true, None)),
                ),
            },
        }
    }

    fn new(
        table: VerbsTable,
        path: Option<PathBuf>,
        versioned: bool,
        provider_abi: Option<u32>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                table,
                path,
                versioned,
                provider_abi,
            }),
        }
    }

    /// The file that was loaded; `None` where the linker chose it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.shared.path.as_deref()
    }

    /// Whether its symbols carry `IBVERBS` versions, as those of every real libibverbs do.
    #[must_use]
    pub fn is_versioned(&self) -> bool {
        self.shared.versioned
    }

    /// The number that its providers' file names carry (`liberdma-rdmav34.so`): providers built for another
    /// number are not loaded. `None` where it was not found.
    #[must_use]
    pub fn provider_abi(&self) -> Option<u32> {
        self.shared.provider_abi
    }

    pub(crate) fn table(&self) -> &VerbsTable {
        &self.shared.table
    }
}

/// A handle of dlopen, never closed.
#[derive(Clone, Copy)]
pub(crate) struct Object(NonNull<c_void>);

impl Object {
    pub(crate) fn open(name: &OsStr) -> Result<Self, String> {
        let c_name = CString::new(name.as_bytes())
            .map_err(|_| "the name contains a NUL character".to_owned())?;
        // SAFETY: a NUL-terminated name. The constructors of the object run: the caller named it to be loaded.
        let handle = unsafe { libc::dlopen(c_name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle)
            .map(Self)
            .ok_or_else(|| last_dl_error().unwrap_or_else(|| "dlopen gave no reason".to_owned()))
    }

    pub(crate) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed; the name is NUL-terminated.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    #[cfg(target_env = "gnu")]
    pub(crate) fn versioned(self, symbol: Symbol) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed; both names are NUL-terminated.
        NonNull::new(unsafe {
            libc::dlvsym(
                self.0.as_ptr(),
                symbol.name.as_ptr(),
                symbol.version.as_ptr(),
            )
        })
    }

    /// Other C libraries ignore symbol versions; their libibverbs has one definition of each.
    #[cfg(not(target_env = "gnu"))]
    pub(crate) fn versioned(self, _: Symbol) -> Option<NonNull<c_void>> {
        None
    }
}

fn last_dl_error() -> Option<String> {
    // SAFETY: no precondition; the text is this thread's.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, NUL-terminated, valid until the next dl call of this thread.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// The file from which the code at `address` was loaded.
fn file_of(address: NonNull<c_void>) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr only compares the address with loaded objects, and writes to `info`.
    let found = unsafe { libc::dladdr(address.as_ptr(), info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: zeroed before, filled by a successful dladdr.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: not null; the name of an object that is never unloaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Whether the object defines `IBVERBS` versions at all. `ibv_get_device_list` has carried 1.0 and 1.1 since 2007,
/// `ibv_get_sysfs_path` 1.0 since 2006.
fn defines_versions(object: Object) -> bool {
    [
        (c"ibv_get_device_list", c"IBVERBS_1.1"),
        (c"ibv_get_device_list", c"IBVERBS_1.0"),
        (c"ibv_get_sysfs_path", c"IBVERBS_1.0"),
    ]
    .into_iter()
    .any(|(name, version)| object.versioned(Symbol { name, version }).is_some())
}

/// The number behind `verbs_register_driver_NN`, which every provider calls when it is loaded.
fn provider_abi(object: Object) -> Option<u32> {
    (15..200).find(|number| {
        CString::new(format!("verbs_register_driver_{number}"))
            .is_ok_and(|name| object.symbol(&name).is_some())
    })
}

fn load_file(name: &OsStr) -> Result<Library, Unavailable> {
    let tried = name.to_string_lossy().into_owned();
    let object = Object::open(name).map_err(|detail| Unavailable::NoLibrary {
        tried: tried.clone(),
        detail,
    })?;
    let versioned = defines_versions(object);
    let mut at = None;
    let resolve = |symbol: Symbol| {
        // Without a version dlsym may hand out the IBVERBS_1.0 twin with other structures: only where there is
        // nothing to choose from.
        let address = if versioned {
            object.versioned(symbol)
        } else {
            object.symbol(symbol.name)
        };
        at = at.or(address);
        address
    };
    // SAFETY: an object that exports ibv_* functions at the pinned versions (or without versions) promises the
    // signatures of verbs.h; it is never unloaded.
    let table = unsafe { VerbsTable::fill(resolve) }.map_err(|missing| Unavailable::NoSymbol {
        library: tried.clone(),
        symbol: missing.name.to_string_lossy().into_owned(),
        version: versioned.then(|| missing.version.to_string_lossy().into_owned()),
    })?;
    let path = at.and_then(file_of);
    let abi = provider_abi(object);
    tracing::debug!(tried, path = ?path, versioned, provider_abi = ?abi, "libibverbs loaded");
    Ok(Library::new(table, path, versioned, abi))
}
