//! Queues: completion queues, queue pairs on their way to a connection, and work requests.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hugemr_core::errno::Errno;
use libc::{c_int, c_void};

use crate::config::{Transport, Wire};
use crate::data::{self, ERR, INIT, READ, RESET, RTR, RTS, WRITE, Work};
use crate::objects::{Context, Cq, Device, End, Pd, Qp, down, lock, mutex, ours, up, world};
use crate::types::*;
use crate::{end, give, null};

/// The functions that programs find in an opened device.
pub(crate) fn operations() -> ibv_context_ops {
    ibv_context_ops {
        _before_poll_cq: [ptr::null_mut(); 11],
        poll_cq: Some(poll_cq),
        req_notify_cq: ptr::null_mut(),
        _before_post_send: [ptr::null_mut(); 12],
        post_send: Some(post_send),
        post_recv: ptr::null_mut(),
        _after_post_recv: [ptr::null_mut(); 5],
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    this: &Context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut c_void,
    _vector: c_int,
) -> *mut ibv_cq {
    if let Some(errno) = this.device.config.cq {
        return null(errno);
    }
    let cq = Cq {
        ibv: ibv_cq {
            context: ptr::from_ref(this).cast_mut().cast(),
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
    };
    give(&world().count.cqs, cq)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: a CQ of ours.
    let this: &Cq = unsafe { ours(cq) };
    if this.users.load(Ordering::SeqCst) > 0 {
        return Errno::EBUSY.0;
    }
    // SAFETY: the caller uses it no more.
    unsafe { end::<Cq, _>(&world().count.cqs, cq) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: &Pd, init: &ibv_qp_init_attr) -> *mut ibv_qp {
    let device = pd.context().device;
    if init.qp_type != 2 || init.send_cq.is_null() || init.recv_cq.is_null() {
        return null(Errno::EINVAL);
    }
    if let Some(errno) = device.config.qp {
        return null(errno);
    }
    let number = device.next_qp.fetch_add(1, Ordering::SeqCst);
    let state = End {
        pd: pd.address(),
        state: RESET,
        peer: 0,
        access: 0,
    };
    lock(&device.ends).insert(number, state);
    up(&pd.users);
    let qp = Qp {
        ibv: ibv_qp {
            context: pd.ibv.context,
            qp_context: init.qp_context,
            pd: ptr::from_ref(pd).cast_mut().cast(),
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
    };
    for cq in qp.cqs() {
        up(&cq.users);
    }
    give(&world().count.qps, qp)
}

/// The attributes that a reliable connection must have on its way, source: Linux `drivers/infiniband/core/verbs.c`
/// (`qp_state_table`).
const TO_INIT: u32 = 1 << 3 | 1 << 4 | 1 << 5;
const TO_RTR: u32 = 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
const TO_RTS: u32 = 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(this: &Qp, attr: &ibv_qp_attr, mask: c_int) -> c_int {
    let mask = mask.cast_unsigned();
    let device = this.pd().context().device;
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
                && reaches_itself(device, attr)
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
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: a QP of ours.
    let this: &Qp = unsafe { ours(qp) };
    lock(&this.pd().context().device.ends).remove(&this.ibv.qp_num);
    for cq in this.cqs() {
        down(&cq.users);
    }
    down(&this.pd().users);
    // SAFETY: the caller uses it no more.
    unsafe { end::<Qp, _>(&world().count.qps, qp) };
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
    let device = this.pd().context().device;
    let [cq, _] = this.cqs();
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
        let status = unsafe { data::run(device, this.ibv.qp_num, work) };
        if request.send_flags & 1 << 1 != 0 || status != data::SUCCESS {
            let mut done = ibv_wc::zeroed();
            done.wr_id = request.wr_id;
            done.status = status;
            done.opcode = if request.opcode == READ { 2 } else { 1 };
            done.byte_len = local.length;
            done.qp_num = this.ibv.qp_num;
            let mut queue = lock(&cq.done);
            if device.config.wire == Wire::Noisy {
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
