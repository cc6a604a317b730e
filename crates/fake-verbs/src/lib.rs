//! A libibverbs look-alike over the simulator: the real backend, its loader, its errno paths and its data path run
//! against it with no RDMA hardware and no kernel support. For tests only.
//!
//! It behaves as its [`config`] says. Its structures are those of `hugemr-verbs`, which are held against the C
//! headers by that crate's oracle; its rules for registrations are `hugemr-sim`'s.
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

use config::{ListAnswer, Transport, Wire};
use data::{ERR, INIT, READ, RESET, RTR, RTS, WRITE, Work};
pub use objects::Counts;
use objects::{Context, Cq, Device, End, Mr, Pd, Qp, Range, down, lock, up, world};
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

fn give<T, U>(object: T) -> *mut U {
    Box::into_raw(Box::new(object)).cast()
}

/// Objects of the C interface, by the object of ours that begins with them.
///
/// # Safety
/// `object` came from this library as an `O` and is alive.
unsafe fn ours<'a, O, U>(object: *mut U) -> &'a O {
    // SAFETY: says the caller.
    unsafe { &*object.cast::<O>() }
}

/// Ends an object.
///
/// # Safety
/// `object` came from this library as an `O` and is used no more.
unsafe fn end<O, U>(object: *mut U) {
    // SAFETY: says the caller; it was made by `give`.
    drop(unsafe { Box::from_raw(object.cast::<O>()) });
}

fn mutex() -> libc::pthread_mutex_t {
    libc::PTHREAD_MUTEX_INITIALIZER
}

/// How many objects are alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_verbs_counts(counts: *mut Counts) {
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
pub unsafe extern "C" fn verbs_register_driver_34(_operations: *const c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
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
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: from calloc in ibv_get_device_list.
    unsafe { libc::free(list.cast()) };
    down(&world().count.lists);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: a device of ours.
    let device: &Device = unsafe { ours(device) };
    device.ibv.name.as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: a device of ours; they live as long as the process.
    let device: &'static Device = unsafe { ours(device) };
    if let Some(errno) = device.config.open {
        return null(errno);
    }
    up(&world().count.contexts);
    give(Context {
        ibv: ibv_context {
            device: ptr::from_ref(device).cast_mut().cast(),
            ops: ibv_context_ops {
                _before_poll_cq: [ptr::null_mut(); 11],
                poll_cq: Some(poll_cq),
                req_notify_cq: ptr::null_mut(),
                _before_post_send: [ptr::null_mut(); 12],
                post_send: Some(post_send),
                post_recv: ptr::null_mut(),
                _after_post_recv: [ptr::null_mut(); 5],
            },
            cmd_fd: -1,
            async_fd: -1,
            num_comp_vectors: 1,
            mutex: mutex(),
            abi_compat: ptr::null_mut(),
        },
        device,
        mrs: Mutex::default(),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
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
    unsafe { end::<Context, _>(context) };
    down(&world().count.contexts);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    // SAFETY: a context of ours.
    let this: &Context = unsafe { ours(context) };
    if let Some(errno) = this.device.config.query {
        return errno.0;
    }
    // SAFETY: the caller's structure.
    unsafe { attr.write(this.device.attr()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: a context of ours.
    let this: &Context = unsafe { ours(context) };
    if port != 1 {
        return Errno::EINVAL.0;
    }
    // SAFETY: the caller's structure.
    unsafe { attr.write(this.device.port()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: a context of ours.
    let this: &Context = unsafe { ours(context) };
    let Some(value) = this.device.gid(index).filter(|_| port == 1) else {
        set_errno(Errno::EINVAL);
        return -1;
    };
    // SAFETY: the caller's structure.
    unsafe { gid.write(value) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_is_fork_initialized() -> c_uint {
    world().config.fork.unwrap_or(2)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: a context of ours.
    let this: &Context = unsafe { ours(context) };
    if let Some(errno) = this.device.config.pd {
        return null(errno);
    }
    up(&world().count.pds);
    give(Pd {
        ibv: ibv_pd { context, handle: 0 },
        users: AtomicUsize::new(0),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: a PD of ours.
    let this: &Pd = unsafe { ours(pd) };
    if this.users.load(Ordering::SeqCst) > 0 {
        return Errno::EBUSY.0;
    }
    // SAFETY: the caller uses it no more.
    unsafe { end::<Pd, _>(pd) };
    down(&world().count.pds);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let iova = addr.expose_provenance() as u64;
    // SAFETY: the caller's obligations are the same.
    unsafe { register(pd, addr, length, iova, access.cast_unsigned()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
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
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: a PD of ours.
    let this: &Pd = unsafe { ours(pd) };
    // SAFETY: its context, which is alive.
    let context: &Context = unsafe { ours(this.ibv.context) };
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
        pd: pd.expose_provenance(),
    };
    lock(&context.device.ranges).insert(mr.rkey.0, range);
    lock(&context.mrs).insert(mr.handle);
    up(&this.users);
    up(&world().count.mrs);
    give(Mr {
        ibv: ibv_mr {
            context: this.ibv.context,
            pd,
            addr,
            length,
            handle: 0,
            lkey: mr.lkey.0,
            rkey: mr.rkey.0,
        },
        handle: mr.handle,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: an MR of ours.
    let this: &Mr = unsafe { ours(mr) };
    // SAFETY: its context, which is alive.
    let context: &Context = unsafe { ours(this.ibv.context) };
    // SAFETY: its PD, which is alive.
    let pd: &Pd = unsafe { ours(this.ibv.pd) };
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
    down(&world().count.mrs);
    // SAFETY: the caller uses it no more.
    unsafe { end::<Mr, _>(mr) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut c_void,
    _vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: a context of ours.
    let this: &Context = unsafe { ours(context) };
    if let Some(errno) = this.device.config.cq {
        return null(errno);
    }
    up(&world().count.cqs);
    give(Cq {
        ibv: ibv_cq {
            context,
            channel,
            cq_context,
            handle: 0,
            cqe,
            mutex: mutex(),
            cond: libc::PTHREAD_COND_INITIALIZER,
            comp_events_completed: 0,
            async_events_completed: 0,
        },
        done: Mutex::default(),
        users: AtomicUsize::new(0),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: a CQ of ours.
    let this: &Cq = unsafe { ours(cq) };
    if this.users.load(Ordering::SeqCst) > 0 {
        return Errno::EBUSY.0;
    }
    // SAFETY: the caller uses it no more.
    unsafe { end::<Cq, _>(cq) };
    down(&world().count.cqs);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    // SAFETY: a PD of ours.
    let this: &Pd = unsafe { ours(pd) };
    // SAFETY: its context, which is alive.
    let context: &Context = unsafe { ours(this.ibv.context) };
    // SAFETY: the caller's structure.
    let init = unsafe { init.read() };
    if init.qp_type != 2 || init.send_cq.is_null() || init.recv_cq.is_null() {
        return null(Errno::EINVAL);
    }
    if let Some(errno) = context.device.config.qp {
        return null(errno);
    }
    let number = context.device.next_qp.fetch_add(1, Ordering::SeqCst);
    let state = End {
        pd: pd.expose_provenance(),
        state: RESET,
        peer: 0,
        access: 0,
    };
    lock(&context.device.ends).insert(number, state);
    for cq in [init.send_cq, init.recv_cq] {
        // SAFETY: a CQ of ours.
        let cq: &Cq = unsafe { ours(cq) };
        up(&cq.users);
    }
    up(&this.users);
    up(&world().count.qps);
    give(Qp {
        ibv: ibv_qp {
            context: this.ibv.context,
            qp_context: init.qp_context,
            pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: 0,
            qp_num: number,
            state: RESET,
            qp_type: init.qp_type,
            mutex: mutex(),
            cond: libc::PTHREAD_COND_INITIALIZER,
            events_completed: 0,
        },
    })
}

/// The attributes that a reliable connection must have on its way, source: Linux `drivers/infiniband/core/verbs.c`
/// (`qp_state_table`).
const TO_INIT: u32 = 1 << 3 | 1 << 4 | 1 << 5;
const TO_RTR: u32 = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
const TO_RTS: u32 = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: a QP of ours.
    let this: &Qp = unsafe { ours(qp) };
    // SAFETY: its context, which is alive.
    let context: &Context = unsafe { ours(this.ibv.context) };
    // SAFETY: the caller's structure.
    let attr = unsafe { attr.read() };
    let mask = mask.cast_unsigned();
    let device = context.device;
    let mut ends = lock(&device.ends);
    let Some(end) = ends.get_mut(&this.ibv.qp_num) else {
        return Errno::EINVAL.0;
    };
    let complete = |needed: u32| mask == needed | 1;
    let possible = match (end.state, attr.qp_state) {
        (RESET, INIT) => complete(TO_INIT) && attr.port_num == 1,
        (INIT, RTR) => {
            complete(TO_RTR)
                && device.config.transport == Transport::Ib
                && device.config.wire != Wire::Refuses
                && reaches_itself(device, &attr)
        }
        (RTR, RTS) => complete(TO_RTS),
        (_, ERR | RESET) => true,
        _ => false,
    };
    if !possible {
        return Errno::EINVAL.0;
    }
    match attr.qp_state {
        INIT => end.access = attr.qp_access_flags,
        RTR => end.peer = attr.dest_qp_num,
        _ => {}
    }
    end.state = attr.qp_state;
    0
}

/// Whether the route leads to the device's own port.
fn reaches_itself(device: &Device, attr: &ibv_qp_attr) -> bool {
    let route = &attr.ah_attr;
    if route.port_num != 1 || attr.path_mtu > device.port().active_mtu {
        return false;
    }
    if device.config.infiniband {
        return route.is_global == 0 && route.dlid == device.port().lid;
    }
    // Over Ethernet a link-local address of RoCE v2 does not loop back on every device: here never.
    route.is_global == 1 && route.grh.sgid_index == 2 && device.gid(2) == Some(route.grh.dgid)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a QP of ours.
    let this: &Qp = unsafe { ours(qp) };
    // SAFETY: its context, which is alive.
    let context: &Context = unsafe { ours(this.ibv.context) };
    // SAFETY: its PD, which is alive.
    let pd: &Pd = unsafe { ours(this.ibv.pd) };
    lock(&context.device.ends).remove(&this.ibv.qp_num);
    for cq in [this.ibv.send_cq, this.ibv.recv_cq] {
        // SAFETY: a CQ of ours, which is alive.
        let cq: &Cq = unsafe { ours(cq) };
        down(&cq.users);
    }
    down(&pd.users);
    down(&world().count.qps);
    // SAFETY: the caller uses it no more.
    unsafe { end::<Qp, _>(qp) };
    0
}

/// # Safety
/// As `ibv_post_send`.
unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    request: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a QP of ours.
    let this: &Qp = unsafe { ours(qp) };
    // SAFETY: its context, which is alive.
    let context: &Context = unsafe { ours(this.ibv.context) };
    // SAFETY: its CQ, which is alive.
    let cq: &Cq = unsafe { ours(this.ibv.send_cq) };
    let mut next = request;
    while !next.is_null() {
        // SAFETY: the caller's structure.
        let request = unsafe { next.read() };
        if request.num_sge != 1 || !matches!(request.opcode, READ | WRITE) {
            // SAFETY: the caller's pointer.
            unsafe { bad.write(next) };
            return Errno::EINVAL.0;
        }
        // SAFETY: the caller's element.
        let local = unsafe { request.sg_list.read() };
        // SAFETY: an RDMA request has this member.
        let remote = unsafe { request.wr.rdma };
        let work = Work {
            opcode: request.opcode,
            local,
            remote_addr: remote.remote_addr,
            rkey: remote.rkey,
        };
        // SAFETY: the ranges were registered, so they are mapped.
        let status = unsafe { data::run(context.device, this.ibv.qp_num, work) };
        if request.send_flags & 1 << 1 != 0 || status != data::SUCCESS {
            let mut done = ibv_wc::zeroed();
            done.wr_id = request.wr_id;
            done.status = status;
            done.opcode = if request.opcode == READ { 2 } else { 1 };
            done.byte_len = local.length;
            done.qp_num = this.ibv.qp_num;
            let mut queue = lock(&cq.done);
            if context.device.config.wire == Wire::Noisy {
                let mut noise = done;
                noise.qp_num += 1;
                noise.status = data::WR_FLUSH_ERR;
                queue.push_back(noise);
            }
            queue.push_back(done);
        }
        next = request.next;
    }
    0
}

/// # Safety
/// As `ibv_poll_cq`.
unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, room: c_int, completions: *mut ibv_wc) -> c_int {
    // SAFETY: a CQ of ours.
    let this: &Cq = unsafe { ours(cq) };
    let mut done = lock(&this.done);
    let count = usize::try_from(room).unwrap_or(0).min(done.len());
    for (index, completion) in done.drain(..count).enumerate() {
        // SAFETY: the caller has room for `room` completions.
        let place = unsafe { completions.add(index) };
        // SAFETY: as above.
        unsafe { place.write(completion) };
    }
    c_int::try_from(count).unwrap_or(c_int::MAX)
}
