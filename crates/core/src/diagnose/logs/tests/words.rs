//! What one line says: a failure or none, and which errno.

use super::*;

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
        is_failure(line, None);
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
        is_failure(line, Some(Errno::EIO));
    }
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
        is_failure(line, Some(Errno::EIO));
    }
}

/// An errno right behind the name of a call, as perror prints it, is a failure without another word; so is what the kernel calls
/// the verb, and what NCCL calls its transport.
#[test]
fn a_failure_in_few_words() {
    for (line, errno) in [
        ("ibv_reg_mr: EIO", 5),
        ("ibv_reg_mr: Bad address", 14),
        ("ibv_reg_mr (write): Bad address", 14),
        ("ibv_reg_mr: Invalid argument", 22),
        ("ibv_reg_mr(): Cannot allocate memory, retry succeeded", 12),
        (
            "perftest: ibv_reg_mr_iova2(pd, 0x7f00, 4096): ENOMEM (12)",
            12,
        ),
        ("fi_mr_reg: Resource temporarily unavailable on mlx5_0", 11),
        ("mlx5_0: reg_user_mr failed: ret -12", 12),
        // Linux drivers/infiniband/sw/rxe/rxe_verbs.c, a debug line.
        (
            "rxe0: mr#5 rxe_reg_user_mr: reg_user_mr failed, err = -12",
            12,
        ),
        ("NET/IB : Unable to register memory: Bad address", 14),
        (
            "host:1:2 [0] NET/IB : Unable to register memory: Bad address",
            14,
        ),
    ] {
        is_failure(line, Some(Errno(errno)));
    }
    for line in [
        "ibv_reg_mr: EIO means that the table is full",
        "ibv_reg_mr: bad address book",
        "ibv_reg_mr: 0x7f0000000000, EIO",
        "ibv_reg_mr: enodes",
        "ibv_dealloc_pd: EBUSY",
        "acpi_0: memory registration: Invalid argument",
        "register_instrument: register memory: instrument: EIO",
    ] {
        assert_eq!(scan(line), None, "{line}");
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
