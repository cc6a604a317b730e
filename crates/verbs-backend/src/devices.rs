//! Lists the devices: those of libibverbs, and those that only the kernel has, each with the reason.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use hugemr_core::errno::Errno;
use libc::c_char;

use crate::availability::{AbiMismatch, KERNEL_ABI, Unavailable};
use crate::errno;
use crate::info::Transport;
use crate::load::{Library, LibrarySource};
use crate::sys::{IBV_SYSFS_NAME_MAX, ibv_device};
use crate::sysfs;

/// Where to look. The default is the running system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Which libibverbs.
    pub library: LibrarySource,
    /// Root of sysfs.
    pub sys: PathBuf,
    /// Root of the device files.
    pub dev: PathBuf,
    /// Where providers lie; `None`: the folder `libibverbs` beside the library.
    pub providers: Option<PathBuf>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            library: LibrarySource::default(),
            sys: PathBuf::from("/sys"),
            dev: PathBuf::from("/dev"),
            providers: None,
        }
    }
}

impl OpenOptions {
    /// The defaults with another library.
    #[must_use]
    pub fn with_library(path: impl Into<PathBuf>) -> Self {
        Self {
            library: LibrarySource::Path(path.into()),
            ..Self::default()
        }
    }

    pub(crate) fn char_device(&self, uverbs: &str) -> PathBuf {
        self.dev.join("infiniband").join(uverbs)
    }
}

/// One device, and whether it can be opened as far as that is known without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEntry {
    /// `erdma_0`.
    pub name: String,
    /// `uverbs0`.
    pub uverbs: Option<String>,
    /// How packets travel; `None` where only the kernel has it.
    pub transport: Option<Transport>,
    /// Why it cannot be opened.
    pub blocked: Option<Unavailable>,
}

/// The devices of this machine, sorted by name: those of libibverbs and those that only the kernel has.
///
/// # Errors
/// Why there is none at all. A device that cannot be used is an entry, not an error.
pub fn list(options: &OpenOptions) -> Result<Vec<DeviceEntry>, Unavailable> {
    let library = Library::load(&options.library)?;
    let devices = DeviceList::get(&library, options)?;
    let entries = entries(&library, &devices, options);
    if entries.is_empty() {
        return Err(Unavailable::NoDevice);
    }
    Ok(entries)
}

fn entries(library: &Library, devices: &DeviceList<'_>, options: &OpenOptions) -> Vec<DeviceEntry> {
    let mut entries: Vec<DeviceEntry> = devices
        .iter()
        .map(|device| {
            let name = devices.name(device);
            let uverbs = uverbs_name(device);
            let blocked = uverbs
                .as_deref()
                .and_then(|uverbs| refused(&name, &options.char_device(uverbs)));
            DeviceEntry {
                blocked,
                transport: Some(transport(device)),
                name,
                uverbs,
            }
        })
        .collect();
    for name in sysfs::rdma_devices(&options.sys) {
        if entries.iter().any(|entry| entry.name == name) {
            continue;
        }
        let uverbs = sysfs::uverbs_of(&options.sys, &name);
        entries.push(DeviceEntry {
            blocked: Some(why_hidden(library, options, &name, uverbs.as_deref())),
            transport: None,
            name,
            uverbs,
        });
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

/// Whether the character device is there but not for us.
pub(crate) fn refused(device: &str, path: &Path) -> Option<Unavailable> {
    let c_path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: a NUL-terminated path.
    let failed = unsafe { libc::access(c_path.as_ptr(), libc::R_OK | libc::W_OK) } != 0;
    let errno = errno::last();
    (failed && matches!(errno, Errno::EACCES | Errno::EPERM)).then(|| Unavailable::NoPermission {
        device: device.to_owned(),
        path: path.to_path_buf(),
        errno,
    })
}

/// Why libibverbs does not show a device that the kernel has.
fn why_hidden(
    library: &Library,
    options: &OpenOptions,
    device: &str,
    uverbs: Option<&str>,
) -> Unavailable {
    let device = device.to_owned();
    let Some(uverbs) = uverbs else {
        return Unavailable::NoKernelSupport {
            device: Some(device),
        };
    };
    let path = options.char_device(uverbs);
    if !path.exists() {
        return Unavailable::NoCharDevice { device, path };
    }
    let provider = sysfs::provider_of(&options.sys, &device);
    let folder = options.providers.clone().or_else(|| {
        let real = library.path()?.canonicalize().ok()?;
        Some(real.parent()?.join("libibverbs"))
    });
    if let (Some(folder), Some(wanted)) = (folder, library.provider_abi()) {
        let found = sysfs::provider_abis(&folder, &provider);
        if !found.is_empty() && !found.contains(&wanted) {
            return Unavailable::AbiMismatch(AbiMismatch::Provider {
                device,
                provider,
                library: wanted,
                found,
            });
        }
    }
    Unavailable::NoProvider { device, provider }
}

/// The list of libibverbs, freed on drop. A device that was opened outlives it.
pub(crate) struct DeviceList<'l> {
    library: &'l Library,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl<'l> DeviceList<'l> {
    pub(crate) fn get(library: &'l Library, options: &OpenOptions) -> Result<Self, Unavailable> {
        let mut count = 0;
        errno::clear();
        // SAFETY: the symbol has this signature; `count` is writable.
        let list = unsafe { (library.table().ibv_get_device_list)(&raw mut count) };
        let errno = errno::last();
        let Some(list) = NonNull::new(list) else {
            return Err(match errno {
                Errno::ENOSYS => match sysfs::kernel_abi(&options.sys) {
                    Some(kernel) if !KERNEL_ABI.contains(&kernel) => {
                        Unavailable::AbiMismatch(AbiMismatch::Kernel { kernel })
                    }
                    _ => Unavailable::NoKernelSupport { device: None },
                },
                errno => Unavailable::Verb {
                    verb: "ibv_get_device_list",
                    device: None,
                    errno,
                },
            });
        };
        Ok(Self {
            library,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ibv_device> {
        // SAFETY: the library returned an array of `count` elements, valid until the list is freed.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.count) };
        devices.iter().filter_map(|device| {
            // SAFETY: null, or a device that lives as long as the list, which the reference borrows.
            unsafe { device.as_ref() }
        })
    }

    pub(crate) fn name(&self, device: &ibv_device) -> String {
        device_name(self.library, std::ptr::from_ref(device).cast_mut())
    }

    /// The device of that name.
    pub(crate) fn find(
        &self,
        name: &str,
        options: &OpenOptions,
    ) -> Result<NonNull<ibv_device>, Unavailable> {
        if let Some(device) = self.iter().find(|device| self.name(device) == name) {
            return Ok(NonNull::from(device));
        }
        let present = entries(self.library, self, options);
        if present.is_empty() {
            return Err(Unavailable::NoDevice);
        }
        let hidden = present.iter().find(|entry| entry.name == name);
        Err(hidden
            .and_then(|entry| entry.blocked.clone())
            .unwrap_or_else(|| Unavailable::NoSuchDevice {
                name: name.to_owned(),
                present: present.into_iter().map(|entry| entry.name).collect(),
            }))
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: got from ibv_get_device_list, freed once; no reference into it outlives `self`.
        unsafe { (self.library.table().ibv_free_device_list)(self.list.as_ptr()) };
    }
}

pub(crate) fn device_name(library: &Library, device: *mut ibv_device) -> String {
    // SAFETY: a live device of this library.
    let name = unsafe { (library.table().ibv_get_device_name)(device) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, NUL-terminated, lives as long as the device.
    let name = unsafe { CStr::from_ptr(name) };
    name.to_string_lossy().into_owned()
}

/// A text in an array that the library filled; it may lack its NUL.
pub(crate) fn array_text(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn uverbs_name(device: &ibv_device) -> Option<String> {
    let array: &[c_char; IBV_SYSFS_NAME_MAX] = &device.dev_name;
    Some(array_text(array)).filter(|name| !name.is_empty())
}

pub(crate) fn transport(device: &ibv_device) -> Transport {
    Transport::from_raw(device.transport_type)
}
