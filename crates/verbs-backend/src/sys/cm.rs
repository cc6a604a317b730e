//! What hugemr needs of librdmacm (`rdma/rdma_cma.h`): a connection for QPs of its own.

use libc::{c_int, c_void, sockaddr};

use super::table::table;
use super::types::{ibv_context, ibv_qp_attr};

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// The first fields only: never made here, never copied.
#[repr(C)]
pub struct rdma_cm_id {
    /// Opened by librdmacm itself; null until an address is known.
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut c_void,
}

/// The first fields only: never made here, never copied.
#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_int,
    pub status: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

pub const RDMA_PS_TCP: c_int = 0x0106;

pub const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
pub const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
pub const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
pub const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;

/// Names of events by their numbers, from 0.
pub const EVENT_NAMES: [&str; 16] = [
    "RDMA_CM_EVENT_ADDR_RESOLVED",
    "RDMA_CM_EVENT_ADDR_ERROR",
    "RDMA_CM_EVENT_ROUTE_RESOLVED",
    "RDMA_CM_EVENT_ROUTE_ERROR",
    "RDMA_CM_EVENT_CONNECT_REQUEST",
    "RDMA_CM_EVENT_CONNECT_RESPONSE",
    "RDMA_CM_EVENT_CONNECT_ERROR",
    "RDMA_CM_EVENT_UNREACHABLE",
    "RDMA_CM_EVENT_REJECTED",
    "RDMA_CM_EVENT_ESTABLISHED",
    "RDMA_CM_EVENT_DISCONNECTED",
    "RDMA_CM_EVENT_DEVICE_REMOVAL",
    "RDMA_CM_EVENT_MULTICAST_JOIN",
    "RDMA_CM_EVENT_MULTICAST_ERROR",
    "RDMA_CM_EVENT_ADDR_CHANGE",
    "RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

table! {
    /// Entry points of one librdmacm.
    CmTable
    required {
        rdma_create_event_channel @ c"RDMACM_1.0": fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel @ c"RDMACM_1.0": fn(*mut rdma_event_channel);
        rdma_create_id @ c"RDMACM_1.0": fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        rdma_destroy_id @ c"RDMACM_1.0": fn(*mut rdma_cm_id) -> c_int;
        rdma_bind_addr @ c"RDMACM_1.0": fn(*mut rdma_cm_id, *mut sockaddr) -> c_int;
        rdma_listen @ c"RDMACM_1.0": fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_get_src_port @ c"RDMACM_1.0": fn(*mut rdma_cm_id) -> u16;
        rdma_resolve_addr @ c"RDMACM_1.0": fn(*mut rdma_cm_id, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
        rdma_resolve_route @ c"RDMACM_1.0": fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_init_qp_attr @ c"RDMACM_1.2": fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
        rdma_connect @ c"RDMACM_1.0": fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_accept @ c"RDMACM_1.0": fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_disconnect @ c"RDMACM_1.0": fn(*mut rdma_cm_id) -> c_int;
        rdma_get_cm_event @ c"RDMACM_1.0": fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event @ c"RDMACM_1.0": fn(*mut rdma_cm_event) -> c_int;
    }
    optional {}
}
