//! The backend: an opened device with its protection domain, as `hugemr_core` wants it.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hugemr_core::backend::{
    Access, Lkey, MrHandle, MrRequest, RegBackend, RegisteredMr, Rkey, Verb, VerbError,
    VerifyBackend, VerifyError,
};
use hugemr_core::device::{Device, Family, Used};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::size::PageSizes;
use libc::{c_int, c_void};

use crate::availability::Unavailable;
use crate::context::{Context, Pd};
use crate::devices::OpenOptions;
use crate::errno;
use crate::info::DeviceInfo;
use crate::load::Library;
use crate::loopback::Loopback;
use crate::sys::consts::IBV_ACCESS_OPTIONAL_RANGE;
use crate::sys::{ibv_context, ibv_device_attr, ibv_mr, ibv_pd};

/// A real device, opened, with a protection domain.
///
/// Dropping it takes back the MRs that are left, then its PD, then closes the device; those of
/// [`from_raw`](Self::from_raw) stay.
#[derive(Debug)]
pub struct VerbsBackend {
    device: Device,
    info: DeviceInfo,
    loopback: Mutex<Option<Loopback>>,
    mrs: Mutex<HashMap<MrHandle, Mr>>,
    pd: Arc<Pd>,
    options: OpenOptions,
}

/// An MR of the library; the key of its entry in [`VerbsBackend::mrs`] is its address.
#[derive(Debug)]
struct Mr(NonNull<ibv_mr>);

// SAFETY: an MR may be deregistered from any thread; only the owner of the entry does.
unsafe impl Send for Mr {}

/// Opens a device and makes a protection domain in it.
///
/// # Errors
/// Why not, with a way out.
pub fn open(name: &str, options: &OpenOptions) -> Result<VerbsBackend, Unavailable> {
    let library = Library::load(&options.library)?;
    let context = Arc::new(Context::open(&library, name, options)?);
    let pd = Pd::alloc(&context)?;
    VerbsBackend::new(pd, options)
}

impl VerbsBackend {
    /// Wraps an opened device and a protection domain of the caller's own. Neither is closed when the value is
    /// dropped; only the MRs made through it are taken back.
    ///
    /// `library` is the libibverbs that made them: in a program that uses the system's, [`Library::load`] with the
    /// default finds the one that is loaded already.
    ///
    /// # Safety
    /// `context` is an opened device of `library`, `pd` is a protection domain of `context`; both stay so until
    /// the value is dropped.
    ///
    /// # Errors
    /// The device could not be queried.
    pub unsafe fn from_raw(
        library: &Library,
        context: NonNull<ibv_context>,
        pd: NonNull<ibv_pd>,
    ) -> Result<Self, Unavailable> {
        // SAFETY: the caller's promise.
        let context = Arc::new(unsafe { Context::borrowed(library.clone(), context) });
        // SAFETY: the caller's promise.
        let pd = unsafe { Pd::borrowed(context, pd) };
        Self::new(pd, &OpenOptions::default())
    }

    fn new(pd: Pd, options: &OpenOptions) -> Result<Self, Unavailable> {
        let attr = pd.context().query()?;
        Ok(Self {
            device: device_of(pd.context().name(), &attr),
            info: pd.context().info(&attr, options),
            loopback: Mutex::new(None),
            mrs: Mutex::new(HashMap::new()),
            pd: Arc::new(pd),
            options: options.clone(),
        })
    }

    /// What the device says about itself, beside its limits.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The MRs made through this value and not taken back.
    #[must_use]
    pub fn live_mrs(&self) -> usize {
        self.mrs().len()
    }

    /// The protection domain, for the program's own verbs. Owned by this value.
    #[must_use]
    pub fn as_raw_pd(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }

    /// The opened device, for the program's own verbs. Owned by this value.
    #[must_use]
    pub fn as_raw_context(&self) -> *mut ibv_context {
        self.pd.context().as_ptr()
    }

    fn mrs(&self) -> MutexGuard<'_, HashMap<MrHandle, Mr>> {
        // A panic between insert and remove is impossible: neither calls foreign code under the lock.
        self.mrs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegBackend for VerbsBackend {
    fn device(&self) -> &Device {
        &self.device
    }

    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        // SAFETY: the caller's promise about the range.
        let mr = unsafe { reg_mr(&self.pd, request) }.map_err(|errno| VerbError {
            verb: Verb::RegMr,
            errno,
        })?;
        let handle = MrHandle(mr.as_ptr().expose_provenance() as u64);
        // SAFETY: a live MR of the library; nobody changes it.
        let keys = unsafe { mr.as_ref() };
        let registered = RegisteredMr {
            handle,
            lkey: Lkey(keys.lkey),
            rkey: Rkey(keys.rkey),
        };
        self.mrs().insert(handle, Mr(mr));
        Ok(registered)
    }

    fn dereg_mr(&self, handle: MrHandle) -> Result<(), VerbError> {
        let failed = |errno| VerbError {
            verb: Verb::DeregMr,
            errno,
        };
        // Out of the table first: of two threads with one handle, one finds nothing.
        let Some(mr) = self.mrs().remove(&handle) else {
            return Err(failed(Errno::EINVAL));
        };
        dereg_mr(self.pd.context().library(), mr).map_err(|(mr, errno)| {
            self.mrs().insert(handle, mr);
            failed(errno)
        })
    }
}

impl VerifyBackend for VerbsBackend {
    fn round_trip(&self, addr: u64, len: u32, rkey: Rkey) -> Result<(), VerifyError> {
        let mut loopback = self.loopback.lock().unwrap_or_else(PoisonError::into_inner);
        crate::loopback::round_trip(
            &mut loopback,
            &self.pd,
            &self.options.sys,
            crate::loopback::Remote { addr, len, rkey },
        )
    }
}

impl Drop for VerbsBackend {
    fn drop(&mut self) {
        let mrs = std::mem::take(self.mrs.get_mut().unwrap_or_else(PoisonError::into_inner));
        if mrs.is_empty() {
            return;
        }
        tracing::warn!(
            device = self.device.name,
            mrs = mrs.len(),
            "MRs left at the end: taken back"
        );
        for mr in mrs.into_values() {
            if let Err((_, errno)) = dereg_mr(self.pd.context().library(), mr) {
                tracing::error!(device = self.device.name, %errno, "ibv_dereg_mr failed: the device may still hold the memory");
            }
        }
    }
}

/// Registers memory in a PD.
///
/// # Safety
/// As [`RegBackend::reg_mr`].
pub(crate) unsafe fn reg_mr(pd: &Pd, request: &MrRequest) -> Result<NonNull<ibv_mr>, Errno> {
    if let Some(why) = request.access.refusal() {
        tracing::debug!(access = ?request.access, why, "refused before the call");
        return Err(Errno::EINVAL);
    }
    let length = request.len.get();
    if request.addr.checked_add(length - 1).is_none()
        || request.iova.checked_add(length - 1).is_none()
    {
        // Some kernels compute with the wrapped end (siw in 6.1 makes an MR of nothing).
        tracing::debug!(
            addr = request.addr,
            length,
            "range beyond 2^64: refused before the call"
        );
        return Err(Errno::EINVAL);
    }
    let table = pd.context().library().table();
    let address = std::ptr::with_exposed_provenance_mut::<c_void>(to_usize(request.addr));
    let length = to_usize(length);
    let bits = request.access.bits();
    errno::clear();
    let (mr, errno) = match table.ibv_reg_mr_iova2 {
        Some(reg_mr_iova2) if has_optional(request.access) || request.iova != request.addr => {
            // SAFETY: a live PD; the caller's promise about the range.
            let mr = unsafe { reg_mr_iova2(pd.as_ptr(), address, length, request.iova, bits) };
            (mr, errno::last())
        }
        None if request.iova != request.addr => {
            tracing::debug!(
                "this libibverbs has no ibv_reg_mr_iova2: an address of its own is not possible"
            );
            return Err(Errno::EOPNOTSUPP);
        }
        // A library that does not know the optional bits would hand them to the kernel, which may not know them
        // either: optional means that leaving them away is right.
        _ => {
            let required = (bits & !IBV_ACCESS_OPTIONAL_RANGE).cast_signed();
            // SAFETY: a live PD; the caller's promise about the range.
            let mr = unsafe { (table.ibv_reg_mr)(pd.as_ptr(), address, length, required) };
            (mr, errno::last())
        }
    };
    NonNull::new(mr).ok_or(errno)
}

fn dereg_mr(library: &Library, mr: Mr) -> Result<(), (Mr, Errno)> {
    // SAFETY: a live MR of this library; it came out of the table, so nobody else has it.
    let status = unsafe { (library.table().ibv_dereg_mr)(mr.0.as_ptr()) };
    match errno::of_status(status) {
        None => Ok(()),
        Some(errno) => Err((mr, errno)),
    }
}

/// `sys` refuses to compile where `usize` is shorter.
#[expect(clippy::cast_possible_truncation, reason = "64-bit targets only")]
const fn to_usize(value: u64) -> usize {
    value as usize
}

/// The limits of a device as it reports them. The entries of its translation table are reported by no verb.
fn device_of(name: &str, attr: &ibv_device_attr) -> Device {
    let documented = |text: &'static str| Source::new(Kind::Documented, text);
    let max_mr_size = match attr.max_mr_size {
        0 => Limit::unknown(documented("max_mr_size is reported as 0")),
        u64::MAX => Limit::unlimited(documented("max_mr_size is 2^64 - 1")),
        bytes => Limit::exact(bytes, documented("max_mr_size")),
    };
    let not_reported = || Limit::unknown(documented("reported by no verb"));
    Device {
        name: name.to_owned(),
        family: Family::of_device(name, attr.vendor_id),
        max_mr_size,
        max_mr: count_limit(attr.max_mr),
        page_size_cap: PageSizes(attr.page_size_cap),
        entries: not_reported(),
        entries_per_mr: not_reported(),
        used: Used::UNKNOWN,
    }
}

fn count_limit(max_mr: c_int) -> Limit {
    match u64::try_from(max_mr) {
        Ok(count @ 1..) => Limit::exact(count, Source::new(Kind::Documented, "max_mr")),
        _ => Limit::unknown(Source::new(
            Kind::Documented,
            format!("max_mr is reported as {max_mr}"),
        )),
    }
}

/// Whether `access` has bits that a kernel may ignore: those go through `ibv_reg_mr_iova2`, which asks it.
const fn has_optional(access: Access) -> bool {
    access.bits() & IBV_ACCESS_OPTIONAL_RANGE != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{Zeroed, consts};

    #[test]
    fn access_bits_are_those_of_verbs_h() {
        for (access, bit) in [
            (Access::LOCAL_WRITE, consts::IBV_ACCESS_LOCAL_WRITE),
            (Access::REMOTE_WRITE, consts::IBV_ACCESS_REMOTE_WRITE),
            (Access::REMOTE_READ, consts::IBV_ACCESS_REMOTE_READ),
            (Access::REMOTE_ATOMIC, consts::IBV_ACCESS_REMOTE_ATOMIC),
            (
                Access::RELAXED_ORDERING,
                consts::IBV_ACCESS_RELAXED_ORDERING,
            ),
        ] {
            assert_eq!(access.bits(), bit);
        }
        assert!(has_optional(Access::RELAXED_ORDERING) && !has_optional(Access::REMOTE_RW));
    }

    #[test]
    fn limits_are_taken_as_reported_and_never_guessed() {
        let mut attr = ibv_device_attr::zeroed();
        attr.max_mr_size = 1 << 36;
        attr.max_mr = 32_768;
        attr.page_size_cap = 0x7fff_f000;
        attr.vendor_id = 0x1ded;
        let device = device_of("erdma_0", &attr);
        assert_eq!(device.family, Family::Erdma);
        assert_eq!(device.max_mr_size.known(), Some(1 << 36));
        assert_eq!(device.max_mr.known(), Some(32_768));
        assert_eq!(device.page_size_cap, PageSizes::ERDMA);
        assert_eq!(
            (device.entries.certain(), device.entries.at_most()),
            (0, None)
        );
        assert_eq!(device.used, Used::UNKNOWN);

        attr.max_mr_size = u64::MAX;
        attr.max_mr = -1;
        let device = device_of("rxe0", &attr);
        assert!(device.max_mr_size.is_unlimited());
        assert_eq!(device.max_mr.at_most(), None);
        attr.max_mr_size = 0;
        assert_eq!(device_of("x", &attr).max_mr_size.at_most(), None);
    }
}
