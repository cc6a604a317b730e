//! Constants, as in verbs.h. Enumerations are plain integers: a newer library may send values unknown here.

use libc::{c_int, c_uint};

/// Declares constants and a list of them by name, for the oracle.
macro_rules! constants {
    ($($group:ident: $type:ty { $($name:ident = $value:expr;)* })*) => {
        $($(pub const $name: $type = $value;)*)*
        /// (group, name, value), for comparison with the headers.
        #[doc(hidden)]
        pub const ALL: &[(&str, &str, i64)] = &[
            $($((stringify!($group), stringify!($name), $value),)*)*
        ];
    };
}

constants! {
    ibv_transport_type: c_int {
        IBV_TRANSPORT_UNKNOWN = -1;
        IBV_TRANSPORT_IB = 0;
        IBV_TRANSPORT_IWARP = 1;
        IBV_TRANSPORT_USNIC = 2;
        IBV_TRANSPORT_USNIC_UDP = 3;
        IBV_TRANSPORT_UNSPECIFIED = 4;
    }
    ibv_node_type: c_int {
        IBV_NODE_CA = 1;
        IBV_NODE_RNIC = 4;
    }
    ibv_port_state: c_uint {
        IBV_PORT_NOP = 0;
        IBV_PORT_DOWN = 1;
        IBV_PORT_INIT = 2;
        IBV_PORT_ARMED = 3;
        IBV_PORT_ACTIVE = 4;
        IBV_PORT_ACTIVE_DEFER = 5;
    }
    ibv_mtu: c_uint {
        IBV_MTU_256 = 1;
        IBV_MTU_512 = 2;
        IBV_MTU_1024 = 3;
        IBV_MTU_2048 = 4;
        IBV_MTU_4096 = 5;
    }
    ibv_access_flags: c_uint {
        IBV_ACCESS_LOCAL_WRITE = 1;
        IBV_ACCESS_REMOTE_WRITE = 1 << 1;
        IBV_ACCESS_REMOTE_READ = 1 << 2;
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
        IBV_ACCESS_RELAXED_ORDERING = 1 << 20;
    }
    ibv_qp_type: c_uint {
        IBV_QPT_RC = 2;
    }
    ibv_qp_state: c_uint {
        IBV_QPS_RESET = 0;
        IBV_QPS_INIT = 1;
        IBV_QPS_RTR = 2;
        IBV_QPS_RTS = 3;
        IBV_QPS_ERR = 6;
    }
    ibv_qp_attr_mask: c_uint {
        IBV_QP_STATE = 1;
        IBV_QP_ACCESS_FLAGS = 1 << 3;
        IBV_QP_PKEY_INDEX = 1 << 4;
        IBV_QP_PORT = 1 << 5;
        IBV_QP_AV = 1 << 7;
        IBV_QP_PATH_MTU = 1 << 8;
        IBV_QP_TIMEOUT = 1 << 9;
        IBV_QP_RETRY_CNT = 1 << 10;
        IBV_QP_RNR_RETRY = 1 << 11;
        IBV_QP_RQ_PSN = 1 << 12;
        IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
        IBV_QP_MIN_RNR_TIMER = 1 << 15;
        IBV_QP_SQ_PSN = 1 << 16;
        IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
        IBV_QP_DEST_QPN = 1 << 20;
    }
    ibv_wr_opcode: c_uint {
        IBV_WR_RDMA_WRITE = 0;
        IBV_WR_RDMA_READ = 4;
    }
    ibv_send_flags: c_uint {
        IBV_SEND_SIGNALED = 1 << 1;
    }
    ibv_wc_opcode: c_uint {
        IBV_WC_RDMA_WRITE = 1;
        IBV_WC_RDMA_READ = 2;
    }
    ibv_wc_status: c_uint {
        IBV_WC_SUCCESS = 0;
        IBV_WC_LOC_LEN_ERR = 1;
        IBV_WC_LOC_QP_OP_ERR = 2;
        IBV_WC_LOC_EEC_OP_ERR = 3;
        IBV_WC_LOC_PROT_ERR = 4;
        IBV_WC_WR_FLUSH_ERR = 5;
        IBV_WC_MW_BIND_ERR = 6;
        IBV_WC_BAD_RESP_ERR = 7;
        IBV_WC_LOC_ACCESS_ERR = 8;
        IBV_WC_REM_INV_REQ_ERR = 9;
        IBV_WC_REM_ACCESS_ERR = 10;
        IBV_WC_REM_OP_ERR = 11;
        IBV_WC_RETRY_EXC_ERR = 12;
        IBV_WC_RNR_RETRY_EXC_ERR = 13;
        IBV_WC_LOC_RDD_VIOL_ERR = 14;
        IBV_WC_REM_INV_RD_REQ_ERR = 15;
        IBV_WC_REM_ABORT_ERR = 16;
        IBV_WC_INV_EECN_ERR = 17;
        IBV_WC_INV_EEC_STATE_ERR = 18;
        IBV_WC_FATAL_ERR = 19;
        IBV_WC_RESP_TIMEOUT_ERR = 20;
        IBV_WC_GENERAL_ERR = 21;
    }
    ibv_fork_status: c_uint {
        IBV_FORK_DISABLED = 0;
        IBV_FORK_ENABLED = 1;
        IBV_FORK_UNNEEDED = 2;
    }
    link_layer: u8 {
        IBV_LINK_LAYER_UNSPECIFIED = 0;
        IBV_LINK_LAYER_INFINIBAND = 1;
        IBV_LINK_LAYER_ETHERNET = 2;
    }
}

/// The access bits that a kernel or library may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
pub const IBV_ACCESS_OPTIONAL_RANGE: c_uint = ((1 << 30) - 1) & !((1 << 20) - 1);

/// The name of a completion status; `None` for a number that is not in the table.
#[must_use]
pub fn wc_status_name(status: c_uint) -> Option<&'static str> {
    ALL.iter()
        .find(|(group, _, value)| *group == "ibv_wc_status" && *value == i64::from(status))
        .map(|(_, name, _)| *name)
}
