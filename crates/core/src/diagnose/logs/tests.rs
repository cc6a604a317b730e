//! Lines as they stand in public reports (shortened; the report is named), and anything else.

use proptest::prelude::*;

use super::*;
use crate::diagnose::{Cause, Diagnosis, Operation, Standing, diagnose};
use crate::errno::Errno;
use crate::fact::Limit;
use crate::size::PageSize;

fn read(lines: &str) -> Log {
    let mut log = Log::default();
    lines.lines().for_each(|line| log.read(line));
    log
}

/// The first failure of a log, and its diagnosis on a family (or the one that the log names).
#[track_caller]
fn first(lines: &str, family: Option<Family>) -> (Failure, Diagnosis) {
    let mut failure = read(lines)
        .failures()
        .into_iter()
        .next()
        .expect("a failure");
    failure.evidence.family = family.or(failure.evidence.family);
    let diagnosis = diagnose(&failure.evidence);
    (failure, diagnosis)
}

#[track_caller]
fn stands(diagnosis: &Diagnosis, cause: Cause, standing: Standing) {
    let ranked = diagnosis
        .of(cause)
        .unwrap_or_else(|| panic!("{cause}: {diagnosis:#?}"));
    assert_eq!(ranked.standing, standing, "{diagnosis:#?}");
}

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

#[test]
fn what_is_not_understood_stays_so() {
    let noise = "GET /healthz 200\n\u{fffd}\u{0}\u{7f}PNG\nUCX INFO version 1.13\n[ERROR] disk full: No space left on device";
    let log = read(noise);
    assert_eq!(log.counts(), (4, 0, 0));
    assert!(log.failures().is_empty());
    let long = format!(
        "{} ibv_reg_mr failed: Bad address",
        "x".repeat(LONGEST_LINE)
    );
    assert_eq!(scan(&long), None, "beyond the part that is read");
}

#[test]
fn the_kept_amount_is_bounded() {
    let mut log = Log::default();
    for i in 0..10_000u64 {
        log.read(&format!(
            "ibv_reg_mr({:#x}, length={}) failed: errno {} on erdma_{i}",
            i << 20,
            i + 1,
            i % 133 + 1
        ));
        log.read(&format!("ibv_dereg_mr failed: errno {}", i % 133 + 1));
    }
    assert_eq!(log.failures.len(), MOST_FAILURES);
    assert!(log.ranges.len() <= MOST_RANGES && log.families.len() <= Family::ALL.len());
    assert!(log.counts().2 > 0);
}

/// Pieces that the scanners look for, in any order, and any text between.
fn scrambled() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "ibv_reg_mr(",
            "ibv_reg_mr failed: ",
            "Unable to register memory 0x7f724fa00000 length ",
            "failed: ",
            "Bad address",
            "[",
            "0x",
            "0x7f724fa00000",
            "length=",
            "..",
            "errno ",
            "-12",
            ")",
            "Out of mr size:",
            "max ",
            "page_size:",
            "mtt_nents:",
            "UCX ",
            "mem_type bit ",
            "(current",
            "ulimit -l",
            "create_mtt, size:",
            "force cont:0",
            "failed to deregister MR 0x",
            ":",
            "erdma_0",
            "é",
            "ǅ",
            "İ",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
        any::<u64>().prop_map(|n| n.to_string()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_line_is_read_without_harm(lines in prop::collection::vec(scrambled(), 0..8)) {
        let mut log = Log::default();
        for line in &lines {
            if let Some(found) = scan(line) {
                prop_assert_eq!(found.evidence.failed == Some(true), found.is_failure);
            }
            log.read(line);
        }
        for failure in log.failures() {
            prop_assert!((1..=lines.len() as u64).contains(&failure.line));
            let _ = diagnose(&failure.evidence);
        }
    }
}

/// Failures of one kind are one; the longest of them speaks, with its own line.
#[test]
fn the_longest_range_speaks_for_its_kind() {
    let log = "app: ibv_reg_mr failed: Input/output error
[1.1] [node:1:0] ib_md.c:349  UCX  ERROR ibv_reg_mr(address=0x7f724fa00000, length=68719476736, access=0xf) failed: Input/output error
[1.2] [node:1:0] ib_md.c:349  UCX  ERROR ibv_reg_mr(address=0x7f824fa00000, length=4096, access=0xf) failed: Input/output error";
    let failures = read(log).failures();
    let [failure] = failures.as_slice() else {
        panic!("{failures:?}")
    };
    assert_eq!((failure.line, failure.count), (2, 3));
    assert_eq!(failure.evidence.length, Some(64 << 30));
    assert_eq!(failure.evidence.addr, Some(0x7f72_4fa0_0000));
}

/// Two programs in one log: the provider of one is not the device of the other.
#[test]
fn the_provider_of_libfabric_is_its_own() {
    let log = "libfabric:15409:1705531788::efa:mr:efa_mr_reg_impl():850<warn> Unable to register MR: Cannot allocate memory
[1.1] [node:1:0] ib_md.c:349  UCX  ERROR ibv_reg_mr(address=0x7f724fa00000, length=68719476736, access=0xf) failed: Input/output error";
    let families: Vec<_> = read(log)
        .failures()
        .iter()
        .map(|f| (f.evidence.errno, f.evidence.family))
        .collect();
    assert_eq!(
        families,
        [
            (Some(Errno::ENOMEM), Some(Family::Efa)),
            (Some(Errno::EIO), None)
        ]
    );
}

/// What mlx5 prints for each status of its firmware (`cmd_status_str`, `cmd_status_to_err`), with and without an errno.
#[test]
fn a_refusal_of_mlx5_by_its_status() {
    for (status, errno, shortage) in [
        ("internal error(0x1)", Some(Errno::EIO), false),
        ("bad parameter(0x3)", Some(Errno::EINVAL), false),
        ("bad system state(0x4)", Some(Errno::EIO), false),
        ("resource busy(0x6)", Some(Errno::EBUSY), false),
        ("limits exceeded(0x8)", Some(Errno::ENOMEM), true),
        ("no resources(0xf)", Some(Errno::EAGAIN), true),
        ("unknown status(0x77)", None, false),
    ] {
        let line = format!(
            "mlx5_cmd_check:810:(pid 9): CREATE_MKEY(0x200) op_mod(0x0) failed, status {status}, syndrome (0x35e6ec)"
        );
        let e = scan(&line).expect("found").evidence;
        assert_eq!((e.errno, e.family), (errno, Some(Family::Other)), "{line}");
        assert_eq!(e.said_device_refused, Some(true), "{line}");
        assert_eq!(e.said_keys_exhausted, shortage.then_some(true), "{line}");
        assert_eq!(e.said_no_shortage, (!shortage).then_some(true), "{line}");
    }
    assert_eq!(
        scan(
            "mlx5_cmd_check:810:(pid 9): CREATE_QP(0x500) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x1)"
        ),
        None,
        "no registration"
    );
}

/// A refusal belongs to failures with its errno; another failure's host part is not cleared by it.
#[test]
fn a_refusal_with_another_errno_is_another_failure() {
    let log = "mlx5_cmd_check:810:(pid 9): CREATE_MKEY(0x200) op_mod(0x0) failed, status bad parameter(0x3), syndrome (0x1)
app: ibv_reg_mr on mlx5_0 failed: Bad address
app: ibv_reg_mr on mlx5_0 failed: Invalid argument";
    let failures = read(log).failures();
    let [refused, fault] = failures.as_slice() else {
        panic!("{failures:?}")
    };
    assert_eq!(
        (refused.count, refused.evidence.errno),
        (2, Some(Errno::EINVAL))
    );
    assert_eq!(refused.evidence.said_no_shortage, Some(true));
    assert_eq!(fault.evidence.said_device_refused, None);
    stands(
        &diagnose(&fault.evidence),
        Cause::Unmapped,
        Standing::Possible,
    );
}

/// The kernel's lines on a failed pin, and the program's, are one failure.
#[test]
fn a_failed_pin_is_joined_to_its_errno() {
    // pmem/issues#868.
    let log = "registering memory: Unknown error -95
[82047.691004] ib_umem_get: failed to get user pages, nr_pages=512, flags=1
[82047.691057] mlx5_1:mr_umem_get:766:(pid 63518): umem get failed (-95)";
    let failures = read(log).failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!((failures[0].line, failures[0].count), (1, 2));
    let (_, diagnosis) = first(log, None);
    assert_eq!(
        diagnosis.first().map(|r| (r.cause, r.standing)),
        Some((Cause::FileBacked, Standing::Likely))
    );
    // A pin that failed long before is another one's.
    let far = log.replacen(
        "flags=1\n",
        &format!("flags=1\n{}", "noise 1\n".repeat(9)),
        1,
    );
    assert_eq!(first(&far, None).0.evidence.said_pin_failed, None);
}

/// Whose memory it is may stand on a line of its own, before the failure that comes next.
#[test]
fn gpu_memory_on_a_line_of_its_own() {
    let nearby = |log: &str| first(log, None).0.evidence.said_gpu_nearby;
    let failure = "app: ibv_reg_mr failed: Bad address (errno 14)";
    for told in [
        "app: memory is CUDA, device 0",
        "app: registering GPU memory at 0x7fd9d2800000",
        // microsoft/mscclpp#657
        "[IbMr] cudaPointerGetAttributes err=0 memoryType=2 device=4",
        "[IbMr] Registering memory region at 0x7fd9d2800000 with size 2097152\n[IbMr] cudaPointerGetAttributes err=0 memoryType=2 device=4\nterminate called",
    ] {
        assert_eq!(nearby(&format!("{told}\n{failure}")), Some(true), "{told}");
        let (_, diagnosis) = first(&format!("{told}\n{failure}"), None);
        assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::GpuPointer));
    }
    for told in [
        "app: 80 GiB of GPU memory free",
        "[IbMr] cudaPointerGetAttributes err=0 memoryType=1 device=4",
        "app: memory is CUDA, device 0\napp: registering memory at 0x7fd9d2800000",
    ] {
        assert_eq!(nearby(&format!("{told}\n{failure}")), None, "{told}");
    }
    let gpu = "app: memory is CUDA, device 0\n";
    let far = format!("{gpu}{}{failure}", "noise 1\n".repeat(9));
    assert_eq!(nearby(&far), None);
    // Only the failure that comes next.
    let two = format!("{gpu}ibv_reg_mr failed: Invalid argument\n{failure}");
    let hints: Vec<_> = read(&two)
        .failures()
        .iter()
        .map(|f| (f.evidence.errno, f.evidence.said_gpu_nearby))
        .collect();
    assert_eq!(
        hints,
        [
            (Some(Errno::EINVAL), Some(true)),
            (Some(Errno::EFAULT), None)
        ]
    );
}

/// A record of several lines is one: `{:?}` of a Rust error (datenlord/async-rdma#107).
#[test]
fn a_record_goes_on_in_indented_lines() {
    let log = "ERROR memory_region: ibv_reg_mr err, arguments:
 addr:0x7ff449400000,
 len:2097152,
, err info:Os { code: 12, kind: OutOfMemory, message: \"Cannot allocate memory\" }
ERROR mr_allocator: register_extent_mr failed";
    let (failure, _) = first(log, None);
    assert_eq!(
        (failure.line, failure.evidence.errno),
        (1, Some(Errno::ENOMEM))
    );
    assert_eq!(failure.evidence.length, Some(2 << 20));
    assert_eq!(failure.evidence.addr, Some(0x7ff4_4940_0000));
    // The next record is not its end, however deep the log as a whole is indented.
    for log in [
        "ibv_reg_mr failed:\nopen failed: Bad address",
        "    ibv_reg_mr failed:\n    open failed: Bad address",
        "ibv_reg_mr failed:\nnext 1\n  open failed: Bad address",
    ] {
        assert_eq!(first(log, None).0.evidence.errno, None, "{log}");
    }
    assert_eq!(read("ibv_reg_mr failed:\n  at a.c:1").counts(), (2, 1, 0));
}

#[test]
fn what_is_no_errno() {
    for line in [
        // -1 says that a call failed.
        "ibv_reg_mr failed, ret -1",
        "ibv_reg_mr failed: rc=-1",
        // A text inside of other words.
        "ibv_reg_mr failed for bad address book 1",
        // libfabric without verbs (mercury-hpc/mercury#386 was on such a provider).
        "libfabric:41405:1705531788::gni:mr:gnix_mr_reg():12<warn> fi_mr_reg failed: Input/output error",
    ] {
        let found = scan(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(found.evidence.errno, None, "{line}");
    }
    // Words alone are no line of a log.
    assert_eq!(scan("to register memory can fail with bad address"), None);
    let ended = scan("The error code returned to rxm_mr_regv() ends up being -95.");
    assert_eq!(
        ended.and_then(|found| found.evidence.errno),
        Some(Errno::EOPNOTSUPP)
    );
    let named = |line: &str| scan(line).expect("found").evidence.errno_of_libfabric;
    assert_eq!(named("na_ofi.c: fi_mr_reg() failed, rc: -5"), Some(true));
    assert_eq!(
        named("NCCL WARN NET/OFI Unable to register memory (type = 2). RC: -22"),
        Some(true)
    );
    assert_eq!(
        named("libfabric:1:2::verbs:mr:fi_mr_reg failed: Bad address"),
        None
    );
    assert_eq!(named("ibv_reg_mr failed: Bad address"), None);
}

/// UCX calls all memory of the CPU host memory, mappings of files among it (openucx/ucx#4924).
#[test]
fn host_memory_of_ucx_may_be_a_file() {
    for line in [
        "ucp_mm.c:70   UCX  DIAG    failed to register address 0x556b67818ff0 (host) length 70480 on md[4]=mlx5_1: x",
        "ucp_mm.c:137  UCX  ERROR failed to register address 0x7fb7c609e000 mem_type bit 0x1 length 2630912 on md[2]=mlx5_0: x",
    ] {
        let log = format!(
            "{line}\nibv_reg_mr(address={}, length=4096) failed: Bad address",
            &line[line.find("0x").unwrap()..][..14]
        );
        let (failure, diagnosis) = first(&log, None);
        assert_eq!(failure.evidence.memory, Some(MemoryKind::NotGpu));
        stands(&diagnosis, Cause::GpuPointer, Standing::RuledOut);
        stands(&diagnosis, Cause::FileBacked, Standing::Possible);
    }
    let kind = |n| {
        scan(&format!(
            "NCCL WARN NET/OFI Unable to register memory (type = {n}) for device 4. RC: -22"
        ))
        .and_then(|f| f.evidence.memory)
    };
    assert_eq!(
        (kind(1), kind(2), kind(4)),
        (Some(MemoryKind::NotGpu), Some(MemoryKind::Gpu), None)
    );
}

/// A failure is in one of the lists, or counted: also where the errno is told in a language that is not known.
#[test]
fn failures_without_a_readable_errno_are_not_lost() {
    let log = read(
        "ibv_reg_mr failed: Erreur inconnue\nibv_reg_mr failed: Input/output error\nibv_reg_mr failed: Zu viele",
    );
    let failures = log.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!((failures[0].line, failures[0].count), (2, 1));
    let without = WithoutErrno {
        count: 2,
        lines: vec![1, 3],
    };
    assert_eq!(log.without_errno(), without);
    // Those of another operation, and all of them where none has an errno, are in the list itself.
    let log = read("ibv_reg_mr failed: Zu viele\nibv_dereg_mr failed: Input/output error");
    assert_eq!(log.failures().len(), 2);
    assert_eq!(log.without_errno(), WithoutErrno::default());
    // The lines are bounded, the count is not.
    let mut many = Log::default();
    many.read("ibv_reg_mr failed: Input/output error");
    for _ in 0..1000 {
        many.read("ibv_reg_mr failed: Zu viele");
    }
    let without = many.without_errno();
    assert_eq!((without.count, without.lines.len()), (1000, MOST_LINES));
}

proptest! {
    /// Each line that tells something is counted once.
    #[test]
    fn the_counts_add_up(lines in prop::collection::vec(prop::sample::select(vec![
        "ibv_reg_mr failed: Zu viele",
        "ibv_reg_mr failed: Input/output error",
        "ibv_reg_mr failed: Bad address",
        "mlx5_0: ibv_reg_mr failed: Zu viele",
        "  length 4096, errno 12",
        "ibv_dereg_mr failed: Zu viele",
        "RDMA device: erdma_0, LID: 1",
        "Couldn't load driver 'erdma'",
        "nothing",
    ]), 0..20)) {
        let log = read(&lines.join("\n"));
        let (_, understood, dropped) = log.counts();
        let kept: u64 = log.failures().iter().map(|f| f.count).sum();
        prop_assert_eq!(understood, log.facts() + kept + log.without_errno().count + dropped);
    }
}

#[test]
fn a_success_is_no_failure_of_the_registration() {
    for line in [
        "ibv_reg_mr succeeded; later the socket had: Input/output error",
        "register memory 0x7f0000000000 ok, then connect failed: Input/output error",
        "ibv_reg_mr was successful, unable to connect: Bad address",
    ] {
        assert_eq!(scan(line), None, "{line}");
    }
    for line in [
        "ibv_reg_mr did not succeed: Input/output error",
        "ibv_reg_mr was not successful: Input/output error",
        "ibv_reg_mr unsuccessful: Input/output error",
        "register memory: success=0 Input/output error",
        "failed to register memory (it was a success before): Input/output error",
        "ibv_reg_mr on broker:ok_1 failed: Input/output error",
    ] {
        let found = scan(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(found.evidence.errno, Some(Errno::EIO), "{line}");
    }
}

#[test]
fn a_process_killed_for_memory_speaks_for_the_host() {
    let fails = "ibv_reg_mr failed: Cannot allocate memory";
    for kill in [
        "kernel: Out of memory: Killed process 123 (python3) total-vm:1kB",
        "kernel: Memory cgroup out of memory: Killed process 123 (python3)",
        "kernel: python3 invoked oom-killer: gfp_mask=0x1",
        "kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null)",
    ] {
        for log in [format!("{kill}\n{fails}"), format!("{fails}\n{kill}")] {
            let (failure, diagnosis) = first(&log, Some(Family::Erdma));
            assert_eq!(failure.evidence.said_out_of_memory, Some(true), "{log}");
            let first = diagnosis.first().expect("a cause");
            assert_eq!(first.cause, Cause::HostMemory, "{diagnosis:#?}");
            assert!(!diagnosis.undecided());
        }
        let far = "x\n".repeat(20);
        for log in [
            format!("{kill}\n{far}{fails}"),
            format!("{fails}\n{far}{kill}"),
        ] {
            let (failure, _) = first(&log, Some(Family::Erdma));
            assert_eq!(failure.evidence.said_out_of_memory, None, "{log}");
        }
    }
}

/// A fact that stands beside a failure, in one line, hides it not, and counts for it.
#[test]
fn facts_of_one_line_all_count() {
    let fails = "ibv_reg_mr failed: Input/output error";
    for (fact, told) in [
        ("erdma_0: cmdq timeout", Cause::CommandTimeout),
        ("out of memory: killed process 7 (x)", Cause::HostMemory),
    ] {
        for line in [format!("{fact}, {fails}"), format!("{fails} ({fact})")] {
            let found = scan(&line).unwrap_or_else(|| panic!("{line}"));
            assert!(found.is_failure, "{line}");
            let e = &found.evidence;
            assert_eq!(e.errno, Some(Errno::EIO), "{line}");
            let timeout = told == Cause::CommandTimeout;
            assert_eq!(e.said_command_timeout, timeout.then_some(true), "{line}");
            assert_eq!(e.said_out_of_memory, (!timeout).then_some(true), "{line}");
        }
    }
    let two = scan("erdma_0: cmdq timeout; Out of memory: Killed process 7 (x)").expect("facts");
    assert_eq!(two.evidence.said_command_timeout, Some(true));
    assert_eq!(two.evidence.said_out_of_memory, Some(true));
    let entries = "page_size:4096, page_offset:0, mtt_nents:1192816";
    let found = scan(&format!("erdma_0: {entries}; {fails}")).expect("a failure");
    assert_eq!(found.evidence.entries_need, Some(1_192_816));
}

/// A record that carries its context in one line is read wherever in it the error stands.
#[test]
fn a_long_line_is_read_to_its_end() {
    let fails = "ibv_reg_mr(length=4885774336) failed: Bad address [14]";
    for before in (0..3 * line::WINDOW).step_by(61) {
        let line = format!(
            "{{\"dev\":\"erdma_0\",\"x\":\"{}\",\"m\":\"{fails}\"}}",
            "y ".repeat(before)
        );
        let e = scan(&line).unwrap_or_else(|| panic!("{before}")).evidence;
        assert_eq!(
            (e.errno, e.length),
            (Some(Errno::EFAULT), Some(4_885_774_336)),
            "{before}"
        );
        assert_eq!(
            e.device.is_some(),
            e.family == Some(Family::Erdma),
            "{before}"
        );
    }
    let ends = format!("{}{fails}", " ".repeat(LONGEST_LINE - fails.len()));
    let log = read(&format!("{ends}\n {ends}\n"));
    assert_eq!(log.cut(), (1, &[2][..]));
    assert_eq!(log.counts(), (2, 2, 0));
}

/// Words of other programs, with an errno's text behind.
#[test]
fn what_others_say_is_no_registration() {
    for line in [
        "mysqld: cannot register memory instrument: No space left on device",
        "nginx[12]: failed to register memory zone: Cannot allocate memory",
        "[nginx] ngx_slab_alloc() failed: no memory in zone: Cannot allocate memory (12)",
        "nfsd: failed to register memory cache: Input/output error",
        "NFS: server error: Input/output error (5)",
        "blk_update_request: I/O error, dev sda, sector 12: Input/output error",
        "postgres: could not register memory segment: No space left on device",
        "FATAL: could not map anonymous shared memory: Cannot allocate memory",
        "OpenJDK: os::commit_memory(0x7f00, 65536, 0) failed; error='Cannot allocate memory' (errno=12)",
        "qemu-system-x86_64: cannot set up guest memory region 'pc.ram': Cannot allocate memory",
        "qemu: kvm_set_user_memory_region: failed to register memory region: Invalid argument",
        "NVRM: GPU0 failed to register memory buffer: Input/output error",
        "cudaHostRegister: error, failed to register memory: Cannot allocate memory",
        "systemd[1]: Failed to register address book: Input/output error",
        "apache2: couldn't open config directory: Permission denied",
        "acpi: memory registration failed: Invalid argument",
        "ibv_reg_mr did not fail: Input/output error",
        "ibv_reg_mr didn't fail: Input/output error",
        "ibv_reg_mr never failed: Input/output error",
        "ERROR: ibv_reg_mr has not failed: Bad address",
        "never failed to register memory 0x7f0000000000: Input/output error",
        "ibv_reg_mr cannot fail: Input/output error",
        "ibv_reg_mr: 0 errors, last: Input/output error",
        "ibv_reg_mr might fail: Input/output error",
    ] {
        assert_eq!(scan(line), None, "{line}");
    }
    for line in [
        "failed to register memory: Input/output error",
        "mlx5_0: cannot register memory: Input/output error",
        "[error] could not register MR: Input/output error",
        "not understood: ibv_reg_mr failed: Input/output error",
        "no retry; failed to register memory 0x7f0000000000: Input/output error",
        "rank 0 failed to register MR: Input/output error",
    ] {
        let found = scan(line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(found.evidence.errno, Some(Errno::EIO), "{line}");
    }
}
