//! REG_MR in all its forms, the budget, and what becomes of both.

use erdma_emulator::cmd::Syndrome;
use erdma_emulator::config::Config;
use erdma_emulator::events::{Event, RegMrSeen};
use erdma_emulator::mem::GuestMemory;
use erdma_emulator::stamp::MAGIC;
use proptest::prelude::*;

use crate::probe::probed;
use crate::support::{Direct, Driver, KERNELS, Kernel, Mr};

const GIB: u64 = 1 << 30;

fn seen(d: &mut Driver<Direct>) -> Vec<RegMrSeen> {
    let regs = |e| {
        if let Event::RegMr(seen) = e {
            Some(*seen)
        } else {
            None
        }
    };
    d.link
        .device
        .take_events()
        .into_iter()
        .filter_map(regs)
        .collect()
}

fn last(d: &mut Driver<Direct>) -> RegMrSeen {
    seen(d).pop().expect("a REG_MR")
}

#[test]
fn tables_of_every_size() {
    for kernel in KERNELS {
        for flags in [0x28, 0x08] {
            let mut d = probed(
                kernel,
                &Config {
                    flags,
                    ..Config::default()
                },
            );
            for n in [1, 4, 5, 512, 513, 262_144, 262_145] {
                d.free_all();
                assert_eq!(
                    d.reg_mr(&Mr::pages(7, n, 12)),
                    0,
                    "{kernel:?} {flags:#x} {n}"
                );
                let s = last(&mut d);
                let hierarchical = kernel != Kernel::V6_1 && flags == 0x28;
                let level = match n {
                    1..=4 => 0,
                    513..=262_144 if hierarchical => 2,
                    262_145.. if hierarchical => 3,
                    _ => 1,
                };
                assert_eq!((s.level, s.version), (level, u8::from(level > 1)));
                assert_eq!((s.entries, s.used, s.est_bytes), (n, n, n << 12));
                assert_eq!((s.key, s.result, s.length), (7 << 8, "ok", "exact"));
                let table = s.table.expect("walked");
                assert_eq!((table.entries, table.runs, table.longest_run), (n, n, 1));
                assert_eq!(
                    s.rights,
                    ["local_read", "local_write", "remote_read", "remote_write"]
                );
                assert_eq!(d.dereg_mr(7), 0);
                assert_eq!(d.link.device.ledger().used(), 0);
            }
        }
    }
}

#[test]
fn lengths_of_4_gib_arrive_cut_on_old_forms_and_whole_on_the_new() {
    for (kernel, page_shift, n, len, verdict) in [
        (Kernel::V6_1, 30, 4, 0, "truncated"),
        (Kernel::V6_12, 30, 4, 0, "truncated"),
        (Kernel::V7_3, 30, 5, GIB, "truncated"),
        (Kernel::V6_1, 21, 32_768, 0, "truncated"),
        (Kernel::V7_3, 21, 32_768, 64 * GIB, "exact"),
        (Kernel::V6_12, 21, 2047, 4 * GIB - (2 << 20), "exact"),
    ] {
        let mut d = probed(kernel, &Config::default());
        let mr = Mr::pages(1, n, page_shift);
        assert_eq!(d.reg_mr(&mr), 0, "the call succeeds: that is the defect");
        let s = last(&mut d);
        assert_eq!((s.len, s.length), (len, verdict), "{kernel:?}");
        assert_eq!((s.fitting_len, s.est_bytes), (Some(mr.length), mr.length));
        let totals = d.link.device.totals();
        assert_eq!(totals.truncated_lengths, u64::from(verdict == "truncated"));

        let config = Config {
            refuse_wrong_length: true,
            ..Config::default()
        };
        let mut d = probed(kernel, &config);
        let refused = verdict == "truncated";
        let want = if refused {
            Syndrome::WrongLength.code()
        } else {
            0
        };
        assert_eq!(d.reg_mr(&mr), want);
        assert_eq!(d.link.device.ledger().used(), if refused { 0 } else { n });
    }
}

#[test]
fn the_budget_holds_to_the_exact_entry() {
    for kernel in KERNELS {
        // 3,000,000 entries: eleven regions of 1 GiB on 4 KiB pages, scaled by 64
        let mut d = probed(
            kernel,
            &Config {
                entries: 3_000_000 / 64,
                ..Config::default()
            },
        );
        for i in 1..=11 {
            assert_eq!(d.reg_mr(&Mr::pages(i, 4096, 12)), 0);
        }
        assert_eq!(
            d.reg_mr(&Mr::pages(12, 4096, 12)),
            Syndrome::OverBudget.code()
        );
        let s = last(&mut d);
        assert_eq!(
            (s.result, s.used, s.budget),
            ("over_budget", 45_056, 46_875)
        );
        assert!(s.table.is_none(), "what does not fit is not walked");
        // a smaller one still fits, to the last entry
        assert_eq!(
            d.reg_mr(&Mr::pages(12, 1820, 12)),
            Syndrome::OverBudget.code()
        );
        assert_eq!(d.reg_mr(&Mr::pages(12, 1819, 12)), 0);
        assert_eq!(d.reg_mr(&Mr::pages(13, 1, 12)), Syndrome::OverBudget.code());
        assert_eq!(d.dereg_mr(5), 0);
        assert_eq!(d.dereg_mr(5), Syndrome::UnknownKey.code());
        assert_eq!(d.reg_mr(&Mr::pages(13, 4096, 12)), 0);
        let totals = d.link.device.totals();
        assert_eq!(
            (totals.used, totals.peak, totals.live),
            (46_875, 46_875, 12)
        );
        assert_eq!(totals.reg_refused["over_budget"], 3);
    }
}

#[test]
fn a_reset_gives_everything_back() {
    for kernel in KERNELS {
        let mut d = probed(
            kernel,
            &Config {
                entries: 100,
                ..Config::default()
            },
        );
        assert_eq!(d.reg_mr(&Mr::pages(1, 100, 12)), 0);
        d.link.device.reset("bus");
        let dropped = |e: &Event| {
            matches!(
                e,
                Event::Reset {
                    by: "bus",
                    mrs: 1,
                    entries: 100
                }
            )
        };
        assert!(d.link.device.take_events().iter().any(dropped));
        d.probe();
        assert_eq!(d.reg_mr(&Mr::pages(1, 100, 12)), 0);
    }
}

#[test]
fn indices_end_at_max_mr() {
    let mut d = probed(
        Kernel::V6_12,
        &Config {
            qp_blocks: 1,
            ..Config::default()
        },
    );
    assert_eq!(d.reg_mr(&Mr::pages(2047, 1, 12)), 0);
    assert_eq!(
        d.reg_mr(&Mr::pages(0, 1, 12)),
        0,
        "index 0 comes when the cursor wraps"
    );
    assert_eq!(
        d.reg_mr(&Mr::pages(2048, 1, 12)),
        Syndrome::TooManyMrs.code()
    );
    assert_eq!(d.reg_mr(&Mr::pages(0, 1, 12)), Syndrome::IndexInUse.code());
}

#[test]
fn tables_that_lie() {
    for kernel in KERNELS {
        let mut d = probed(kernel, &Config::default());
        let check = |d: &mut Driver<Direct>, mr: &Mr, want: Syndrome| {
            assert_eq!(d.reg_mr(mr), want.code(), "{kernel:?} {want:?}");
            assert_eq!(last(d).result, want.name());
            assert_eq!(d.link.device.ledger().used(), 0);
        };
        for n in [3, 600] {
            let mut mr = Mr::pages(1, n, 21);
            mr.entries[2] += 4096;
            check(&mut d, &mr, Syndrome::TableMisaligned);
            mr.entries[2] = 0;
            check(&mut d, &mr, Syndrome::TableShort);
        }
        let mr = Mr::pages(1, 10, 12);
        let raw = [
            (10, 1, 0xdead_0000_0000, Syndrome::TableUnreadable),
            (10, 1, 0x20_0001, Syndrome::TableMisaligned),
            (0, 1, 0x20_0000, Syndrome::TableCount),
            (5, 0, 0x20_0000, Syndrome::TableCount),
            (300_000, 2, 0x20_0000, Syndrome::TableCount),
        ];
        for (entries, level, root, want) in raw {
            let got = d.reg_mr_raw(&mr, entries, level, 0, [root; 4]);
            assert_eq!(got, want.code(), "{want:?}");
        }
        let small = Mr {
            page_shift: 11,
            ..Mr::pages(1, 1, 12)
        };
        assert_eq!(d.reg_mr(&small), Syndrome::Malformed.code());
        let version_2 = d.reg_mr_raw(&mr, 1, 1, 2, [0x20_0000; 4]);
        assert_eq!(version_2, Syndrome::Malformed.code());
        let inline_version_1 = d.reg_mr_raw(&mr, 1, 0, 1, [0x20_0000; 4]);
        assert_eq!(inline_version_1, Syndrome::Malformed.code());
        assert_eq!(d.link.device.totals().reg_ok, 0);
    }
}

#[test]
fn memory_that_vanishes_is_an_answer_too() {
    let mut d = probed(
        Kernel::V6_12,
        &Config {
            stamp: true,
            ..Config::default()
        },
    );
    let mut mr = Mr::pages(1, 2, 12);
    mr.entries = vec![0xdead_0000_0000, 0xdead_1000_0000];
    assert_eq!(
        d.reg_mr(&mr),
        0,
        "entries are addresses: only the data path would miss the memory"
    );
    assert_eq!(last(&mut d).stamp.expect("checked").unreadable, 2);
    d.post(0, 9, |_| ());
    d.link.memory.vanish();
    d.ring_sq();
    assert_eq!(d.link.device.totals().odd, 1);
}

#[test]
fn the_kernels_own_regions() {
    let kind = |d: &mut Driver<Direct>, kind: u8, entries: u32| {
        d.command(0, 8, |sqe| {
            sqe[0x08..0x0c].copy_from_slice(&9u32.to_le_bytes());
            sqe[0x0c..0x10].copy_from_slice(&(u32::from(kind) << 6 | 1 << 12).to_le_bytes());
            sqe[0x1c..0x20].copy_from_slice(&(12 << 27 | 1 << 20 | entries).to_le_bytes());
        })
        .syndrome
    };
    for kernel in KERNELS {
        let mut d = probed(
            kernel,
            &Config {
                entries: 600,
                ..Config::default()
            },
        );
        assert_eq!(
            kind(&mut d, 1, 512),
            0,
            "fast registration: entries are set aside"
        );
        assert_eq!(
            (last(&mut d).kind, d.link.device.ledger().used()),
            ("fast_reg", 512)
        );
        assert_eq!(d.dereg_mr(9), 0);
        assert_eq!(kind(&mut d, 1, 601), Syndrome::OverBudget.code());
        assert_eq!(kind(&mut d, 2, 512), 0, "all of memory: no table");
        assert_eq!(
            (last(&mut d).kind, d.link.device.ledger().used()),
            ("dma", 0)
        );
        assert_eq!(d.dereg_mr(9), 0);
        assert_eq!(kind(&mut d, 3, 1), Syndrome::Malformed.code());
    }
}

#[test]
fn stamps_are_read_through_the_table() {
    for kernel in KERNELS {
        let mut d = probed(
            kernel,
            &Config {
                stamp: true,
                ..Config::default()
            },
        );
        let mut mr = Mr::pages(3, 64, 14);
        mr.entries = (0..64).rev().map(|i| 0x100_0000 + (i << 14)).collect();
        let stamp = |d: &Driver<Direct>, bus: u64, va: u64| {
            d.link.memory.write(bus, &va.to_le_bytes()).expect("write");
            d.link
                .memory
                .write(bus + 8, &MAGIC.to_le_bytes())
                .expect("write");
        };
        for block in 0..256u64 {
            let page = usize::try_from(block / 4).expect("small");
            stamp(
                &d,
                mr.entries[page] + block % 4 * 4096,
                mr.va + block * 4096,
            );
        }
        assert_eq!(d.reg_mr(&mr), 0);
        let report = last(&mut d).stamp.expect("checked");
        assert_eq!(
            (report.checked, report.ok, report.bad, report.truncated),
            (256, 256, 0, false)
        );
        assert_eq!(d.dereg_mr(3), 0);
        // two pages exchanged in the table: eight blocks are elsewhere
        mr.entries.swap(1, 2);
        assert_eq!(d.reg_mr(&mr), 0);
        let report = last(&mut d).stamp.expect("checked");
        assert_eq!((report.ok, report.bad), (248, 8));
        let totals = d.link.device.totals();
        assert_eq!((totals.stamps_ok, totals.stamps_bad), (504, 8));
        // and once more, asked for later
        let Direct { device, memory, .. } = &mut d.link;
        let again = device.check_stamps(3 << 8, None, memory).expect("stands");
        assert_eq!(again.bad, 8);
        assert_eq!(
            device
                .check_stamps(3 << 8, Some(0x4000), memory)
                .expect("stands")
                .bad,
            0
        );
        assert!(device.check_stamps(4 << 8, None, memory).is_none());
        assert!(device.check_stamps(3 << 8 | 1, None, memory).is_none());
    }
}

#[derive(Clone, Debug)]
enum Op {
    Reg { index: u32, n: u64, page_shift: u32 },
    Dereg(u32),
    Reset,
    Budget(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let n = prop_oneof![1u64..=6, 500u64..=520, 1000u64..1100];
    prop_oneof![
        8 => (0u32..12, n, prop_oneof![Just(12), Just(21)])
            .prop_map(|(index, n, page_shift)| Op::Reg { index, n, page_shift }),
        4 => (0u32..12).prop_map(Op::Dereg),
        1 => Just(Op::Reset),
        1 => (0u64..4000).prop_map(Op::Budget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_account_is_the_sum_of_what_stands(
        kernel in prop::sample::select(&KERNELS[..]),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut d = probed(kernel, &Config { entries: 3000, ..Config::default() });
        let mut stands = std::collections::BTreeMap::new();
        let mut budget = 3000u64;
        for op in ops {
            d.free_all();
            let used: u64 = stands.values().sum();
            match op {
                Op::Reg { index, n, page_shift } => {
                    let ok = d.reg_mr(&Mr::pages(index, n, page_shift)) == 0;
                    prop_assert_eq!(ok, used + n <= budget && !stands.contains_key(&index));
                    if ok {
                        stands.insert(index, n);
                        prop_assert!(d.link.device.ledger().used() <= budget);
                    }
                }
                Op::Dereg(index) => {
                    let ok = d.dereg_mr(index) == 0;
                    prop_assert_eq!(ok, stands.remove(&index).is_some());
                }
                Op::Reset => {
                    d.remove();
                    d.probe();
                    stands.clear();
                }
                Op::Budget(n) => {
                    d.link.device.set_budget(n);
                    budget = n;
                }
            }
            let ledger = d.link.device.ledger();
            prop_assert_eq!(ledger.used(), stands.values().sum::<u64>());
            prop_assert_eq!(ledger.live().len(), stands.len());
        }
        prop_assert_eq!(d.link.device.totals().odd, 0);
    }
}
