//! What others have published: a program or a driver, and what its lines mean.

use super::*;
use crate::diagnose::Operation;
use crate::fact::Limit;
use crate::size::PageSize;

#[test]
fn mooncake_on_erdma() {
    // kvcache-ai/Mooncake#1754: the errno comes without a length, the lengths without an errno, from other threads.
    let log = "I0326 14:21:37.463763 14940 transfer_metadata_dump.cpp:51] Failed to get segment descriptor for segment 10.53.4.57:16155 address 0x7f46080e8000--0x7f46080f0000
E0326 14:23:05.675921 18944 rdma_context.cpp:265] Failed to register memory 0x7f105035d000: Input/output error [5]
W0326 14:23:05.734648 1307 rdma_transport.cpp:400] RdmaTransport: Failed to register memory: addr 0x7f4cfa000000 length 4885774336
E0326 14:23:06.526178 18039 rdma_transport.cpp:529] Memory region not registered by any active device(s): 0x7f3e26088000";
    let (failure, diagnosis) = first(log, Some(Family::Erdma));
    assert_eq!(
        (failure.line, failure.count, failure.teller),
        (2, 1, Teller::Mooncake)
    );
    assert_eq!(failure.evidence.errno, Some(Errno::EIO));
    assert_eq!(failure.evidence.pid, None, "a thread id is no pid");
    assert_eq!(failure.evidence.length, None, "another address");
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::TableFull));
    stands(&diagnosis, Cause::TableFull, Standing::Possible);
    stands(&diagnosis, Cause::MaxMrSize, Standing::RuledOut);
    assert_eq!(read(log).failures().len(), 1);
    assert_eq!(read(log).counts(), (4, 2, 0));
}

#[test]
fn mooncake_elsewhere() {
    // sgl-project/sglang#6894.
    let log = "I0605 10:48:27.542429 10134 rdma_context.cpp:125] RDMA device: mlx5_0, LID: 1698, GID: (GID_Index 0) fe:80
E0605 10:48:27.885119 10136 rdma_context.cpp:203] Failed to register memory 0x7b375b400000: Invalid argument [22]
[2025-06-05 10:48:27 TP7] Mooncake memory registration failed.";
    let (failure, diagnosis) = first(log, None);
    assert_eq!(failure.evidence.family, Some(Family::Other));
    assert_eq!(failure.evidence.device.as_deref(), Some("mlx5_0"));
    assert!(
        diagnosis
            .causes
            .iter()
            .all(|r| r.standing == Standing::Possible)
    );
    // kvcache-ai/Mooncake#454: an errno that nobody here knows.
    let log = "E0605 17:54:16.878770 178707 rdma_context.cpp:198] Failed to register memory 0x7f56e6600000: Numerical result out of range [34]";
    let (failure, diagnosis) = first(log, None);
    assert_eq!(failure.evidence.errno, Some(Errno(34)));
    assert!(diagnosis.cannot_tell() && diagnosis.summary.contains("cannot tell"));
    // kvcache-ai/Mooncake#1765: keys of mlx5 used up by processes that died.
    let log = "I0000 rdma_context.cpp:1] RDMA device: mlx5_3, LID: 1\nE0000 rdma_context.cpp:265] Failed to register memory 0x7f56e6600000: Resource temporarily unavailable [11]";
    let (_, diagnosis) = first(log, None);
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::MrCount));
    stands(&diagnosis, Cause::LeakedMrs, Standing::Possible);
    // kvcache-ai/Mooncake#1207: many lines of one kind are one failure, with the length of the same address.
    let log = "E1212 12:06:27.217456   909 rdma_context.cpp:205] Failed to register memory 0x7fd3e6e00000: Bad address [14]
E1212 12:06:27.217484   915 rdma_context.cpp:205] Failed to register memory 0x7fd3e6fb0000: Bad address [14]
W1212 12:06:27.218729   205 rdma_transport.cpp:166] RdmaTransport: Failed to register memory: addr 0x7fd3e6e00000 length 294912";
    let (failure, _) = first(log, None);
    assert_eq!((failure.count, failure.evidence.length), (2, Some(294_912)));
}

#[test]
fn ucx_translates_on_its_way_up() {
    // openucx/ucx#8049.
    let log = "[1647516906.396315] [node-rtx3080:82049:0]           ib_md.c:349  UCX  ERROR ibv_reg_mr(address=0x7f724fa00000, length=4096, access=0xf) failed: Bad address
[1647516906.396356] [node-rtx3080:82049:0]          ucp_mm.c:164  UCX  ERROR failed to register address 0x7f724fa00000 mem_type bit 0x2 length 4096 on md[5]=mlx5_0: Input/output error (md reg_mem_types 0x3)
[1647516906.396366] [node-rtx3080:82049:0]     ucp_request.c:526  UCX  ERROR failed to register user buffer datatype 0x8 address 0x7f724fa00000 len 4096: Input/output error";
    let (failure, diagnosis) = first(log, None);
    assert_eq!(read(log).failures().len(), 1);
    let e = &failure.evidence;
    assert_eq!((e.errno, e.length), (Some(Errno::EFAULT), Some(4096)));
    assert_eq!(e.access.map(|a| a.bits()), Some(0xf));
    assert_eq!(e.memory, Some(MemoryKind::Gpu), "told by the second line");
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::GpuPointer));
    // openucx/ucx#2710: only the translation is left.
    let log = "[1529871139.428305] [server:28772:0]         rcache.c:534  UCX  WARN  failed to register region 0x563b3f909550 [0x7fae34a00000..0x7fae35000000]: Input/output error";
    let (failure, diagnosis) = first(log, None);
    assert_eq!(failure.evidence.errno, None);
    assert_eq!(failure.evidence.length, Some(0x60_0000));
    assert!(diagnosis.cannot_tell());
    assert!(
        diagnosis.summary.contains("the errno is not known"),
        "{}",
        diagnosis.summary
    );
    // Other verbs of UCX are not ours, nor are successes.
    assert_eq!(
        scan(
            "rc_mlx5_common.c:735  UCX  DEBUG ibv_alloc_dm(dev=mlx5_2 length=2048) failed: Invalid argument"
        ),
        None
    );
    assert_eq!(
        scan(
            "ib_md.c:816  UCX  DEBUG registered memory 0x7f56f0f20ba0..0x7f56f12750e0 on mlx5_0 lkey 0xc0563 rkey 0xc0563 access 0xf flags 0x368"
        ),
        None
    );
}

#[test]
fn a_memlock_limit_in_the_message() {
    // The form of UCX's hint (openucx/ucx#2712).
    let log = "ib_md.c:349  UCX  ERROR ibv_reg_mr(address=0x7f724fa00000, length=16777216, access=0xf) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited' (current: 8192 kbytes)";
    let (failure, diagnosis) = first(log, None);
    assert_eq!(
        failure.evidence.memlock.as_ref().and_then(Limit::known),
        Some(8 << 20)
    );
    assert_eq!(
        diagnosis.first().map(|r| (r.cause, r.standing)),
        Some((Cause::Memlock, Standing::Likely))
    );
}

#[test]
fn nccl_and_other_programs() {
    for (line, errno, teller) in [
        // NVIDIA/nccl-tests#206, NVIDIA/nccl#1842
        (
            "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
            Errno::ENOMEM,
            Teller::Nccl,
        ),
        (
            "misc/ibvwrap.cc:182 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Invalid argument",
            Errno::EINVAL,
            Teller::Nccl,
        ),
        // pmem/rpma#1197, ut-osa/assise#26, SJTU-IPADS/librdpma#2
        (
            "Aug 13 17:14:20.751285 [145661] *ERROR* peer.c: 173: rpma_peer_mr_reg: ibv_reg_mr() failed: Invalid argument",
            Errno::EINVAL,
            Teller::Program,
        ),
        (
            "ibv_reg_mr failed [error code: 14]",
            Errno::EFAULT,
            Teller::Program,
        ),
        (
            "[handler.hh:67] register mr failed at addr: (0x7f73b1200000,2147483648) with error: Operation not supported",
            Errno::EOPNOTSUPP,
            Teller::Program,
        ),
        // ofiwg/libfabric#6437
        (
            "fi_mr_reg failed, ret is:-12, Cannot allocate memory",
            Errno::ENOMEM,
            Teller::Libfabric,
        ),
    ] {
        let found = scan(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(
            (found.evidence.errno, found.teller),
            (Some(errno), teller),
            "{line}"
        );
        assert_eq!(found.evidence.operation, Some(Operation::RegMr));
    }
    let pair = scan("register mr failed at addr: (0x7f73b1200000,2147483648) with error: Operation not supported").expect("found");
    assert_eq!(
        (pair.evidence.addr, pair.evidence.length),
        (Some(0x7f73_b120_0000), Some(1 << 31))
    );
}

#[test]
fn libfabric_on_efa() {
    // ofiwg/libfabric#9739: 96 GB of 4 KiB pages.
    let line = "libfabric:15409:1705531788::efa:mr:efa_mr_reg_impl():850<warn> Unable to register MR: Cannot allocate memory";
    let (failure, diagnosis) = first(line, None);
    assert_eq!(failure.evidence.family, Some(Family::Efa));
    assert_eq!(
        diagnosis.first().map(|r| (r.cause, r.standing)),
        Some((Cause::TableFull, Standing::Possible))
    );
    stands(&diagnosis, Cause::Memlock, Standing::Possible);
    // ofiwg/libfabric#12019: GPU memory without dmabuf.
    let line = "libfabric::efa:mr:efa_mr_reg_impl():893<warn> Unable to register MR of 11279546368 bytes: Bad address, flags 0";
    let (failure, _) = first(line, None);
    assert_eq!(
        (failure.evidence.errno, failure.evidence.length),
        (Some(Errno::EFAULT), Some(11_279_546_368))
    );
}

#[test]
fn drivers_in_the_kernel() {
    // NVIDIA/nccl#563: the device refused, so it was no limit of the host.
    let log = "[1038619.687627] infiniband efa_0: Failed to process command REG_MR (opcode 7) comp_status 1 err -12
[1038619.695161] infiniband efa_0: Failed to register mr [-12]";
    let (failure, diagnosis) = first(log, None);
    assert_eq!(
        (failure.evidence.errno, failure.evidence.family),
        (Some(Errno::ENOMEM), Some(Family::Efa))
    );
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::TableFull));
    stands(&diagnosis, Cause::Memlock, Standing::RuledOut);
    // openucx/ucx#6264.
    let line = "mlx5_core 0000:41:00.0: mlx5_cmd_out_err:800:(pid 233522): CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x18af6), err(-12)";
    let found = scan(line).expect("found");
    assert_eq!(
        (found.evidence.errno, found.evidence.said_device_refused),
        (Some(Errno::ENOMEM), Some(true))
    );
    // The other status of a firmware without keys (kvcache-ai/Mooncake#1765), which the driver turns into EAGAIN.
    let line = "mlx5_core 0000:01:00.0: mlx5_cmd_out_err:829:(pid 77): CREATE_MKEY(0x200) op_mod(0x0) failed, status no resources(0xf), syndrome (0x1), err(-11)";
    let (failure, diagnosis) = first(line, None);
    assert_eq!(failure.evidence.errno, Some(Errno::EAGAIN));
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::MrCount));
    // The vendor's driver; 65 GiB as in kvcache-ai/Mooncake#304.
    let line = "erdma 0000:00:07.0 erdma_0: ERROR: Out of mr size: 69793218560, max 68719476736";
    let (_, diagnosis) = first(line, None);
    assert_eq!(
        diagnosis.first().map(|r| (r.cause, r.standing)),
        Some((Cause::MaxMrSize, Standing::Likely))
    );
    let zero = first("erdma_0: ERROR: Out of mr size: 0, max 68719476736", None).1;
    assert_eq!(
        zero.first().map(|r| (r.cause, r.standing)),
        Some((Cause::LengthZero, Standing::Likely))
    );
    // Facts without a failure.
    let page = scan("erdma_0: page_size:4096, page_offset:0, mtt_nents:1192816").expect("found");
    assert!(!page.is_failure);
    assert_eq!(
        (page.evidence.effective_page, page.evidence.entries_need),
        (Some(PageSize::K4), Some(1_192_816))
    );
    let table = scan("erdma_0: create_mtt, size:262144, force cont:0").expect("found");
    assert_eq!(table.evidence.entries_need, Some(32_768));
    assert_eq!(
        scan("erdma_0: create_mtt, size:4096, force cont:1"),
        None,
        "a queue's buffer"
    );
    let gone = scan("erdma_0: failed to deregister MR 0x300: -19").expect("found");
    assert_eq!(
        (gone.evidence.operation, gone.evidence.errno),
        (Some(Operation::DeregMr), Some(Errno::ENODEV))
    );
}

#[test]
fn opening_and_transfers() {
    let line = "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0";
    let (_, diagnosis) = first(line, None);
    assert_eq!(
        diagnosis.first().map(|r| (r.cause, r.standing)),
        Some((Cause::MissingProvider, Standing::Likely))
    );
    let (failure, diagnosis) = first(
        "E rdma_transport: completion failed: remote access error",
        Some(Family::Erdma),
    );
    assert_eq!(failure.evidence.operation, Some(Operation::Transfer));
    stands(&diagnosis, Cause::TruncatedMr, Standing::Possible);
}
