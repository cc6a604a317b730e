//! A copy of fake-verbs with a text of its own: copies in one process do not know each other.

use std::ffi::{CStr, CString, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use hugemr_verbs::sys::table::VerbsTable;
use hugemr_verbs::{OpenOptions, Unavailable, VerbsBackend};

/// As `Counts` of fake-verbs, which is not linked here: its symbols are those of libibverbs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) lists: usize,
    pub(crate) contexts: usize,
    pub(crate) pds: usize,
    pub(crate) mrs: usize,
    pub(crate) cqs: usize,
    pub(crate) qps: usize,
}

#[derive(Debug)]
pub(crate) struct Fake {
    folder: tempfile::TempDir,
}

/// Where cargo puts the library: beside the test.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.with_file_name("libfake_verbs.so");
    assert!(path.exists(), "{} is not built", path.display());
    path
}

impl Fake {
    pub(crate) fn new(text: &str) -> Self {
        let fake = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::copy(built(), fake.library()).unwrap();
        fake.write("libfake_verbs.so.conf", text);
        fake
    }

    /// A copy without a symbol: its name is changed in the table of names.
    pub(crate) fn without(symbol: &str) -> Self {
        let fake = Self::new("");
        let mut bytes = fs::read(fake.library()).unwrap();
        let name = format!("\0{symbol}\0").into_bytes();
        let places: Vec<usize> = (0..bytes.len() - name.len())
            .filter(|at| bytes[*at..].starts_with(&name))
            .collect();
        assert!(!places.is_empty(), "{symbol} is not in the library");
        for at in places {
            bytes[at + 1] = b'x';
        }
        fs::write(fake.library(), bytes).unwrap();
        fake
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.root().join("libfake_verbs.so")
    }

    /// A file under the root, for example of its sysfs.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A device that the kernel has, with its number among the character devices.
    pub(crate) fn kernel_device(&self, name: &str, uverbs: Option<&str>) {
        fs::create_dir_all(self.root().join("sys/class/infiniband").join(name)).unwrap();
        if let Some(uverbs) = uverbs {
            self.write(&format!("sys/class/infiniband_verbs/{uverbs}/ibdev"), name);
        }
    }

    pub(crate) fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::with_library(self.library());
        options.sys = self.root().join("sys");
        options.dev = self.root().join("dev");
        options.providers = Some(self.root().join("providers"));
        options
    }

    pub(crate) fn open(&self, name: &str) -> Result<VerbsBackend, Unavailable> {
        hugemr_verbs::open(name, &self.options())
    }

    /// What is alive in this copy.
    pub(crate) fn counts(&self) -> Counts {
        let address = symbol(&self.library(), c"fake_verbs_counts").unwrap();
        // SAFETY: the signature that fake-verbs gives it.
        let ask: unsafe extern "C" fn(*mut Counts) =
            unsafe { std::mem::transmute(address.as_ptr()) };
        let mut counts = Counts::default();
        // SAFETY: a structure of ours.
        unsafe { ask(&raw mut counts) };
        counts
    }
}

fn symbol(library: &Path, name: &CStr) -> Option<NonNull<c_void>> {
    let path = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path, of a library that the test trusts.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    // SAFETY: the handle is never closed.
    NonNull::new(unsafe { libc::dlsym(handle, name.as_ptr()) })
}

/// The functions themselves, for a program that opens its own device.
pub(crate) fn table(library: &Path) -> VerbsTable {
    // SAFETY: libibverbs and its look-alike have the signatures of verbs.h; neither is unloaded.
    unsafe { VerbsTable::fill(|wanted| symbol(library, wanted.name)) }.unwrap()
}
