//! Exported key tables: whatever is read is exactly what would be written, and looks up what it lists.
//!
//! Random bytes hardly ever have the right checksum, so they are also tried with one made good.
#![no_main]

use hugemr_core::key_table::KeyTable;
use libfuzzer_sys::fuzz_target;

/// Magic, version 1, reserved 0.
const HEADER: &[u8; 16] = b"hugemrKT\x01\0\0\0\0\0\0\0";

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&[bytes, &crc32(bytes).to_le_bytes()].concat());
    check(&[&HEADER[..], &entries(bytes)].concat());
});

/// Count, entries and checksum of a table whose entries are the bytes.
fn entries(bytes: &[u8]) -> Vec<u8> {
    let whole = &bytes[..bytes.len() - bytes.len() % 20];
    let count = (whole.len() as u64 / 20).to_le_bytes();
    let body = [&count[..], whole].concat();
    let signed = [&HEADER[..], &body].concat();
    [&body[..], &crc32(&signed).to_le_bytes()].concat()
}

/// IEEE 802.3, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

fn check(bytes: &[u8]) {
    let Ok(peer) = KeyTable::import(bytes) else {
        return;
    };
    assert_eq!(peer.export(), bytes);
    let (mut count, mut first_len) = (0, 0);
    for mr in peer.iter() {
        let key = peer.lookup(mr.addr, mr.len).expect("an MR that is listed");
        assert_eq!((key.rkey, key.index), (mr.rkey, mr.index));
        first_len = if count == 0 { mr.len } else { first_len };
        count += 1;
    }
    assert_eq!(count, peer.len());
    let len = first_len.saturating_add(1);
    // Beyond the first MR: crosses, misses, or ends the address space; never wraps.
    if let Ok(parts) = peer.split(peer.base(), len) {
        assert_eq!(parts.map(|part| part.len).sum::<u64>(), len);
    }
}
