//! Commands to the emulated device, and the page tables that they point to: the first 128 bytes are the request,
//! the rest is guest memory.
#![no_main]

use erdma_emulator::cmd::{self, Command};
use erdma_emulator::mem::RamMemory;
use erdma_emulator::mtt;
use libfuzzer_sys::fuzz_target;

/// Where guest memory begins. Table pages are aligned to 4 KiB and more.
const BASE: u64 = 0x1_0000;
/// Entries read at most.
const LIMIT: u64 = 4096;

fuzz_target!(|bytes: &[u8]| {
    let (request, memory) = bytes.split_at(bytes.len().min(128));
    let Ok((_, Command::RegMr(mr))) = cmd::decode(request) else {
        return;
    };
    // The verdict on the length is arithmetic over whatever the guest wrote.
    let _ = (mr.length_verdict(), mr.mapped_bytes());
    let memory = RamMemory::from_bytes(BASE, memory.to_vec());
    let mut entries = 0u64;
    for entry in mtt::walk(&mr.table, &memory, LIMIT) {
        entries += u64::from(entry.is_ok());
    }
    assert!(entries <= LIMIT && entries <= mr.table.entries);
});
