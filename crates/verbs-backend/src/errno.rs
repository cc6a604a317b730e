//! errno of the calling thread. Read right after the call, before anything that may change it.

use hugemr_core::errno::Errno;
use libc::c_int;

/// What the last failed call of this thread left.
pub(crate) fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// Sets errno to 0, so that a call that fails without setting it is not credited with an older failure.
pub(crate) fn clear() {
    // SAFETY: the location of this thread's errno is always valid.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *location = 0 };
}

/// The errno of a verb that returns it, or -1 with errno set: libibverbs has both. `None`: success.
///
/// To be called right after the verb.
pub(crate) fn of_status(status: c_int) -> Option<Errno> {
    match status {
        0 => None,
        positive @ 1.. => Some(Errno(positive)),
        _ => Some(last()),
    }
}
