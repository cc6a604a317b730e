use super::roads::missing_ends;
use super::*;
use crate::mapping::{Kind, MapRequest, Mapping};
use proptest::prelude::*;

const ROADS: [Road; 2] = [Road::PopulateWrite, Road::PageByPage];

/// The roads that this kernel has.
fn roads() -> impl Iterator<Item = Road> {
    let all = sys::knows(Advice::PopulateWrite);
    ROADS
        .into_iter()
        .filter(move |road| all || *road != Road::PopulateWrite)
}

fn map(kind: Kind, len: u64) -> Mapping {
    MapRequest::new(kind, len).map(&Root::real()).unwrap()
}

/// Pages of the mapping that are there.
fn present(memory: &Mapping) -> usize {
    let base = sys::base_page();
    let mut pages = vec![0; sys::size(memory.len() / base)];
    sys::resident(memory.base(), &mut pages).unwrap();
    pages.iter().filter(|page| **page & 1 == 1).count()
}

fn bytes(memory: &mut Mapping) -> &mut [u8] {
    // SAFETY: the mapping lives, is populated (or of ordinary memory), and only the test uses it.
    unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), sys::size(memory.len())) }
}

fn pattern(i: usize) -> u8 {
    u8::try_from(i % 251).unwrap()
}

proptest! {
    #[test]
    fn pieces_cover_exactly(
        start in 0u64..1 << 40, len in 1u64..1 << 34, shift in 12u32..31, threads in 1usize..200,
    ) {
        let page = 1u64 << shift;
        let pieces = Pieces::new(start, len, page, threads);
        let count = pieces.count();
        prop_assert!(count <= (4 * threads as u64).max(len.div_ceil(PIECE) + 1));
        let mut at = start;
        for i in 0..count {
            let (from, to) = pieces.get(i).unwrap();
            prop_assert_eq!(from, at);
            prop_assert!(to > from && to - from <= PIECE.max(page));
            // No two pieces share a page.
            prop_assert!(i == 0 || from % page == 0);
            at = to;
        }
        prop_assert_eq!(at, start + len);
        prop_assert_eq!(pieces.get(count), None);
    }
}

/// Each huge page whose end is asked for is cleared forwards. What is there, and what ends elsewhere, is let be.
#[test]
fn the_ends_of_missing_huge_pages() {
    let base = sys::base_page();
    let page = 4 * base;
    let memory = map(Kind::Base, 12 * MIB);
    let border = memory.base().next_multiple_of(page);
    let of =
        |from: u64, to: u64, page| missing_ends(border + from * base, border + to * base, page);
    let found = |from, to| -> Vec<u64> {
        let ends = of(from, to, page).unwrap();
        ends.iter().map(|end| (end - border) / base).collect()
    };
    assert_eq!(found(0, 16), [3, 7, 11, 15]);
    assert_eq!(found(2, 15), [3, 7, 11]);
    assert_eq!(found(3, 4), [3]);
    assert_eq!(found(1, 3), [0; 0]);
    sys::or_zero(border + 7 * base).unwrap();
    sys::or_zero(border + 8 * base).unwrap();
    assert_eq!(found(0, 16), [3, 11, 15]);
    // Base pages have no ends, gigantic ones need none.
    assert_eq!(of(0, 16, base).unwrap(), [0; 0]);
    assert_eq!(of(0, 2000, 2 * PIECE).unwrap(), [0; 0]);
}

#[test]
fn every_page_is_there_afterwards_and_progress_grows_to_the_end() {
    for road in roads() {
        for threads in [1, 2, 7] {
            let memory = map(Kind::Base, 9 * MIB);
            assert_eq!(present(&memory), 0);
            let mut seen = Vec::new();
            let mut progress = |done| seen.push(done);
            let done = Populate::new()
                .road(road)
                .threads(threads)
                .progress(&mut progress)
                .all(&memory)
                .unwrap();
            assert_eq!((done.bytes, done.road), (9 * MIB, road));
            assert!(done.threads >= 1 && done.threads <= threads);
            assert_eq!(present(&memory) as u64, memory.len() / sys::base_page());
            assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
            assert_eq!(seen.last(), Some(&(9 * MIB)));
        }
    }
}

#[test]
fn content_stays_as_it_is() {
    for road in roads() {
        for kind in [Kind::Base, Kind::Memfd(PageSize::K4)] {
            let mut memory = map(kind, 2 * MIB);
            for (i, byte) in bytes(&mut memory).iter_mut().enumerate() {
                *byte = pattern(i);
            }
            Populate::new().road(road).threads(2).all(&memory).unwrap();
            let kept = bytes(&mut memory)
                .iter()
                .enumerate()
                .all(|(i, byte)| *byte == pattern(i));
            assert!(kept, "{road:?} {kind:?}");
        }
    }
}

/// Somebody counts in the very word that is touched: no step may be lost.
#[test]
fn what_others_write_meanwhile_is_kept() {
    use std::sync::atomic::AtomicU32;
    for road in roads() {
        let memory = map(Kind::Memfd(PageSize::K4), 4096);
        // SAFETY: the word is mapped, aligned, and used only as an atomic from here on.
        let word = unsafe { AtomicU32::from_ptr(memory.as_ptr().cast()) };
        let steps = 100_000;
        thread::scope(|scope| {
            let count = scope.spawn(|| {
                for _ in 0..steps {
                    word.fetch_add(1, Ordering::Relaxed);
                }
            });
            while !count.is_finished() {
                Populate::new().road(road).all(&memory).unwrap();
            }
        });
        assert_eq!(word.load(Ordering::Relaxed), steps, "{road:?}");
    }
}

#[test]
fn a_part_is_a_part() {
    for road in roads() {
        let memory = map(Kind::Base, MIB);
        let base = sys::base_page();
        // From inside one page to inside another: both are populated whole.
        Populate::new()
            .road(road)
            .range(&memory, 2 * base + 5, base)
            .unwrap();
        assert_eq!(present(&memory), 2);
        for (offset, len) in [(0, 0), (0, MIB + 1), (MIB, 1), (u64::MAX, 2)] {
            let error = Populate::new()
                .road(road)
                .range(&memory, offset, len)
                .unwrap_err();
            assert_eq!(error, PopulateError::NoRange { offset, len });
        }
        assert_eq!(present(&memory), 2);
    }
}

#[test]
fn cancelled_before_and_between() {
    for road in roads() {
        let memory = map(Kind::Base, 8 * MIB);
        let error = Populate::new()
            .road(road)
            .cancel(&|| true)
            .all(&memory)
            .unwrap_err();
        assert_eq!(error, PopulateError::Cancelled { done: 0 });
        assert_eq!(present(&memory), 0);

        let asked = AtomicU64::new(0);
        let token = || asked.fetch_add(1, Ordering::Relaxed) >= 2;
        let error = Populate::new()
            .road(road)
            .cancel(&token)
            .all(&memory)
            .unwrap_err();
        assert_eq!(error, PopulateError::Cancelled { done: 4 * MIB });
        assert_eq!(present(&memory) as u64, 4 * MIB / sys::base_page());
    }
}

#[test]
fn a_panic_of_the_caller_stops_all_threads() {
    let memory = map(Kind::Base, 8 * MIB);
    let mut progress = |_| panic!("the caller's own");
    let run = std::panic::AssertUnwindSafe(|| {
        let _ = Populate::new()
            .threads(3)
            .progress(&mut progress)
            .all(&memory);
    });
    assert!(std::panic::catch_unwind(run).is_err());
}

/// Memory that is not what it says: for the errors.
struct Claim(u64, u64, PageSize);

// SAFETY: not true, but the tests only populate it, which never touches memory from here.
unsafe impl Backing for Claim {
    fn base(&self) -> u64 {
        self.0
    }
    fn len(&self) -> u64 {
        self.1
    }
    fn page(&self) -> PageSize {
        self.2
    }
}

#[test]
fn memory_that_is_none() {
    for road in roads() {
        let claim = Claim(1 << 45, 1 << 20, PageSize::K4);
        let error = Populate::new().road(road).all(&claim).unwrap_err();
        assert_eq!(
            error,
            PopulateError::NotMapped {
                addr: 1 << 45,
                done: 0
            }
        );
        // A function's own code may not be written.
        let code = memory_that_is_none as fn() as usize as u64;
        let claim = Claim(code, 1, PageSize::K4);
        let error = Populate::new().road(road).all(&claim).unwrap_err();
        assert!(
            matches!(error, PopulateError::NotWritable { done: 0, .. }),
            "{error}"
        );
        let nothing = hugemr_core::backend::NoMemory {
            base: 0,
            len: 4096,
            page: PageSize::K4,
        };
        let error = Populate::new().road(road).all(&nothing).unwrap_err();
        assert!(matches!(error, PopulateError::NoRange { .. }), "{error}");
    }
}

#[test]
fn a_file_cut_off_behind_the_mapping_is_an_error_at_the_right_address() {
    let whole = 64 * sys::base_page();
    for road in roads() {
        for threads in [1, 3] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(whole).unwrap();
            let shared = libc::MAP_SHARED;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            use std::os::fd::AsFd as _;
            let base = sys::mmap(None, whole, rights, shared, Some(file.as_fd())).unwrap();
            file.set_len(whole / 4).unwrap();
            let claim = Claim(base, whole, PageSize::K4);
            let populate = Populate::new().road(road).threads(threads);
            let error = populate.all(&claim).unwrap_err();
            if threads == 1 {
                assert_eq!(error.addr(), Some(base + whole / 4), "{road:?} {error}");
            }
            assert!(error.addr() >= Some(base + whole / 4), "{road:?} {error}");
            // SAFETY: mapped above, used by nobody.
            unsafe { sys::munmap(base, whole) }.unwrap();
        }
    }
}

#[test]
fn threads_bound_to_cpus() {
    let memory = map(Kind::Base, 4 * MIB);
    let before = sys::affinity().unwrap();
    let done = Populate::new()
        .threads(2)
        .on_cpus(vec![before[0]])
        .all(&memory)
        .unwrap();
    assert_eq!(done.threads, 2);
    assert_eq!(sys::affinity().unwrap(), before);
    assert_eq!(present(&memory) as u64, memory.len() / sys::base_page());
    // A CPU that is not there is no error.
    Populate::new().on_cpus(vec![5000]).all(&memory).unwrap();
    assert!(usable_cpus(&Root::real()) <= before.len());
}

#[test]
fn transparent_huge_pages_by_both_roads() {
    for road in roads() {
        let request = MapRequest::new(Kind::Thp, 8 * MIB);
        let Ok(memory) = request.map(&Root::real()) else {
            return; // switched off on this host: said by an error, tested elsewhere
        };
        Populate::new().road(road).all(&memory).unwrap();
        assert_eq!(
            present(&memory) as u64,
            memory.len() / sys::base_page(),
            "{road:?}"
        );
    }
}

/// A claim of 2 MiB pages over base pages: the page-by-page road must not believe it.
#[test]
fn a_huge_page_that_did_not_come_is_touched_page_by_page() {
    let memory = MapRequest::new(Kind::Base, 4 * MIB)
        .align(2 * MIB)
        .map(&Root::real())
        .unwrap();
    Populate::new()
        .road(Road::PageByPage)
        .page(PageSize::M2)
        .all(&memory)
        .unwrap();
    assert_eq!(present(&memory) as u64, memory.len() / sys::base_page());
}

#[test]
#[ignore = "needs huge pages"]
fn huge_pages_by_both_roads() {
    let _pools = crate::root::fake::pool_lock();
    for road in roads() {
        for kind in [Kind::HugeTlb(PageSize::M2), Kind::Memfd(PageSize::M2)] {
            let mut memory = map(kind, 16 * MIB);
            bytes(&mut memory)[5] = 77;
            Populate::new().road(road).threads(2).all(&memory).unwrap();
            assert_eq!(present(&memory) as u64, memory.len() / sys::base_page());
            assert_eq!(bytes(&mut memory)[5], 77);
        }
    }
}

/// The pool is emptied by a mapping of the test itself, so a page is missing in the middle of the other one. If a road
/// could raise SIGBUS the test process would die here.
#[test]
#[ignore = "needs huge pages"]
fn an_emptied_pool_is_an_error_and_never_sigbus() {
    let _pools = crate::root::fake::pool_lock();
    for road in roads() {
        for threads in [1, 2] {
            let pools = Pools::read(&Root::real());
            let pool = pools.of(PageSize::M2).unwrap();
            let available = pool.available().unwrap();
            assert_eq!(
                pool.overcommit,
                Some(0),
                "surplus pages would come on demand"
            );
            assert!(available >= 4);
            let kind = Kind::HugeTlb(PageSize::M2);
            let hog = map(kind, (available - 3) * 2 * MIB);
            let memory = MapRequest::new(kind, 8 * 2 * MIB)
                .without_promise()
                .map(&Root::real())
                .unwrap();
            let populate = Populate::new().road(road).threads(threads);
            let error = populate.all(&memory).unwrap_err();
            let PopulateError::OutOfPages {
                addr,
                page,
                available,
                ..
            } = error
            else {
                panic!("{road:?}: {error}");
            };
            assert_eq!((page, available), (PageSize::M2, Some(0)), "{road:?}");
            assert!(addr >= memory.base() && addr < memory.base() + memory.len());
            if threads == 1 {
                assert_eq!(addr, memory.base() + 3 * 2 * MIB, "{road:?}");
            }
            drop(hog);
            Populate::new().road(road).all(&memory).unwrap();
        }
    }
}

/// Not a test by itself: the process that [`a_limit_lowered_after_mmap_is_an_error_and_never_sigbus`] puts into
/// a cgroup.
#[test]
fn child_in_a_cgroup() {
    let Ok(dir) = std::env::var("HUGEMR_TEST_CGROUP") else {
        return;
    };
    let file = |name: &str| format!("{dir}/{name}");
    std::fs::write(file("cgroup.procs"), std::process::id().to_string()).unwrap();
    let kind = Kind::HugeTlb(PageSize::M2);
    for road in roads() {
        std::fs::write(file("hugetlb.2MB.max"), "max").unwrap();
        let memory = map(kind, 8 * 2 * MIB);
        std::fs::write(file("hugetlb.2MB.max"), (3 * 2 * MIB).to_string()).unwrap();
        let error = Populate::new().road(road).all(&memory).unwrap_err();
        let PopulateError::OutOfPages { addr, cgroup, .. } = error else {
            panic!("{road:?}: {error}");
        };
        assert_eq!(addr, memory.base() + 3 * 2 * MIB, "{road:?}");
        assert_eq!(cgroup, Some(file("hugetlb.2MB.max")), "{road:?}");
        // What is in use counts.
        let error = MapRequest::new(kind, 2 * MIB)
            .map(&Root::real())
            .unwrap_err();
        assert!(
            error.to_string().starts_with("the cgroup allows 6 MiB"),
            "{error}"
        );
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_limit_lowered_after_mmap_is_an_error_and_never_sigbus() {
    let _pools = crate::root::fake::pool_lock();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
    let Some(mount) = mount.and_then(|line| line.split(' ').nth(4)) else {
        return; // no cgroup version 2 here
    };
    let control = format!("{mount}/cgroup.subtree_control");
    let before = std::fs::read_to_string(&control).unwrap_or_default();
    let dir = format!("{mount}/hugemr-test-{}", std::process::id());
    // In a container the tree may be read only, or without the controller: then nothing can be shown here.
    let ready = std::fs::write(&control, "+hugetlb").is_ok() && std::fs::create_dir(&dir).is_ok();
    let mut outcome = None;
    if ready && std::path::Path::new(&format!("{dir}/hugetlb.2MB.max")).exists() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "populate::tests::child_in_a_cgroup",
                "--nocapture",
            ])
            .env("HUGEMR_TEST_CGROUP", &dir)
            .output()
            .unwrap();
        outcome = Some(child);
    }
    let _ = std::fs::remove_dir(&dir);
    if !before.split_whitespace().any(|name| name == "hugetlb") {
        let _ = std::fs::write(&control, "-hugetlb");
    }
    if let Some(child) = outcome {
        let text = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{:?} {text}", child.status);
    }
}

#[test]
fn a_quota_pays_for_fewer_cpus_than_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    file("proc/self/cgroup", "0::/job\n");
    let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    file("proc/self/mountinfo", mounts);
    let allowed = sys::affinity().unwrap().len();
    for (quota, cpus) in [("50000", 1), ("150000", 2), ("max", usize::MAX)] {
        file("sys/fs/cgroup/job/cpu.max", &format!("{quota} 100000\n"));
        let found = usable_cpus(&Root::at(folder.path()));
        assert_eq!(found, cpus.min(allowed), "{quota}");
    }
}
