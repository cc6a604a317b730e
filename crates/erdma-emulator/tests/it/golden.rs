//! Requests as the drivers of Debian's 6.1.192, 6.12.117 and 7.3.4 sent them, recorded from virtual machines.
//! `tests/data/requests.jsonl` holds each with the fields that it must have, taken apart by another program.

use erdma_emulator::cmd::{Command, Length, MrKind, decode, header_bits};
use erdma_emulator::mtt::Root;
use serde_json::Value;

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
        .collect()
}

#[test]
fn recorded_requests_decode_to_their_fields() {
    let mut n = 0;
    for line in include_str!("../data/requests.jsonl").lines() {
        let want: Value = serde_json::from_str(line).expect("json");
        let number = |name: &str| {
            want[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name}: {line}"))
        };
        let sqe = bytes(want["sqe"].as_str().expect("hex"));
        let (header, command) = decode(&sqe).expect(line);
        assert_eq!(u64::from(header.index), number("index"), "{line}");
        assert_eq!(u64::from(header.cookie), number("cookie"), "{line}");
        assert_eq!(u64::from(header.units), number("units"), "{line}");
        assert_eq!(header_bits(header).to_le_bytes(), sqe[..8], "{line}");
        let debug = format!("{command:?}");
        assert!(
            debug.starts_with(want["command"].as_str().expect("name")),
            "{debug}: {line}"
        );
        match command {
            Command::RegMr(mr) => {
                let root = match mr.table.root {
                    Root::Inline(words) => words[0],
                    Root::At(address) => address,
                };
                let kind = match mr.kind {
                    MrKind::User => 0,
                    MrKind::FastReg => 1,
                    MrKind::Dma => 2,
                    MrKind::Reserved => 3,
                };
                for (name, value) in [
                    ("lkey", mr.key.lkey().into()),
                    ("pd", mr.pd.into()),
                    ("kind", kind),
                    ("va", mr.va),
                    ("length", mr.length),
                    ("page_shift", mr.page_shift.into()),
                    ("level", mr.table.level.into()),
                    ("version", mr.version.into()),
                    ("entries", mr.table.entries),
                    ("root", root),
                ] {
                    assert_eq!(value, number(name), "{name}: {line}");
                }
                assert!(mr.valid);
                assert_eq!(
                    mr.length_verdict(),
                    Length::Exact { bytes: mr.length },
                    "{line}"
                );
            }
            Command::DeregMr(key) => assert_eq!(u64::from(key.lkey()), number("lkey"), "{line}"),
            Command::CreateQp { qpn: n }
            | Command::DestroyQp { qpn: n }
            | Command::ModifyQp { qpn: n, .. }
            | Command::CreateCq { cqn: n }
            | Command::DestroyCq { cqn: n }
            | Command::ConfMtu { mtu: n } => assert_eq!(u64::from(n), number("number"), "{line}"),
            Command::CreateEq(eq) => {
                assert_eq!(u64::from(eq.eqn), number("number"), "{line}");
                assert_eq!(eq.vector, eq.eqn);
            }
            Command::DestroyEq { eqn } => assert_eq!(u64::from(eqn), number("number"), "{line}"),
            Command::GetStats(stats) => assert_eq!(stats.length, 256, "{line}"),
            Command::ConfDevice { page_shift } => assert_eq!(page_shift, 12),
            Command::Unknown { .. } => panic!("{line}"),
            _ => {}
        }
        n += 1;
    }
    assert!(n >= 50, "{n} requests");
}
