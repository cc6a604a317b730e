//! Faults on demand, and commands to a running device.

use std::time::Duration;

use erdma_emulator::cmd::Syndrome;
use erdma_emulator::config::Config;
use erdma_emulator::control::{self, Then};
use erdma_emulator::events::Event;

use crate::probe::probed;
use crate::support::{Direct, Driver, KERNELS, Kernel, Link, Mr};

fn with_faults(kernel: Kernel, faults: &[&str]) -> Driver<Direct> {
    let faults = faults.iter().map(|f| f.parse().expect("fault")).collect();
    probed(
        kernel,
        &Config {
            faults,
            entries: 100,
            ..Config::default()
        },
    )
}

fn reg_without_waiting(d: &mut Driver<Direct>, index: u32) {
    let root = [0x1000u64; 4];
    d.post(0, 8, |sqe| {
        sqe[0x08..0x0c].copy_from_slice(&(1 << 31 | index).to_le_bytes());
        sqe[0x0c..0x10].copy_from_slice(&0x1eu32.to_le_bytes());
        sqe[0x18..0x1c].copy_from_slice(&4096u32.to_le_bytes());
        sqe[0x1c..0x20].copy_from_slice(&(12u32 << 27 | 1).to_le_bytes());
        sqe[0x10..0x18].copy_from_slice(&0x7000u64.to_le_bytes());
        sqe[0x20..0x28].copy_from_slice(&root[0].to_le_bytes());
    });
    d.ring_sq();
}

fn dereg_without_waiting(d: &mut Driver<Direct>, index: u32) {
    d.post(0, 9, |sqe| {
        sqe[0x08..0x0c].copy_from_slice(&index.to_le_bytes());
    });
    d.ring_sq();
}

#[test]
fn the_nth_is_refused_and_the_next_is_not() {
    for kernel in KERNELS {
        let mut d = with_faults(kernel, &["refuse@2", "refuse@1/dereg_mr"]);
        assert_eq!(d.reg_mr(&Mr::pages(1, 5, 12)), 0);
        assert_eq!(d.reg_mr(&Mr::pages(2, 5, 12)), Syndrome::Injected.code());
        assert_eq!(d.reg_mr(&Mr::pages(2, 5, 12)), 0);
        assert_eq!(d.dereg_mr(1), Syndrome::Injected.code());
        assert_eq!(
            d.link.device.ledger().used(),
            10,
            "a refused DEREG_MR gives nothing back"
        );
        assert_eq!(d.dereg_mr(1), 0);
        assert_eq!(d.link.device.totals().faults, 2);
    }
}

#[test]
fn a_dropped_answer_never_comes_but_the_deed_is_done() {
    let mut d = with_faults(Kernel::V6_12, &["drop@1"]);
    reg_without_waiting(&mut d, 1);
    d.link.advance(Duration::from_secs(3600));
    assert_eq!(d.link.interrupts(), 0);
    assert!(d.next_cqe().is_none());
    assert_eq!(d.link.device.ledger().used(), 1);
    assert_eq!(d.reg_mr(&Mr::pages(2, 5, 12)), 0, "others are answered");
    d.remove();
    assert_eq!(d.link.device.ledger().used(), 0);
}

#[test]
fn a_late_answer_comes_when_it_is_due() {
    for kernel in KERNELS {
        let mut d = with_faults(kernel, &["late=20s@1", "late=5ms@2"]);
        d.link.advance(Duration::from_secs(100));
        reg_without_waiting(&mut d, 1);
        reg_without_waiting(&mut d, 2);
        assert_eq!(d.link.interrupts(), 0);
        assert_eq!(
            d.link.device.next_due(),
            Some(Duration::from_millis(100_005))
        );
        d.link.advance(Duration::from_millis(100_004));
        assert_eq!(d.link.interrupts(), 0);
        d.link.advance(Duration::from_millis(100_005));
        assert_eq!(d.link.interrupts(), 1);
        let done = d.interrupt();
        let second = if kernel == Kernel::V6_1 { 2 } else { 4 };
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].start % second, 0);
        assert_eq!(d.reg_mr(&Mr::pages(3, 5, 12)), 0, "others go on meanwhile");
        d.link.advance(Duration::from_secs(120));
        assert_eq!(d.link.interrupts(), 1);
        assert_eq!(
            d.interrupt()[0].start + second,
            done[0].start,
            "the first comes second"
        );
        assert_eq!(d.link.device.next_due(), None);
    }
}

/// `waiting` of each REG_MR and DEREG_MR since the last call, in their order.
fn waiting(d: &mut Driver<Direct>) -> Vec<usize> {
    let seen = |event: Event| match event {
        Event::RegMr(mr) => Some(mr.waiting),
        Event::DeregMr(mr) => Some(mr.waiting),
        _ => None,
    };
    let events = d.link.device.take_events();
    events.into_iter().filter_map(seen).collect()
}

/// Lets time pass until this many milliseconds, at which answers are due.
fn answered(d: &mut Driver<Direct>, ms: u64) {
    d.link.advance(Duration::from_millis(ms));
    assert_eq!(d.link.interrupts(), 1);
    d.interrupt();
}

#[test]
fn each_line_tells_how_many_answers_are_owed() {
    for kernel in KERNELS {
        let mut d = with_faults(kernel, &["late=100ms@1..4", "late=100ms@*/dereg_mr"]);
        for index in 1..=3 {
            reg_without_waiting(&mut d, index);
        }
        assert_eq!(waiting(&mut d), [0, 1, 2]);
        answered(&mut d, 100);
        reg_without_waiting(&mut d, 4);
        assert_eq!(waiting(&mut d), [0], "three were due at once");
        d.link.advance(Duration::from_millis(150));
        dereg_without_waiting(&mut d, 1);
        answered(&mut d, 200);
        dereg_without_waiting(&mut d, 2);
        assert_eq!(waiting(&mut d), [1, 1], "a registration, then a release");
        answered(&mut d, 300);
        dereg_without_waiting(&mut d, 3);
        answered(&mut d, 400);
        assert_eq!(d.reg_mr(&Mr::pages(5, 1, 12)), 0);
        assert_eq!(waiting(&mut d), [0, 0], "serial again");
    }
}

#[test]
fn an_answer_that_never_comes_is_not_waited_for() {
    let mut d = with_faults(Kernel::V7_3, &["drop@1"]);
    reg_without_waiting(&mut d, 1);
    assert_eq!(d.reg_mr(&Mr::pages(2, 5, 12)), 0);
    assert_eq!(waiting(&mut d), [0, 0]);
}

#[test]
fn a_reset_forgets_late_answers() {
    let mut d = with_faults(Kernel::V6_1, &["late=1s@1"]);
    reg_without_waiting(&mut d, 1);
    d.write32(0x10, 1);
    d.probe();
    d.link.advance(Duration::from_secs(9));
    assert_eq!(d.link.interrupts(), 0);
    assert!(d.next_cqe().is_none());
    let lost = |e: &Event| {
        matches!(
            e,
            Event::LateAnswer {
                opcode: 8,
                given: false
            }
        )
    };
    assert!(d.link.device.take_events().iter().any(lost));
}

#[test]
fn a_budget_that_changes_under_way() {
    let mut d = with_faults(Kernel::V7_3, &["budget=7@2", "budget=20@4"]);
    assert_eq!(d.reg_mr(&Mr::pages(1, 8, 12)), 0);
    assert_eq!(d.reg_mr(&Mr::pages(2, 1, 12)), Syndrome::OverBudget.code());
    assert_eq!(d.dereg_mr(1), 0);
    assert_eq!(d.reg_mr(&Mr::pages(1, 8, 12)), Syndrome::OverBudget.code());
    assert_eq!(d.reg_mr(&Mr::pages(1, 20, 12)), 0);
}

#[test]
fn control_lines() {
    let mut d = probed(
        Kernel::V6_12,
        &Config {
            entries: 100,
            ..Config::default()
        },
    );
    assert_eq!(d.reg_mr(&Mr::pages(1, 60, 12)), 0);
    let mut say = |line: &str| {
        let Direct { device, memory, .. } = &mut d.link;
        let answer = control::obey(line, device, memory);
        let then = match line.trim() {
            "quit" => Then::Quit,
            "abort" => Then::Abort,
            _ => Then::Serve,
        };
        assert_eq!(answer.then, then);
        answer.reply
    };
    assert_eq!(say("status")["totals"]["used"], 60);
    assert_eq!(say("status")["totals"]["reg_mrs"], 1);
    assert_eq!(say("budget 50\n")["ok"], true);
    assert_eq!(say("fault refuse@3")["ok"], true);
    assert_eq!(say("stamp 0x100")["stamp"]["blocks"], 60);
    assert_eq!(say("stamp 256 4096")["ok"], true);
    assert_eq!(say("quit\r\n")["ok"], true);
    assert_eq!(say("abort")["ok"], true);
    for line in [
        "",
        "fly",
        "budget",
        "budget x",
        "budget -1",
        "fault x",
        "stamp 512",
        "stamp 0x1ffffffff",
        "quit now",
    ] {
        let reply = say(line);
        assert_eq!(reply["ok"], false, "{line}");
        assert!(reply["error"].is_string());
    }
    assert_eq!(d.reg_mr(&Mr::pages(2, 1, 12)), Syndrome::OverBudget.code());
    assert_eq!(d.reg_mr(&Mr::pages(2, 1, 12)), Syndrome::Injected.code());
    let Direct { device, memory, .. } = &mut d.link;
    control::obey("fault refuse@*", device, memory);
    control::obey("clear-faults", device, memory);
    control::obey("budget 61", device, memory);
    assert_eq!(d.reg_mr(&Mr::pages(2, 1, 12)), 0);
}
