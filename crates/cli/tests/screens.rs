//! The main answers as whole screens: `SNAPSHOTS=overwrite cargo test -p hugemr-cli --test screens` writes them anew. The fifth,
//! the doctor's, is in `tests/doctor`, where its host is; what a registration on a real device says of the kernel's page
//! sizes is in `src/render/register.rs`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use snapbox::{assert_data_eq, str};

/// Both streams and the exit status, without durations.
fn screen(line: &str, input: &str) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_hugemr"))
        .args(line.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Most commands read none and may have ended.
    let _closed = child.stdin.take().unwrap().write_all(input.as_bytes());
    let out = child.wait_with_output().unwrap();
    let mut text = String::from_utf8(out.stdout).unwrap();
    text.push_str(&String::from_utf8(out.stderr).unwrap());
    let lines = text.lines().map(without_times).map(|line| line + "\n");
    lines.collect::<String>() + &format!("(exit status {})\n", out.status.code().unwrap())
}

/// `220 ms`, `4 us` and `1.20 s` become `TIME`.
fn without_times(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        let unit = word.trim_end_matches([',', ';']);
        let number = words.last().is_some_and(|n| n.parse::<f64>().is_ok());
        if matches!(unit, "us" | "ms" | "s") && number {
            words.pop();
            words.push(word.replacen(unit, "TIME", 1));
        } else {
            words.push(word.to_owned());
        }
    }
    words.join(" ")
}

#[test]
fn a_plan_that_fits() {
    assert_data_eq!(
        screen("plan 896GiB --device sim:ecs.r8a.32xlarge", ""),
        str![[r#"
fits: 896 GiB as 14 MRs x 64 GiB on 2 MiB huge pages
               need             limit       where the limit comes from
  MR length    64 GiB           64 GiB      max_mr_size, documented
  MR count     14               32,768      max_mr of the profile, assumed
  MTT entries  458,752          33,554,431  simulated; upper bound of the article, inferred
  huge pages   458,752 x 2 MiB  not read    simulated host
  memlock      939,524,096 KiB  not read    the process that registers is not this one
  kernel mem   17.5 MiB         -           8 B/entry + 32 B/run
profile: kernel 5.15, erdma_installer 1.5.2 (change with --kernel, --driver)
  scatter at 4 GiB   avoided by installer 1.5.2 >= 1.5.2
  32-bit length      present (installer 1.5.2 < 1.5.7), not hit: 32,768 entries per MR > 512
not taken: 1 GiB pages: 896 pages, 448 MRs of 2 GiB (fits too; 2 MiB pages come first, as a host has them more easily)
next: hugemr register 896GiB --device sim:ecs.r8a.32xlarge          every MR: --list, every rule: --explain
(exit status 0)

"#]]
    );
}

#[test]
fn a_plan_that_does_not_fit() {
    let line = "plan 896GiB --device sim:ecs.r8a.32xlarge --pages 4KiB";
    assert_data_eq!(
        screen(line, ""),
        str![[r#"
does not fit: needs 234,881,024 MTT entries, the device has 33,554,431 (7.0 x)
  the limit comes from    simulated; upper bound of the article, inferred
  ibv_reg_mr would return EIO at MR 1 (counted from 0) of 14 (16,777,216 entries per 64 GiB MR)
  largest on 4KiB         128 GiB - 4 KiB
  way out      2 MiB pages: 458,752 pages, 14 MRs of 64 GiB         hugemr plan 896GiB --device sim:ecs.r8a.32xlarge --pages 2MiB
               1 GiB pages: 896 pages, 448 MRs of 2 GiB             hugemr plan 896GiB --device sim:ecs.r8a.32xlarge --pages 1GiB
               128 GiB - 4 KiB would fit                            hugemr plan 137438949376 --device sim:ecs.r8a.32xlarge --pages 4KiB
(exit status 1)

"#]]
    );
}

#[test]
fn a_registration() {
    assert_data_eq!(
        screen("register 896GiB --device sim:ecs.r8a.32xlarge", ""),
        str![[r#"
registered 896 GiB on sim:ecs.r8a.32xlarge: 14 MRs, page size 2 MiB, 458,752 entries (read from the device object)
  MR  address         length  lkey/rkey              page   entries
  0   0x7e0000000000  64 GiB  0x00000100/0x00000100  2 MiB  32,768
  13  0x7ed000000000  64 GiB  0x00000e00/0x00000e00  2 MiB  32,768
  (12 more: --all)
  time register TIME
released: 14 MRs in TIME; the device object holds 0 MRs and 0 entries of ours
(exit status 0)

"#]]
    );
}

#[test]
fn a_log_of_another_program() {
    let log = "Starting store\n\
        E0101 12:00:00.000000 17 rdma_context.cpp:150] Failed to register memory 0x7fa3ce000000: Input/output error [5]\n";
    assert_data_eq!(
        screen("diagnose -", log),
        str![[r#"
line 2
EIO = the device or its driver refused; pinning had most likely worked
cannot tell which of 6: nothing but the error itself speaks for the first
1  possible   table_full: the device's translation table has no room for the entries of this MR
   for        EIO from ibv_reg_mr, if the device is of the family erdma
   decide     grep -E '^[0-9a-f]+-|^Size|KernelPageSize|AnonHugePages' /proc/PID/smaps
   fix        map the memory on 2 MiB huge pages (hugemr plan SIZE --device DEVICE --pages 2MiB)
2  possible   device_refusal: the device refused for a reason that it does not tell
   for        EIO from ibv_reg_mr
   decide     dmesg | grep -iE 'erdma|efa|ionic|mlx|hns'
   fix        free MRs or use larger pages, and see whether it persists; then it is for the vendor, with the kernel log
3  possible   command_timeout: the device did not answer the command in time
   for        EIO from ibv_reg_mr
   decide     grep . /sys/class/infiniband/DEVICE/ports/1/hw_counters/cmdq_*_cnt (vendor's driver; submitted above comp at rest: a command was not answered)
   fix        reload the driver (all its users must stop first); if it returns, it is for the vendor, with the kernel log
4  possible   command_queue_dead: the command queue was shut down after an earlier time-out; only a reload of the driver helps
   for        EIO from ibv_reg_mr, if the device is of the family erdma
   decide     grep . /sys/class/infiniband/DEVICE/ports/1/hw_counters/cmdq_*_cnt (vendor's driver; submitted above comp at rest: a command was not answered)
   fix        reload the driver (all its users must stop first); nothing else brings the queue back
5  possible   small_pages: the kernel gave the MR smaller pages than its memory has, so it takes more entries
   for        EIO from ibv_reg_mr, if the device is of the family erdma
   decide     hugemr plan SIZE --device DEVICE --explain, and a kretprobe on ib_umem_find_best_pgsz
   fix        MRs of less than 4 GiB on 2 MiB pages (hugemr plan cuts so), or a kernel with the fix (6.15, 6.12.31, 6.1.141), on eRDMA also the installer 1.5.2 or later; and no 4 KiB hole in the range
6  possible   leaked_mrs: MRs of other or dead processes hold what this one needs
   for        EIO from ibv_reg_mr, if the device is of the family erdma
   decide     rdma resource show mr dev DEVICE
   fix        end the processes that hold MRs they no longer need, or let the processes share one registration
would help to know: the entry budget of the device, the length, time-outs of the command queue in the kernel log, the page size of the MR, whether other processes hold MRs
(exit status 0)

"#]]
    );
}
