//! Holds our declarations of verbs.h against the installed headers, twice: against what rdma-sys makes of them
//! (bindgen; some structures by hand), and by a C compiler, which is asked about every size, offset and constant.
//!
//! Needs `--features linked-verbs`, libibverbs-dev, librdmacm-dev, and a libclang older than 16 (`LIBCLANG_PATH`). The
//! compiler is `$CC`, else the first of `cc`, `clang-14`, `clang` and `gcc`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::{Command, Stdio};

use hugemr_verbs::sys;
use hugemr_verbs::sys::{cm, consts};

/// One number of a structure: as we have it, as rdma-sys has it, and as an expression in C.
struct Fact {
    what: String,
    c: String,
    ours: usize,
    theirs: usize,
}

/// Facts of structures. `ours = theirs, "C"` where a field has another name in rdma-sys and in C: it is in a union,
/// or an array of ours stands for several. Each structure is taken apart, so that no field can be forgotten.
macro_rules! layouts {
    ($($type:ident { $($ours:ident $(= $theirs:ident, $c:literal)?),* $(,)? })*) => {{
        let mut facts = Vec::new();
        $(
            #[allow(dead_code, non_snake_case, reason = "compiled, never called")]
            fn $type(value: sys::$type) {
                let sys::$type { $($ours: _),* } = value;
            }
            let name = stringify!($type);
            let in_c = c_type(name);
            facts.push(Fact {
                what: format!("size of {name}"),
                c: format!("sizeof({in_c})"),
                ours: size_of::<sys::$type>(),
                theirs: size_of::<rdma_sys::$type>(),
            });
            facts.push(Fact {
                what: format!("alignment of {name}"),
                c: format!("_Alignof({in_c})"),
                ours: align_of::<sys::$type>(),
                theirs: align_of::<rdma_sys::$type>(),
            });
            $(facts.push(Fact {
                what: format!("offset of {name}.{}", stringify!($ours)),
                c: format!("offsetof({in_c}, {})", layouts!(@c $ours $($c)?)),
                ours: offset_of!(sys::$type, $ours),
                theirs: layouts!(@theirs $type $ours $($theirs)?),
            });)*
        )*
        facts
    }};
    (@c $ours:ident) => { stringify!($ours) };
    (@c $ours:ident $c:literal) => { $c };
    (@theirs $type:ident $ours:ident) => { offset_of!(rdma_sys::$type, $ours) };
    (@theirs $type:ident $ours:ident $theirs:ident) => { offset_of!(rdma_sys::$type, $theirs) };
}

fn c_type(name: &str) -> String {
    let keyword = if name == "ibv_gid" { "union" } else { "struct" };
    format!("{keyword} {name}")
}

fn facts() -> Vec<Fact> {
    let mut facts = layouts! {
        ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
            max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
            phys_port_cnt,
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2,
        }
        ibv_context_ops {
            _before_poll_cq = _compat_query_device, "_compat_query_device",
            poll_cq,
            req_notify_cq,
            _before_post_send = _compat_cq_event, "_compat_cq_event",
            post_send,
            post_recv,
            _after_post_recv = _compat_create_ah, "_compat_create_ah",
        }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        ibv_pd { context, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed,
        }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed,
        }
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len,
            imm_data = imm_data_invalidated_rkey_union, "imm_data",
            qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits,
        }
        ibv_sge { addr, length, lkey }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags,
            imm_data = imm_data_invalidated_rkey_union, "imm_data",
            wr,
            qp_type_xrc_remote_srqn = qp_type, "qp_type.xrc.remote_srqn",
            _bind_mw_or_tso = bind_mw_tso_union, "bind_mw",
        }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_gid { raw }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit,
        }
    };
    // The members of a union inside ibv_send_wr, which have no name in C.
    let wr = |field| {
        format!("offsetof(struct ibv_send_wr, wr.{field}) - offsetof(struct ibv_send_wr, wr)")
    };
    facts.push(Fact {
        what: "offset of ibv_send_wr.wr.rdma.remote_addr".to_owned(),
        c: wr("rdma.remote_addr"),
        ours: offset_of!(sys::ibv_send_wr_rdma, remote_addr),
        theirs: offset_of!(rdma_sys::rdma_t, remote_addr),
    });
    facts.push(Fact {
        what: "offset of ibv_send_wr.wr.rdma.rkey".to_owned(),
        c: wr("rdma.rkey"),
        ours: offset_of!(sys::ibv_send_wr_rdma, rkey),
        theirs: offset_of!(rdma_sys::rdma_t, rkey),
    });
    facts.push(Fact {
        what: "size of ibv_send_wr.wr".to_owned(),
        c: "sizeof(((struct ibv_send_wr *)0)->wr)".to_owned(),
        ours: size_of::<sys::ibv_send_wr_kind>(),
        theirs: size_of::<rdma_sys::wr_t>(),
    });
    facts.extend(facts_of_cm());
    facts.push(Fact {
        what: "IBV_SYSFS_NAME_MAX".to_owned(),
        c: "IBV_SYSFS_NAME_MAX".to_owned(),
        ours: sys::IBV_SYSFS_NAME_MAX,
        theirs: 64,
    });
    facts.push(Fact {
        what: "IBV_SYSFS_PATH_MAX".to_owned(),
        c: "IBV_SYSFS_PATH_MAX".to_owned(),
        ours: sys::IBV_SYSFS_PATH_MAX,
        theirs: 256,
    });
    facts
}

/// librdmacm: of two structures only the first fields are declared.
fn facts_of_cm() -> Vec<Fact> {
    macro_rules! offsets {
        ($($type:ident { $($field:ident),* })*) => {
            vec![$($(Fact {
                what: format!("offset of {}.{}", stringify!($type), stringify!($field)),
                c: format!("offsetof(struct {}, {})", stringify!($type), stringify!($field)),
                ours: offset_of!(cm::$type, $field),
                theirs: offset_of!(rdma_sys::$type, $field),
            },)*)*]
        };
    }
    let mut facts = offsets! {
        rdma_event_channel { fd }
        rdma_cm_id { verbs, channel, context, qp }
        rdma_cm_event { id, listen_id, event, status }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num
        }
    };
    facts.push(Fact {
        what: "size of rdma_conn_param".to_owned(),
        c: "sizeof(struct rdma_conn_param)".to_owned(),
        ours: size_of::<cm::rdma_conn_param>(),
        theirs: size_of::<rdma_sys::rdma_conn_param>(),
    });
    facts
}

#[test]
fn every_structure_is_as_rdma_sys_has_it() {
    let wrong: Vec<String> = facts()
        .into_iter()
        .filter(|fact| fact.ours != fact.theirs)
        .map(|fact| {
            format!(
                "{}: {} here, {} in rdma-sys",
                fact.what, fact.ours, fact.theirs
            )
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Constants of rdma-sys by name: enumerations in modules, and bit sets as structures.
macro_rules! constants {
    (
        modules { $($module:ident { $($value:ident)* })* }
        bits { $($set:ident { $($bit:ident)* })* }
        plain { $($plain:ident)* }
    ) => {
        HashMap::from([
            $($((stringify!($value), i64::from(rdma_sys::$module::$value)),)*)*
            $($((stringify!($bit), i64::from(rdma_sys::$set::$bit.0)),)*)*
            $((stringify!($plain), i64::from(rdma_sys::$plain)),)*
        ])
    };
}

fn constants_of_rdma_sys() -> HashMap<&'static str, i64> {
    constants! {
        modules {
            ibv_transport_type {
                IBV_TRANSPORT_UNKNOWN IBV_TRANSPORT_IB IBV_TRANSPORT_IWARP IBV_TRANSPORT_USNIC
                IBV_TRANSPORT_USNIC_UDP IBV_TRANSPORT_UNSPECIFIED
            }
            ibv_node_type { IBV_NODE_CA IBV_NODE_RNIC }
            ibv_port_state {
                IBV_PORT_NOP IBV_PORT_DOWN IBV_PORT_INIT IBV_PORT_ARMED IBV_PORT_ACTIVE IBV_PORT_ACTIVE_DEFER
            }
            ibv_mtu { IBV_MTU_256 IBV_MTU_512 IBV_MTU_1024 IBV_MTU_2048 IBV_MTU_4096 }
            ibv_qp_type { IBV_QPT_RC }
            ibv_qp_state { IBV_QPS_RESET IBV_QPS_INIT IBV_QPS_RTR IBV_QPS_RTS IBV_QPS_ERR }
            ibv_wr_opcode { IBV_WR_RDMA_WRITE IBV_WR_RDMA_READ }
            ibv_wc_opcode { IBV_WC_RDMA_WRITE IBV_WC_RDMA_READ }
            ibv_wc_status {
                IBV_WC_SUCCESS IBV_WC_LOC_LEN_ERR IBV_WC_LOC_QP_OP_ERR IBV_WC_LOC_EEC_OP_ERR IBV_WC_LOC_PROT_ERR
                IBV_WC_WR_FLUSH_ERR IBV_WC_MW_BIND_ERR IBV_WC_BAD_RESP_ERR IBV_WC_LOC_ACCESS_ERR
                IBV_WC_REM_INV_REQ_ERR IBV_WC_REM_ACCESS_ERR IBV_WC_REM_OP_ERR IBV_WC_RETRY_EXC_ERR
                IBV_WC_RNR_RETRY_EXC_ERR IBV_WC_LOC_RDD_VIOL_ERR IBV_WC_REM_INV_RD_REQ_ERR IBV_WC_REM_ABORT_ERR
                IBV_WC_INV_EECN_ERR IBV_WC_INV_EEC_STATE_ERR IBV_WC_FATAL_ERR IBV_WC_RESP_TIMEOUT_ERR
                IBV_WC_GENERAL_ERR
            }
        }
        bits {
            ibv_access_flags {
                IBV_ACCESS_LOCAL_WRITE IBV_ACCESS_REMOTE_WRITE IBV_ACCESS_REMOTE_READ IBV_ACCESS_REMOTE_ATOMIC
                IBV_ACCESS_RELAXED_ORDERING
            }
            ibv_qp_attr_mask {
                IBV_QP_STATE IBV_QP_ACCESS_FLAGS IBV_QP_PKEY_INDEX IBV_QP_PORT IBV_QP_AV IBV_QP_PATH_MTU
                IBV_QP_TIMEOUT IBV_QP_RETRY_CNT IBV_QP_RNR_RETRY IBV_QP_RQ_PSN IBV_QP_MAX_QP_RD_ATOMIC
                IBV_QP_MIN_RNR_TIMER IBV_QP_SQ_PSN IBV_QP_MAX_DEST_RD_ATOMIC IBV_QP_DEST_QPN
            }
            ibv_send_flags { IBV_SEND_SIGNALED }
        }
        plain { IBV_FORK_DISABLED IBV_FORK_ENABLED IBV_FORK_UNNEEDED }
    }
}

#[test]
fn every_constant_is_as_rdma_sys_has_it() {
    let theirs = constants_of_rdma_sys();
    for (group, name, ours) in consts::ALL {
        // An enumeration without a name, which rdma-sys leaves out: the C compiler knows it.
        if *group == "link_layer" {
            continue;
        }
        assert_eq!(theirs.get(name), Some(ours), "{name}");
    }
}

/// Assertions for a C compiler: it fails where one is false, and says which.
fn c_program() -> String {
    let mut program = String::from(
        "#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n",
    );
    for Fact { what, c, ours, .. } in facts() {
        writeln!(
            program,
            "_Static_assert(({c}) == {ours}, \"{what} is not {ours}\");"
        )
        .unwrap();
    }
    for (_, name, value) in consts::ALL {
        writeln!(
            program,
            "_Static_assert((long long)({name}) == {value}LL, \"{name} is not {value}\");"
        )
        .unwrap();
    }
    let events = (0i64..).zip(cm::EVENT_NAMES);
    let numbered = [
        (
            "RDMA_CM_EVENT_ADDR_RESOLVED",
            cm::RDMA_CM_EVENT_ADDR_RESOLVED,
        ),
        (
            "RDMA_CM_EVENT_ROUTE_RESOLVED",
            cm::RDMA_CM_EVENT_ROUTE_RESOLVED,
        ),
        (
            "RDMA_CM_EVENT_CONNECT_REQUEST",
            cm::RDMA_CM_EVENT_CONNECT_REQUEST,
        ),
        ("RDMA_CM_EVENT_ESTABLISHED", cm::RDMA_CM_EVENT_ESTABLISHED),
        ("RDMA_PS_TCP", cm::RDMA_PS_TCP),
    ];
    let numbered = numbered.map(|(name, value)| (i64::from(value), name));
    for (value, name) in events.chain(numbered) {
        writeln!(
            program,
            "_Static_assert({name} == {value}, \"{name} is not {value}\");"
        )
        .unwrap();
    }
    let optional = consts::IBV_ACCESS_OPTIONAL_RANGE;
    writeln!(
        program,
        "_Static_assert(IBV_ACCESS_OPTIONAL_RANGE == {optional}, \"IBV_ACCESS_OPTIONAL_RANGE is not {optional}\");"
    )
    .unwrap();
    program
}

fn compiler() -> String {
    std::env::var("CC")
        .ok()
        .into_iter()
        .chain(["cc", "clang-14", "clang", "gcc"].map(str::to_owned))
        .find(|name| Command::new(name).arg("--version").output().is_ok())
        .expect("a C compiler")
}

#[test]
fn a_c_compiler_agrees_with_every_number() {
    let program = c_program();
    let count = program.matches("_Static_assert").count();
    assert!(count > 250, "{count}");
    let mut child = Command::new(compiler())
        .args(["-x", "c", "-std=gnu11", "-fsyntax-only", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(program.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The feature fills the same table from the linker, and it is the system's library.
#[test]
fn the_linked_table_answers_as_the_loaded_one() {
    use hugemr_verbs::{Library, LibrarySource, OpenOptions, list};
    let linked = Library::load(&LibrarySource::Default).unwrap();
    assert_eq!(linked.path(), None);
    let loaded = OpenOptions::with_library("libibverbs.so.1");
    assert_eq!(list(&OpenOptions::default()), list(&loaded));
}
