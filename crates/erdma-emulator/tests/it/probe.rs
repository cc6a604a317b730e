//! Start-up and rings, as the three generations of the driver use them.

use erdma_emulator::config::Config;
use erdma_emulator::events::Event;

use crate::support::{Direct, Driver, KERNELS, Kernel, Link, Mr};

pub(crate) fn driver(kernel: Kernel, config: &Config) -> Driver<Direct> {
    Driver::new(kernel, Direct::new(config.clone()), config.flags)
}

pub(crate) fn probed(kernel: Kernel, config: &Config) -> Driver<Direct> {
    let mut d = driver(kernel, config);
    d.probe();
    d
}

#[test]
fn every_generation_probes_and_leaves_and_comes_again() {
    for kernel in KERNELS {
        let config = Config {
            entries: 100,
            ..Config::default()
        };
        let mut d = driver(kernel, &config);
        for round in 0..3 {
            let (device, firmware) = d.probe();
            assert_eq!(device, config.query_device());
            assert_eq!(firmware, 0x222);
            assert_eq!(
                (d.link.read32(0x18), d.link.read32(0x1c)),
                (0x5e10_0001, 0x0200)
            );
            assert_eq!(d.reg_mr(&Mr::pages(1, 50, 12)), 0, "round {round}");
            d.remove();
            assert_eq!(d.link.device.ledger().used(), 0);
        }
        let totals = d.link.device.totals();
        assert_eq!(
            (totals.inits, totals.resets, totals.reg_ok),
            (3, 3, 3),
            "{kernel:?}"
        );
        assert_eq!((totals.odd, totals.unknown_commands), (0, 0), "{kernel:?}");
    }
}

#[test]
fn contexts_queues_and_pairs() {
    for kernel in KERNELS {
        let mut d = probed(kernel, &Config::default());
        let number = |n: u32| move |sqe: &mut [u8]| sqe[8..12].copy_from_slice(&n.to_le_bytes());
        if d.extend_db() {
            let pages = d.command(1, 8, |sqe| sqe[8] = 7).results[0];
            for at in [0, 32, 48] {
                let page = pages >> at & 0xffff;
                assert!((1..128).contains(&page), "a page of BAR 0: {page:#x}");
            }
        }
        for (create, destroy) in [(4, 5), (1, 2)] {
            assert_eq!(d.command(0, create, number(5)).syndrome, 0);
            assert_ne!(d.command(0, create, number(5)).syndrome, 0, "in use");
            if create == 1 {
                assert_eq!(
                    d.command(0, 3, number(5 | 1 << 24)).syndrome,
                    0,
                    "MODIFY_QP"
                );
                assert_ne!(d.command(0, 3, number(6)).syndrome, 0, "no such pair");
            }
            assert_eq!(d.command(0, destroy, number(5)).syndrome, 0);
            assert_ne!(d.command(0, destroy, number(5)).syndrome, 0, "gone");
        }
        assert_eq!(d.command(0, 6, number(1)).syndrome, 0, "REFLUSH");
        assert_eq!(d.command(1, 3, number(9000)).syndrome, 0, "CONF_MTU");
        if d.extend_db() {
            assert_eq!(d.command(1, 9, number(7)).syndrome, 0, "FREE_DB");
        }
        assert_ne!(d.command(1, 9, number(7)).syndrome, 0, "nothing to free");
    }
}

#[test]
fn doorbell_pages_are_only_there_with_the_capability() {
    let mut d = probed(
        Kernel::V6_12,
        &Config {
            flags: 0x20,
            ..Config::default()
        },
    );
    assert_ne!(d.command(1, 8, |_| ()).syndrome, 0);
}

#[test]
fn unknown_commands_are_refused_by_name() {
    let mut d = probed(Kernel::V7_3, &Config::default());
    for (module, opcode) in [
        (0, 14),
        (0, 15),
        (0, 16),
        (0, 17),
        (0, 200),
        (1, 7),
        (2, 0),
        (3, 255),
    ] {
        assert_eq!(
            d.command(module, opcode, |_| ()).syndrome,
            1,
            "{module}.{opcode}"
        );
    }
    assert_eq!(d.link.device.totals().unknown_commands, 8);
    let seen = d.link.device.take_events();
    let unknown = |e: &&Event| matches!(e, Event::UnknownCommand { .. });
    assert_eq!(seen.iter().filter(unknown).count(), 8);
}

#[test]
fn rings_lap_many_times() {
    for kernel in KERNELS {
        // 70,000 commands: laps of every ring, and the 16-bit index wraps twice
        let mut d = probed(kernel, &Config::default());
        for _ in 0..70_000 {
            assert_eq!(d.command(1, 2, |_| ()).syndrome, 0);
        }
        assert_eq!(d.link.device.totals().odd, 0);
    }
}

#[test]
fn a_batch_gives_one_interrupt_and_all_answers() {
    for kernel in KERNELS {
        let mut d = probed(kernel, &Config::default());
        let starts: Vec<u32> = (0..128).map(|_| d.post(1, 2, |_| ()).into()).collect();
        d.ring_sq();
        assert_eq!(
            d.link.interrupts(),
            1,
            "the first completion disarmed the queue"
        );
        let done = d.interrupt();
        assert_eq!(done.iter().map(|c| c.start).collect::<Vec<_>>(), starts);
        assert_eq!(d.link.interrupts(), 0, "armed with nothing new");
    }
}

#[test]
fn a_completion_between_the_last_look_and_the_arm_is_told() {
    for kernel in KERNELS {
        let mut d = probed(kernel, &Config::default());
        d.post(1, 2, |_| ());
        d.ring_sq();
        assert_eq!(d.link.interrupts(), 1);
        // The handler has read the first completion; before it arms, another command ends.
        assert!(d.next_cqe().is_some());
        d.post(1, 2, |_| ());
        d.ring_sq();
        assert_eq!(d.link.interrupts(), 0, "not armed: silence");
        d.arm();
        assert_eq!(
            d.link.interrupts(),
            1,
            "armed behind the producer: told at once"
        );
        assert_eq!(d.interrupt().len(), 1);
        assert_eq!(d.link.interrupts(), 0);
        // A doorbell that only tells the index does not arm.
        d.write64(0x300, 3);
        d.post(1, 2, |_| ());
        d.ring_sq();
        assert_eq!(d.link.interrupts(), 1, "the arm of the handler");
    }
}

#[test]
fn polled_commands_raise_nothing() {
    let mut d = driver(Kernel::V6_12, &Config::default());
    d.start_queues();
    for _ in 0..600 {
        d.command(1, 2, |_| ());
    }
    assert_eq!(d.link.interrupts(), 0);
}

#[test]
fn a_start_with_nonsense_is_not_done() {
    for (at, value) in [(0x30, 300), (0x30, 0), (0x34, 3), (0x20, 0), (0x28, 0x1001)] {
        let mut d = driver(Kernel::V6_12, &Config::default());
        d.start_queues();
        d.write32(0x10, 1);
        let mut words = [
            (0x20, 0x10_0000),
            (0x28, 0x11_0000),
            (0x30, 512),
            (0x34, 128),
            (0x38, 0x12_0000),
        ];
        for word in &mut words {
            if word.0 == at {
                word.1 = value;
            }
            d.write32(word.0, word.1);
        }
        d.write32(0x10, 2);
        assert_eq!(d.link.read32(0x14) & 2, 0, "{at:#x} = {value:#x}");
        d.write64(0x200, 4);
        assert_eq!(d.link.device.totals().commands, 0);
    }
}

#[test]
fn a_second_start_begins_anew() {
    let mut d = probed(
        Kernel::V6_12,
        &Config {
            entries: 10,
            ..Config::default()
        },
    );
    assert_eq!(d.reg_mr(&Mr::pages(1, 10, 12)), 0);
    d.probe();
    assert_eq!(d.link.device.ledger().used(), 0);
    assert_eq!(d.reg_mr(&Mr::pages(1, 10, 12)), 0);
}
