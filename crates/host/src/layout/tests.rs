use super::*;
use crate::mapping::{Kind, MapRequest};
use crate::populate::Populate;
use crate::root::fake::Tree;
use hugemr_core::backend::Backing as _;
use hugemr_core::size::{KIB, MIB};
use proptest::prelude::*;

/// A pagemap with these frames from virtual address 0 on; 0 is a page that is not there.
fn pagemap(frames: &[u64]) -> (Tree, PageMap) {
    let tree = Tree::new();
    let entries: Vec<u8> = frames
        .iter()
        .flat_map(|frame| if *frame == 0 { 0 } else { frame | PRESENT }.to_ne_bytes())
        .collect();
    tree.bytes("/proc/self/pagemap", &entries);
    let mut map = PageMap::open(&tree.root(), ProcessId::Own).unwrap();
    map.base_page = 4096;
    (tree, map)
}

fn read(map: &PageMap, base: u64, len: u64, stride: Stride) -> Vec<(u64, u64)> {
    let runs = map.runs(base, len, stride, 1).unwrap();
    runs.iter().map(|run| (run.phys, run.len)).collect()
}

/// Byte by byte where it would take too long otherwise: the physical address of each quarter of a page.
fn naive(frames: &[u64], base: u64, len: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for at in (base..base + len).step_by(1024) {
        let phys = frames[sys::size(at / 4096)] * 4096 + at % 4096;
        match runs.last_mut() {
            Some((start, len)) if *start + *len == phys => *len += 1024,
            _ => runs.push((phys, 1024)),
        }
    }
    runs
}

proptest! {
    // Each case makes a folder.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_are_those_of_the_naive_model(
        // Few different frames, so that many follow each other.
        frames in proptest::collection::vec(1u64..6, 1..40),
        from in 0u64..160, len in 1u64..160,
    ) {
        let (_tree, map) = pagemap(&frames);
        let whole = frames.len() as u64 * 4;
        let from = from % whole;
        let len = len.min(whole - from);
        let (base, len) = (from * 1024, len * 1024);
        let runs = read(&map, base, len, Stride::Every);
        prop_assert_eq!(runs.iter().map(|(_, len)| len).sum::<u64>(), len);
        prop_assert_eq!(runs, naive(&frames, base, len));
    }

    #[test]
    fn one_entry_a_huge_page_tells_the_same(
        heads in proptest::collection::vec(1u64..7, 1..12),
        from in 0u64..300, len in 1u64..300,
    ) {
        let huge = PageSize::new(32 << 10).unwrap();
        let frames: Vec<u64> = heads.iter().flat_map(|head| head * 8..head * 8 + 8).collect();
        let (_tree, map) = pagemap(&frames);
        let whole = frames.len() as u64 * 4;
        let from = from % whole;
        let len = len.min(whole - from);
        let (base, len) = (from * 1024, len * 1024);
        prop_assert_eq!(
            read(&map, base, len, Stride::Huge(huge)),
            read(&map, base, len, Stride::Every)
        );
    }
}

#[test]
fn what_is_not_there_is_named_by_address() {
    let (_tree, map) = pagemap(&[5, 6, 0, 7]);
    let error = map.runs(0, 16384, Stride::Every, 1).unwrap_err();
    assert!(
        matches!(error, LayoutError::NotPresent { addr: 8192 }),
        "{error}"
    );
    let error = map.runs(12288, 8192, Stride::Every, 1).unwrap_err();
    assert!(matches!(error, LayoutError::NotPresent { .. }), "{error}");
    let error = map.runs(0, 0, Stride::Every, 1).unwrap_err();
    assert!(matches!(error, LayoutError::NoRange { .. }), "{error}");
    let error = map.runs(u64::MAX, 2, Stride::Every, 1).unwrap_err();
    assert!(matches!(error, LayoutError::NoRange { .. }), "{error}");
}

#[test]
fn hidden_and_swapped_pages() {
    assert!(matches!(frame(PRESENT, 1), Err(LayoutError::NotAllowed)));
    assert!(matches!(
        frame(SWAPPED | 5, 1),
        Err(LayoutError::Swapped { addr: 1 })
    ));
    assert!(matches!(
        frame(0, 1),
        Err(LayoutError::NotPresent { addr: 1 })
    ));
    assert_eq!(frame(PRESENT | 1 << 55 | 9, 1).unwrap(), 9);
}

#[test]
fn a_hole_in_huge_memory_is_found() {
    let huge = PageSize::new(16 << 10).unwrap();
    let first = |frames: &[u64], base, len| {
        let (_tree, map) = pagemap(frames);
        map.first_small(base, len, huge).unwrap()
    };
    assert_eq!(first(&[8, 9, 10, 11, 4, 5, 6, 7], 0, 32 * KIB), None);
    // Not contiguous.
    assert_eq!(
        first(&[8, 9, 10, 11, 4, 5, 7, 6], 0, 32 * KIB),
        Some(16 * KIB)
    );
    // Contiguous but not aligned.
    assert_eq!(
        first(&[8, 9, 10, 11, 13, 14, 15, 16], 0, 32 * KIB),
        Some(16 * KIB)
    );
    // The rest of the huge page is not there.
    assert_eq!(
        first(&[8, 9, 10, 11, 4, 0, 0, 0], 0, 20 * KIB),
        Some(16 * KIB)
    );
    let (_tree, map) = pagemap(&[9, 10, 11, 12]);
    let error = map.runs(0, 16 * KIB, Stride::Huge(huge), 1).unwrap_err();
    assert!(
        matches!(error, LayoutError::NotHuge { addr: 0, .. }),
        "{error}"
    );
}

#[test]
#[ignore = "needs root"]
fn base_pages_of_this_process() {
    let memory = MapRequest::new(Kind::Base, 4 * MIB)
        .map(&Root::real())
        .unwrap();
    let map = PageMap::open(&Root::real(), ProcessId::Own).unwrap();
    let error = map
        .runs(memory.base(), memory.len(), Stride::Every, 1)
        .unwrap_err();
    assert!(matches!(error, LayoutError::NotPresent { addr } if addr == memory.base()));
    Populate::new().all(&memory).unwrap();
    let runs = map
        .runs(memory.base(), memory.len(), Stride::Every, 1)
        .unwrap();
    assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), memory.len());
    assert_eq!(
        crate::smaps::huge_in(&Root::real(), memory.base(), memory.len()).unwrap(),
        None
    );
}

#[test]
fn without_rights_addresses_are_hidden() {
    let memory = MapRequest::new(Kind::Base, 64 * KIB)
        .map(&Root::real())
        .unwrap();
    Populate::new().all(&memory).unwrap();
    let map = PageMap::open(&Root::real(), ProcessId::Own).unwrap();
    match map.runs(memory.base(), memory.len(), Stride::Every, 1) {
        Ok(runs) => assert!(!runs.is_empty()),
        Err(error) => assert!(matches!(error, LayoutError::NotAllowed), "{error}"),
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn huge_pages_of_this_process_by_both_strides() {
    let _pools = crate::root::fake::pool_lock();
    for pages in [1, 2, 5] {
        let kind = Kind::HugeTlb(PageSize::M2);
        let memory = MapRequest::new(kind, pages * 2 * MIB)
            .map(&Root::real())
            .unwrap();
        Populate::new().all(&memory).unwrap();
        let map = PageMap::open(&Root::real(), ProcessId::Own).unwrap();
        let (base, len) = (memory.base(), memory.len());
        let fast = map.runs(base, len, Stride::Huge(PageSize::M2), 1).unwrap();
        let exact = map.runs(base, len, Stride::Every, 1).unwrap();
        assert_eq!(fast, exact);
        assert!(fast.iter().all(|run| run.phys % (2 * MIB) == 0));
        assert_eq!(map.first_small(base, len, PageSize::M2).unwrap(), None);
        // A part that begins and ends inside a huge page.
        let (base, len) = (base + MIB, len - MIB - 4096);
        let fast = map.runs(base, len, Stride::Huge(PageSize::M2), 1).unwrap();
        assert_eq!(fast, map.runs(base, len, Stride::Every, 1).unwrap());
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn threads_read_the_same() {
    let _pools = crate::root::fake::pool_lock();
    let kind = Kind::Alias {
        page: PageSize::M2,
        pages: 7,
    };
    let memory = MapRequest::new(kind, 6 << 30).map(&Root::real()).unwrap();
    Populate::new().all(&memory).unwrap();
    let map = PageMap::open(&Root::real(), ProcessId::Own).unwrap();
    let (base, len) = (memory.base() + 2 * MIB, memory.len() - 6 * MIB);
    let stride = Stride::Huge(PageSize::M2);
    let one = map.runs(base, len, stride, 1).unwrap();
    for threads in [2, 3, 4, 16] {
        assert_eq!(
            map.runs(base, len, stride, threads).unwrap(),
            one,
            "{threads}"
        );
    }
}
