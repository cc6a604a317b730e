//! Two QPs of one device, connected with each other.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hugemr_core::errno::Errno;

use super::Remote;
use super::cm::{Address, Connection};
use super::gid::End;
use crate::context::Pd;
use crate::errno;
use crate::sys::consts::*;
use crate::sys::{
    Zeroed, ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_send_wr, ibv_send_wr_kind,
    ibv_send_wr_rdma, ibv_sge, ibv_wc,
};

/// A healthy device answers within microseconds; its own retries end within 5 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    Read,
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
        }
    }

    const fn opcode(self) -> u32 {
        match self {
            Self::Write => IBV_WR_RDMA_WRITE,
            Self::Read => IBV_WR_RDMA_READ,
        }
    }
}

/// A completion queue.
#[derive(Debug)]
struct Cq {
    pd: Arc<Pd>,
    cq: NonNull<ibv_cq>,
}

// SAFETY: verbs objects may be used from any thread.
unsafe impl Send for Cq {}
// SAFETY: as above, by several at once too: libibverbs and the providers lock.
unsafe impl Sync for Cq {}

impl Cq {
    fn new(pd: &Arc<Pd>) -> Result<Self, Errno> {
        let null = std::ptr::null_mut();
        errno::clear();
        // SAFETY: an open context; no channel, completion vector 0.
        let cq = unsafe {
            (pd.context().library().table().ibv_create_cq)(pd.context().as_ptr(), 16, null, null, 0)
        };
        let errno = errno::last();
        let pd = Arc::clone(pd);
        NonNull::new(cq).map(|cq| Self { pd, cq }).ok_or(errno)
    }

    /// One completion, if there is one.
    fn poll(&self) -> Result<Option<ibv_wc>, String> {
        // SAFETY: an open context; its table of operations is never changed.
        let poll = unsafe { (*self.pd.context().as_ptr()).ops.poll_cq };
        let poll = poll.ok_or_else(|| "this provider has no poll_cq".to_owned())?;
        let mut completion = ibv_wc::zeroed();
        // SAFETY: a live CQ of that context, room for one completion.
        match unsafe { poll(self.cq.as_ptr(), 1, &raw mut completion) } {
            0 => Ok(None),
            1 => Ok(Some(completion)),
            status => Err(format!("ibv_poll_cq returned {status}")),
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: created by us, destroyed once; the QPs that use it are gone, for they own it.
        let status =
            unsafe { (self.pd.context().library().table().ibv_destroy_cq)(self.cq.as_ptr()) };
        if let Some(errno) = errno::of_status(status) {
            tracing::error!(%errno, "ibv_destroy_cq failed");
        }
    }
}

/// A reliable-connection QP.
#[derive(Debug)]
struct Qp {
    qp: NonNull<ibv_qp>,
    cq: Arc<Cq>,
}

// SAFETY: verbs objects may be used from any thread.
unsafe impl Send for Qp {}

impl Qp {
    fn new(cq: &Arc<Cq>) -> Result<Self, Errno> {
        let mut init = ibv_qp_init_attr::zeroed();
        init.send_cq = cq.cq.as_ptr();
        init.recv_cq = cq.cq.as_ptr();
        init.qp_type = IBV_QPT_RC;
        init.cap.max_send_wr = 4;
        init.cap.max_recv_wr = 1;
        init.cap.max_send_sge = 1;
        init.cap.max_recv_sge = 1;
        let table = cq.pd.context().library().table();
        errno::clear();
        // SAFETY: a live PD, and a CQ of its context that outlives the QP.
        let qp = unsafe { (table.ibv_create_qp)(cq.pd.as_ptr(), &raw mut init) };
        let errno = errno::last();
        let cq = Arc::clone(cq);
        NonNull::new(qp).map(|qp| Self { qp, cq }).ok_or(errno)
    }

    fn number(&self) -> u32 {
        // SAFETY: a live QP; its number never changes.
        unsafe { (*self.qp.as_ptr()).qp_num }
    }

    fn modify(&self, mut attr: ibv_qp_attr, mask: u32) -> Result<(), Errno> {
        let modify = self.cq.pd.context().library().table().ibv_modify_qp;
        // SAFETY: a live QP; the fields of the mask are filled.
        let status = unsafe { modify(self.qp.as_ptr(), &raw mut attr, mask.cast_signed()) };
        errno::of_status(status).map_or(Ok(()), Err)
    }

    fn to_init(&self, end: &End) -> Result<(), Errno> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = end.port;
        attr.qp_access_flags =
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify(attr, mask)
    }

    fn to_ready_to_receive(&self, end: &End, peer: u32) -> Result<(), Errno> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = end.mtu;
        attr.dest_qp_num = peer;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        attr.ah_attr = end.route();
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify(attr, mask)
    }

    fn to_ready_to_send(&self) -> Result<(), Errno> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_RTS;
        // 4.096 us x 2^14 = 67 ms between retries.
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(attr, mask)
    }

    fn post(&self, request: &mut ibv_send_wr) -> Result<(), String> {
        // SAFETY: an open context; its table of operations is never changed.
        let post = unsafe { (*self.cq.pd.context().as_ptr()).ops.post_send };
        let post = post.ok_or_else(|| "this provider has no post_send".to_owned())?;
        let mut bad = std::ptr::null_mut();
        // SAFETY: a live QP of that context; the request and its element are read during the call only.
        let status = unsafe { post(self.qp.as_ptr(), request, &raw mut bad) };
        match errno::of_status(status) {
            None => Ok(()),
            Some(errno) => Err(format!("ibv_post_send: {errno}")),
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: created by us, destroyed once.
        let status =
            unsafe { (self.cq.pd.context().library().table().ibv_destroy_qp)(self.qp.as_ptr()) };
        if let Some(errno) = errno::of_status(status) {
            tracing::error!(%errno, "ibv_destroy_qp failed");
        }
    }
}

fn say(verb: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("{verb}: {errno}")
}

fn unconnected(pd: &Arc<Pd>) -> Result<(Arc<Cq>, Qp, Qp), String> {
    let cq = Arc::new(Cq::new(pd).map_err(say("ibv_create_cq"))?);
    let near = Qp::new(&cq).map_err(say("ibv_create_qp"))?;
    let far = Qp::new(&cq).map_err(say("ibv_create_qp"))?;
    Ok((cq, near, far))
}

/// Two connected QPs; transfers are posted on the near one.
///
/// Fields in the order of their end.
#[derive(Debug)]
pub(super) struct Pair {
    near: Qp,
    _far: Qp,
    cq: Arc<Cq>,
    connection: Option<Connection>,
}

impl Pair {
    /// Connects by the device's own address.
    pub(super) fn connect(pd: &Arc<Pd>, end: &End) -> Result<Self, String> {
        let (cq, near, far) = unconnected(pd)?;
        for (qp, peer) in [(&near, &far), (&far, &near)] {
            qp.to_init(end).map_err(say("ibv_modify_qp to INIT"))?;
            qp.to_ready_to_receive(end, peer.number())
                .map_err(say("ibv_modify_qp to RTR"))?;
        }
        for qp in [&near, &far] {
            qp.to_ready_to_send().map_err(say("ibv_modify_qp to RTS"))?;
        }
        Ok(Self {
            near,
            _far: far,
            cq,
            connection: None,
        })
    }

    /// Connects by `rdma_cm`, over an IP address of the device's network interface.
    pub(super) fn connect_by_cm(pd: &Arc<Pd>, address: Address) -> Result<Self, String> {
        let mut connection = Connection::resolve(pd.context(), address)?;
        let (cq, near, far) = unconnected(pd)?;
        for qp in [&near, &far] {
            let (attr, mask) = connection.to_init()?;
            qp.modify(attr, mask)
                .map_err(say("ibv_modify_qp to INIT"))?;
        }
        connection.connect(near.number(), far.number())?;
        Ok(Self {
            near,
            _far: far,
            cq,
            connection: Some(connection),
        })
    }

    /// Moves bytes between local memory and a remote range, and waits for the end.
    pub(super) fn transfer(
        &self,
        operation: Operation,
        mut local: ibv_sge,
        remote: Remote,
    ) -> Result<(), String> {
        let mut request = ibv_send_wr::zeroed();
        request.wr_id = remote.addr;
        request.sg_list = &raw mut local;
        request.num_sge = 1;
        request.opcode = operation.opcode();
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr = ibv_send_wr_kind {
            rdma: ibv_send_wr_rdma {
                remote_addr: remote.addr,
                rkey: remote.rkey.0,
            },
        };
        self.near.post(&mut request)?;
        let near = self.near.number();
        let start = Instant::now();
        loop {
            match self.cq.poll()? {
                // The far end may report its own end of a broken connection: not what is waited for.
                Some(completion) if completion.qp_num != near => {}
                Some(completion) if completion.status == IBV_WC_SUCCESS => return Ok(()),
                Some(completion) => {
                    return Err(wc_status_name(completion.status)
                        .map_or_else(|| format!("{}", completion.status), ToOwned::to_owned));
                }
                None if start.elapsed() > PATIENCE => {
                    return Err(format!("nothing within {} s", PATIENCE.as_secs()));
                }
                None if start.elapsed() < Duration::from_millis(1) => std::hint::spin_loop(),
                None => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.disconnect();
        }
    }
}
