//! A libibverbs look-alike over the simulator: the real backend, its loader, its errno paths and its data path run
//! against it with no RDMA hardware and no kernel support. For tests only.
//!
//! It behaves as its [`config`] says. Its structures are those of `hugemr-verbs`, which are held against the C
//! headers by that crate's oracle; its rules for registrations are `hugemr-sim`'s.
//!
//! Where verbs.h has a pointer to an object that outlives the call, the functions here take a reference to the object
//! of ours that begins with it: the same to the caller, and said once.
//!
//! Never link this crate as a library into a program that links the real libibverbs: the symbols are the same.
#![allow(
    clippy::missing_safety_doc,
    reason = "the exported functions are those of verbs.h, with its obligations"
)]
#![allow(missing_docs, reason = "documented in verbs.h, by the same names")]

pub mod config;
mod data;
mod objects;
mod queues;
#[allow(non_camel_case_types, reason = "the names of verbs.h")]
#[path = "../../verbs-backend/src/sys/types.rs"]
pub mod types;

use std::mem::size_of;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hugemr_core::backend::{Access, MrRequest, RegBackend};
use hugemr_core::errno::Errno;
use libc::{c_char, c_int, c_uint, c_void};

use config::ListAnswer;
pub use objects::Counts;
use objects::{Context, Device, Mr, Pd, Range, down, lock, mutex, ours, up, world};
use types::*;

fn set_errno(errno: Errno) {
    // SAFETY: the location of this thread's errno is always valid.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *location = errno.0 };
}

fn null<T>(errno: Errno) -> *mut T {
    set_errno(errno);
    ptr::null_mut()
}

/// Gives a new object to the caller, and counts it.
fn give<T, U>(counter: &AtomicUsize, object: T) -> *mut U {
    up(counter);
    Box::into_raw(Box::new(object)).cast()
}

/// Ends an object.
///
/// # Safety
/// `object` came from [`give`] as an `O`, counted by `counter`, and is used no more.
unsafe fn end<O, U>(counter: &AtomicUsize, object: *mut U) {
    down(counter);
    // SAFETY: says the caller.
    drop(unsafe { Box::from_raw(object.cast::<O>()) });
}

/// How many objects are alive.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fake_verbs_counts(counts: *mut Counts) {
    let now = &world().count;
    let get = |counter: &AtomicUsize| counter.load(Ordering::SeqCst);
    let value = Counts {
        lists: get(&now.lists),
        contexts: get(&now.contexts),
        pds: get(&now.pds),
        mrs: get(&now.mrs),
        cqs: get(&now.cqs),
        qps: get(&now.qps),
    };
    // SAFETY: the caller's structure.
    unsafe { counts.write(value) };
}

/// What a provider calls when it is loaded; the number is that of the provider interface.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn verbs_register_driver_34(_operations: *const c_void) {}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let world = world();
    let devices: &[Device] = match world.config.list {
        ListAnswer::Fails(errno) => return null(errno),
        ListAnswer::Empty => &[],
        ListAnswer::Devices => &world.devices,
    };
    // SAFETY: zeroed, so the last pointer is null; freed by ibv_free_device_list.
    let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) };
    if list.is_null() {
        return null(Errno::ENOMEM);
    }
    let list = list.cast::<*mut ibv_device>();
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: inside the allocation above.
        let place = unsafe { list.add(index) };
        // SAFETY: as above.
        unsafe { place.write(ptr::from_ref(device).cast_mut().cast()) };
    }
    if !count.is_null() {
        // SAFETY: the caller's integer.
        unsafe { count.write(c_int::try_from(devices.len()).unwrap_or(0)) };
    }
    up(&world.count.lists);
    list
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: from calloc in ibv_get_device_list.
    unsafe { libc::free(list.cast()) };
    down(&world().count.lists);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: &Device) -> *const c_char {
    device.ibv.name.as_ptr()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: &'static Device) -> *mut ibv_context {
    if let Some(errno) = device.config.open {
        return null(errno);
    }
    let context = Context {
        ibv: ibv_context {
            device: ptr::from_ref(device).cast_mut().cast(),
            ops: queues::operations(),
            cmd_fd: -1,
            async_fd: -1,
            num_comp_vectors: 1,
            mutex: mutex(),
            abi_compat: ptr::null_mut(),
        },
        device,
        mrs: Mutex::default(),
    };
    give(&world().count.contexts, context)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: a context of ours.
    let this: &Context = unsafe { ours(context) };
    if let Some(errno) = this.device.config.close {
        set_errno(errno);
        return -1;
    }
    // As the kernel does when the file is closed. The simulator has no errno for it.
    for handle in lock(&this.mrs).drain() {
        if this.device.sim.dereg_mr(handle).is_ok() {
            down(&world().count.mrs);
        }
    }
    // SAFETY: the caller uses it no more.
    unsafe { end::<Context, _>(&world().count.contexts, context) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_device(
    this: &Context,
    attr: *mut ibv_device_attr,
) -> c_int {
    if let Some(errno) = this.device.config.query {
        return errno.0;
    }
    // SAFETY: the caller's structure.
    unsafe { attr.write(this.device.attr()) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_port(
    this: &Context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    if port != 1 {
        return Errno::EINVAL.0;
    }
    // SAFETY: the caller's structure.
    unsafe { attr.write(this.device.port()) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_gid(
    this: &Context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    let Some(value) = this.device.gid(index).filter(|_| port == 1) else {
        set_errno(Errno::EINVAL);
        return -1;
    };
    // SAFETY: the caller's structure.
    unsafe { gid.write(value) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_is_fork_initialized() -> c_uint {
    world().config.fork.unwrap_or(2)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(this: &Context) -> *mut ibv_pd {
    if let Some(errno) = this.device.config.pd {
        return null(errno);
    }
    let context = ptr::from_ref(this).cast_mut().cast();
    let pd = Pd {
        ibv: ibv_pd { context, handle: 0 },
        users: AtomicUsize::new(0),
    };
    give(&world().count.pds, pd)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: a PD of ours.
    let this: &Pd = unsafe { ours(pd) };
    if this.users.load(Ordering::SeqCst) > 0 {
        return Errno::EBUSY.0;
    }
    // SAFETY: the caller uses it no more.
    unsafe { end::<Pd, _>(&world().count.pds, pd) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let iova = addr.expose_provenance() as u64;
    // SAFETY: the caller's obligations are the same.
    unsafe { register(pd, addr, length, iova, access.cast_unsigned()) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller's obligations are the same.
    unsafe { register(pd, addr, length, iova, access) }
}

/// # Safety
/// As `ibv_reg_mr_iova2`.
unsafe fn register(
    pd: &Pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let context = pd.context();
    let Some(len) = NonZeroU64::new(length as u64) else {
        return null(Errno::EINVAL);
    };
    let request = MrRequest {
        addr: addr.expose_provenance() as u64,
        len,
        iova,
        access: Access::from_bits_retain(access),
    };
    // SAFETY: the simulator touches no memory.
    let mr = match unsafe { context.device.sim.reg_mr(&request) } {
        Ok(mr) => mr,
        Err(error) => return null(error.errno),
    };
    let range = Range {
        addr: request.addr,
        iova,
        len: len.get(),
        access: request.access,
        pd: pd.address(),
    };
    lock(&context.device.ranges).insert(mr.rkey.0, range);
    lock(&context.mrs).insert(mr.handle);
    up(&pd.users);
    let mr = Mr {
        ibv: ibv_mr {
            context: pd.ibv.context,
            pd: ptr::from_ref(pd).cast_mut().cast(),
            addr,
            length,
            handle: 0,
            lkey: mr.lkey.0,
            rkey: mr.rkey.0,
        },
        handle: mr.handle,
    };
    give(&world().count.mrs, mr)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: an MR of ours.
    let this: &Mr = unsafe { ours(mr) };
    let (pd, context) = (this.pd(), this.pd().context());
    let rkey = this.ibv.rkey;
    // Before the key can be given to another MR.
    let range = lock(&context.device.ranges).remove(&rkey);
    if let Err(error) = context.device.sim.dereg_mr(this.handle) {
        if let Some(range) = range {
            lock(&context.device.ranges).insert(rkey, range);
        }
        return error.errno.0;
    }
    lock(&context.mrs).remove(&this.handle);
    down(&pd.users);
    // SAFETY: the caller uses it no more.
    unsafe { end::<Mr, _>(&world().count.mrs, mr) };
    0
}
