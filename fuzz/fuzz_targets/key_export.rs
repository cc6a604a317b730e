//! Exported key tables: whatever is read is exactly what would be written, and looks up what it lists.
#![no_main]

use hugemr_core::key_table::KeyTable;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // With the checksum that belongs to it, so that what is behind the checksum is reached.
    if let Some((body, _)) = bytes.split_last_chunk::<4>() {
        check(&[body, crc32(body).to_le_bytes().as_slice()].concat());
    }
});

/// CRC-32 (IEEE 802.3), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
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
    // Beyond the first MR: crosses, misses, or ends the address space; never wraps.
    if let Ok(parts) = peer.split(peer.base(), first_len.saturating_add(1)) {
        assert_eq!(parts.map(|part| part.len).sum::<u64>(), first_len + 1);
    }
}
