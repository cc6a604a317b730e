//! Lines that belong together, and lines that do not.

use super::*;

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
