//! The hot paths of a key table allocate nothing, errors included.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use hugemr_core::backend::{Lkey, Rkey};
use hugemr_core::key_table::{Entry, KeyTable};

struct Counting;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls of the allocator in this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

fn table(ranges: impl Iterator<Item = (u64, u64)>) -> KeyTable {
    let entries = ranges.map(|(addr, len)| Entry {
        addr,
        len,
        lkey: Lkey(1),
        rkey: Rkey(2),
    });
    KeyTable::new(entries).expect("sorted, without overlap")
}

#[test]
fn lookup_and_split_do_not_allocate() {
    assert_eq!(allocations(|| drop(black_box(vec![1u8]))), 1);
    let shift = table((0..100).map(|i| (i << 21, 1 << 21)));
    let stride = table((0..100).map(|i| (i * 12_288, 12_288)));
    let irregular = table((0..100).map(|i| (i * 8192, if i < 50 { 8192 } else { 4096 })));
    let far = std::iter::once((1 << 46, 1));
    let crowded = table((0..100).map(|i| (i * 8192, 8192)).chain(far));
    for keys in [shift, stride, irregular, crowded] {
        let mut parts = 0;
        let calls = allocations(|| {
            let split = black_box(&keys).split(4096, 40 * 8192);
            parts = split.map_or(0, Iterator::count);
            let _ = black_box(keys.lookup(4096, 16));
            let _ = black_box(keys.lookup(4096, 1 << 50));
            let _ = black_box(keys.lookup(4096, 0));
            drop(black_box(keys.clone()));
        });
        assert!(parts >= 1);
        assert_eq!(calls, 0);
    }
}
