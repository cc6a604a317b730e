//! Guests that mean harm: whatever they write, the device goes on, in bounded time and memory.

use erdma_emulator::config::Config;
use erdma_emulator::mem::GuestMemory;
use erdma_emulator::stamp::StampConfig;
use proptest::prelude::*;

use crate::probe::{driver, probed};
use crate::support::{Direct, Driver, KERNELS, Link, Mr};

fn config() -> Config {
    Config {
        entries: 5000,
        walk_limit: 2000,
        stamp: true,
        stamps: StampConfig {
            limit: 500,
            ..StampConfig::default()
        },
        ..Config::default()
    }
}

fn still_works(d: &mut Driver<Direct>) {
    d.write32(0x10, 1);
    d.link.raised.clear();
    d.free_all();
    d.probe();
    assert_eq!(d.reg_mr(&Mr::pages(1, 600, 12)), 0);
}

/// Addresses that are often inside guest memory.
fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => (0x10u64..0x3f0).prop_map(|p| p << 16),
        1 => any::<u64>(),
        1 => Just(u64::MAX - 63),
        1 => Just(0),
    ]
}

fn register() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => prop::sample::select(vec![0x10u64, 0x14, 0x20, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x38, 0x3c, 0x200, 0x300, 0x100]),
        1 => 0u64..0x1100,
        1 => any::<u64>(),
    ]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<u32>().prop_map(|v| v.to_le_bytes().to_vec()),
        2 => (0u32..1024).prop_map(|v| v.to_le_bytes().to_vec()),
        2 => any::<u64>().prop_map(|v| v.to_le_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn random_registers(
        kernel in prop::sample::select(&KERNELS[..]),
        probe in any::<bool>(),
        writes in prop::collection::vec((register(), data()), 0..120),
        read in any::<u64>(),
    ) {
        let mut d = driver(kernel, &config());
        if probe {
            d.probe();
        }
        for (offset, bytes) in writes {
            d.link.write(offset, &bytes);
            prop_assert!(d.link.device.take_events().len() <= 5000);
        }
        let mut buf = [0; 13];
        d.link.device.read(read, &mut buf);
        prop_assert!(d.link.device.ledger().used() <= 5000);
        still_works(&mut d);
    }

    #[test]
    fn random_requests(
        kernel in prop::sample::select(&KERNELS[..]),
        requests in prop::collection::vec((prop::collection::vec(any::<u8>(), 128), 0u8..12, 0u8..2, any::<bool>()), 1..40),
        producer in any::<u16>(),
    ) {
        let mut d = probed(kernel, &config());
        for (bytes, opcode, module, whole) in requests {
            d.post(module, opcode, |sqe| {
                let n = sqe.len();
                sqe.copy_from_slice(&bytes[..n]);
            });
            if whole {
                d.ring_sq();
            }
        }
        d.write64(0x200, producer.into());
        prop_assert!(d.link.device.ledger().used() <= 5000);
        still_works(&mut d);
    }

    #[test]
    fn random_regions_and_tables(
        kernel in prop::sample::select(&KERNELS[..]),
        content in prop::collection::vec(address(), 2048),
        regions in prop::collection::vec(
            (any::<u64>(), any::<u64>(), 0u32..32, 0u64..9000, 0u32..4, 0u32..3, address(), 0u32..20), 1..20),
    ) {
        let mut d = probed(kernel, &config());
        let bytes: Vec<u8> = content.iter().flat_map(|w| w.to_le_bytes()).collect();
        for page in [0x20_0000, 0x100_0000] {
            d.link.memory.write(page, &bytes).expect("write");
        }
        for (va, length, page_shift, entries, level, version, root, index) in regions {
            let mr = Mr { index, va, length, page_shift, entries: vec![] };
            d.reg_mr_raw(&mr, entries, level, version, [root, content[0], content[1], content[2]]);
        }
        prop_assert!(d.link.device.ledger().used() <= 5000);
        let live: Vec<u32> = d.link.device.ledger().live().keys().copied().collect();
        for index in live {
            let Direct { device, memory, .. } = &mut d.link;
            let report = device.check_stamps(index << 8, Some(4096), memory);
            prop_assert!(report.is_none_or(|r| r.checked <= 500));
        }
        prop_assert_eq!(d.link.device.totals().odd, 0);
    }
}

#[test]
fn a_flood_is_counted_and_told_only_at_first() {
    let mut d = probed(KERNELS[1], &config());
    d.link.device.take_events();
    for i in 0..10_000u64 {
        d.link.write(0x10 + i % 3 + 1, &[0; 3]);
        d.write64(0x200, 0xffff);
    }
    assert!(d.link.device.take_events().len() < 100);
    assert!(d.link.device.totals().odd >= 10_000);
}
