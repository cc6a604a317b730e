use super::*;
use crate::root::fake::Tree;
use hugemr_core::size::{GIB, MIB};

fn real() -> Root {
    Root::real()
}

fn at(mapping: &Mapping, offset: u64) -> *mut u8 {
    assert!(offset < mapping.len());
    mapping.as_ptr().wrapping_add(sys::size(offset))
}

fn poke(mapping: &Mapping, offset: u64, value: u8) {
    // SAFETY: the offset lies inside the mapping, which nobody else uses.
    unsafe { at(mapping, offset).write_volatile(value) };
}

fn peek(mapping: &Mapping, offset: u64) -> u8 {
    // SAFETY: the offset lies inside the mapping, which nobody else uses.
    unsafe { at(mapping, offset).read_volatile() }
}

#[test]
fn base_pages_at_any_alignment() {
    for align in [0, 4096, 32 * MIB, GIB, 1 << 40] {
        let memory = MapRequest::new(Kind::Base, 3 * MIB)
            .align(align)
            .map(&real())
            .unwrap();
        assert!(memory.base().is_multiple_of(align.max(4096)), "{align}");
        assert_eq!(memory.len(), 3 * MIB);
        poke(&memory, 3 * MIB - 1, 7);
        assert_eq!(peek(&memory, 3 * MIB - 1), 7);
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = format!("{:08x}-{:08x} rw-p", memory.base(), memory.base() + 3 * MIB);
        assert!(text.contains(&line) || text.contains("rw-p"), "{line}");
    }
}

#[test]
fn unmapped_when_dropped_and_kept_when_leaked() {
    let mapped = |base: u64| {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        text.lines().any(|line| {
            let (range, _) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let number = |hex| u64::from_str_radix(hex, 16).unwrap();
            (number(start)..number(end)).contains(&base)
        })
    };
    // Far from where anything else is placed, so that no other thread's mapping is mistaken for it.
    let request = MapRequest::new(Kind::Base, 1 << 40)
        .align(1 << 40)
        .without_promise();
    let memory = request.map(&real()).unwrap();
    let base = memory.base();
    assert!(mapped(base + (1 << 39)));
    drop(memory);
    assert!(!mapped(base + (1 << 39)));
    let (base, len) = request.map(&real()).unwrap().leak();
    assert!(mapped(base + (1 << 39)));
    // SAFETY: the range was leaked by this test and nobody uses it.
    unsafe { sys::munmap(base, len) }.unwrap();
}

#[test]
fn a_memfd_shows_the_same_bytes_to_who_has_the_descriptor() {
    use std::os::unix::fs::FileExt as _;
    let memory = MapRequest::new(Kind::Base, MIB)
        .then(Kind::Memfd(PageSize::K4), MIB)
        .map(&real())
        .unwrap();
    assert!(memory.fd(0).is_none());
    poke(&memory, MIB + 5, 42);
    let file = std::fs::File::from(memory.fd(1).unwrap().try_clone_to_owned().unwrap());
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5).unwrap();
    assert_eq!(byte, [42]);
    // Sealed: nobody can cut the file off behind the mapping.
    assert!(file.set_len(0).is_err());
    assert!(file.set_len(2 * MIB).is_err());
}

#[test]
fn an_alias_repeats_its_pages() {
    let kind = Kind::Memfd(PageSize::K4);
    assert!(MapRequest::new(kind, 4096).map(&real()).is_ok());
    let none = Kind::Alias {
        page: PageSize::M2,
        pages: 0,
    };
    assert_eq!(
        MapRequest::new(none, 2 * MIB).map(&real()).unwrap_err(),
        MapError::Length {
            len: 2 * MIB,
            page: PageSize::M2
        }
    );
}

#[test]
fn an_alias_of_base_pages_repeats_them() {
    let kind = Kind::Alias {
        page: PageSize::K4,
        pages: 3,
    };
    let memory = MapRequest::new(kind, 20 << 10)
        .align(GIB)
        .map(&real())
        .unwrap();
    poke(&memory, 4 << 10, 9);
    assert_eq!(peek(&memory, 16 << 10), 9);
    poke(&memory, (20 << 10) - 1, 8);
    assert_eq!(peek(&memory, (8 << 10) - 1), 8);
}

#[test]
#[ignore = "needs huge pages"]
fn an_alias_of_huge_pages_repeats_them() {
    let _pools = crate::root::fake::pool_lock();
    let kind = Kind::Alias {
        page: PageSize::M2,
        pages: 3,
    };
    let memory = MapRequest::new(kind, 20 * MIB)
        .align(GIB)
        .map(&real())
        .unwrap();
    assert!(memory.base().is_multiple_of(GIB));
    poke(&memory, 2 * MIB, 9);
    assert_eq!(peek(&memory, 8 * MIB), 9);
    assert_eq!(peek(&memory, 14 * MIB), 9);
    poke(&memory, 20 * MIB - 1, 8);
    assert_eq!(peek(&memory, 2 * MIB - 1), 8);
}

#[test]
#[ignore = "needs huge pages"]
fn mixed_pages_in_one_range() {
    let _pools = crate::root::fake::pool_lock();
    let memory = MapRequest::new(Kind::HugeTlb(PageSize::M2), 4 * MIB)
        .then(Kind::Memfd(PageSize::M2), 2 * MIB)
        .then(Kind::Base, 12 << 10)
        .align(32 * MIB)
        .map(&real())
        .unwrap();
    assert!(memory.base().is_multiple_of(32 * MIB));
    assert_eq!(memory.len(), 6 * MIB + (12 << 10));
    assert_eq!(memory.page(), PageSize::K4);
    for offset in [0, 4 * MIB - 1, 4 * MIB, 6 * MIB, memory.len() - 1] {
        poke(&memory, offset, 3);
        assert_eq!(peek(&memory, offset), 3);
    }
    let vmas = crate::smaps::range(&real(), memory.base(), memory.len()).unwrap();
    let pages: Vec<(u64, u64)> = vmas.iter().map(|v| (v.end - v.start, v.page)).collect();
    assert_eq!(
        pages,
        [(4 * MIB, 2 * MIB), (2 * MIB, 2 * MIB), (12 << 10, 4096)]
    );
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let map = |request: MapRequest| request.map(&real()).unwrap_err();
    let m2 = Kind::HugeTlb(PageSize::M2);
    assert!(matches!(
        map(MapRequest::new(m2, 0)),
        MapError::Length { .. }
    ));
    assert!(matches!(
        map(MapRequest::new(m2, MIB)),
        MapError::Length { .. }
    ));
    assert!(matches!(
        map(MapRequest::new(Kind::Base, 4096).then(m2, 2 * MIB)),
        MapError::Order { offset: 4096, .. }
    ));
    assert!(matches!(
        map(MapRequest::new(Kind::Base, 4096).align(3)),
        MapError::Alignment { align: 3 }
    ));
    assert!(matches!(
        map(MapRequest::new(Kind::Base, 1 << 63)),
        MapError::TooLong
    ));
}

#[test]
fn a_short_pool_is_said_with_the_way_out() {
    let m2 = Kind::HugeTlb(PageSize::M2);
    // More than any host has; without a pool of that size the answer is another one.
    let error = MapRequest::new(m2, 1 << 46).map(&real()).unwrap_err();
    match error {
        MapError::HugePagesShort {
            need,
            short,
            available,
            way_out,
            ..
        } => {
            assert_eq!(need, 1 << 25);
            assert_eq!(short, need - available);
            // The host has not got the memory, so no command is offered that takes all of it.
            assert!(way_out.contains("the host can spare"), "{way_out}");
        }
        MapError::NoSuchPage { .. } | MapError::CgroupLimit { .. } => {}
        other => panic!("{other}"),
    }
}

#[test]
fn a_page_size_that_the_kernel_lacks() {
    let odd = PageSize::new(8 << 20).unwrap();
    for kind in [Kind::HugeTlb(odd), Kind::Memfd(odd)] {
        let error = MapRequest::new(kind, 8 << 20).map(&real()).unwrap_err();
        assert!(matches!(error, MapError::NoSuchPage { .. }), "{error}");
    }
}

/// A tree with a pool of 2 MiB pages on two nodes, and nothing else.
fn two_nodes() -> Tree {
    let tree = Tree::new();
    let dir = crate::pools::pool_dir(PageSize::M2, None);
    for (file, count) in [("nr", 30), ("free", 20), ("resv", 0), ("surplus", 0)] {
        tree.file(&format!("{dir}/{file}_hugepages"), &format!("{count}\n"));
    }
    for node in [0, 1] {
        let dir = crate::pools::pool_dir(PageSize::M2, Some(node));
        for (file, count) in [("nr", 15), ("free", 10), ("surplus", 0)] {
            tree.file(&format!("{dir}/{file}_hugepages"), &format!("{count}\n"));
        }
    }
    tree
}

#[test]
fn a_node_with_too_few_pages_is_refused_before_anything_is_mapped() {
    let request =
        MapRequest::new(Kind::HugeTlb(PageSize::M2), 12 * 2 * MIB).on(Placement::Bind(vec![1]));
    let tree = two_nodes();
    let said = || request.map(&tree.root()).unwrap_err().to_string();
    let short = "2 huge pages of 2 MiB short on node 1: 12 needed, 10 available; ";
    let command = "sudo sh -c 'echo 17 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages'";
    assert_eq!(said(), format!("{short}{command}"));
    // 512 MiB are for the host; what is left is enough, or one page short.
    for (spare, way_out) in [(4, command), (2, "the host can spare memory for 1 of them")] {
        let available = (512 + spare) << 10;
        tree.file(
            "/proc/meminfo",
            &format!("MemTotal: 1048576 kB\nMemAvailable: {available} kB\n"),
        );
        assert_eq!(said(), format!("{short}{way_out}"));
    }
}

#[test]
fn a_cgroup_limit_is_refused_before_anything_is_mapped() {
    let tree = two_nodes();
    tree.file("/proc/self/cgroup", "0::/a\n");
    tree.file(
        "/proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    tree.file("/sys/fs/cgroup/a/hugetlb.2MB.max", "4194304\n");
    tree.file("/sys/fs/cgroup/a/hugetlb.2MB.current", "2097152\n");
    let request = MapRequest::new(Kind::HugeTlb(PageSize::M2), 4 * MIB);
    let error = request.map(&tree.root()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the cgroup allows 4 MiB of 2 MiB pages and has 2 MiB left: 4 MiB needed; \
         raise /sys/fs/cgroup/a/hugetlb.2MB.max"
    );
}

#[test]
fn the_number_of_mappings_is_checked_before() {
    let tree = two_nodes();
    tree.file("/proc/self/maps", "a\nb\n");
    tree.file("/proc/sys/vm/max_map_count", "100\n");
    let kind = Kind::Alias {
        page: PageSize::M2,
        pages: 1,
    };
    let error = MapRequest::new(kind, 99 * 2 * MIB)
        .map(&tree.root())
        .unwrap_err();
    assert_eq!(
        error,
        MapError::MapCount {
            need: 99,
            used: 2,
            limit: 100
        }
    );
}

#[test]
fn transparent_huge_pages_where_they_are_off() {
    let tree = Tree::new();
    let error = MapRequest::new(Kind::Thp, 2 * MIB)
        .map(&tree.root())
        .unwrap_err();
    assert!(matches!(error, MapError::ThpOff { .. }), "{error}");
    tree.file(
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always madvise [never]\n",
    );
    let error = MapRequest::new(Kind::Thp, 2 * MIB)
        .map(&tree.root())
        .unwrap_err();
    assert!(error.to_string().contains("echo madvise"), "{error}");
}

#[test]
fn a_node_that_is_not_there() {
    let error = MapRequest::new(Kind::Base, MIB)
        .on(Placement::Bind(vec![900]))
        .map(&real())
        .unwrap_err();
    assert!(matches!(error, MapError::Nodes { .. }), "{error}");
    let memory = MapRequest::new(Kind::Base, MIB)
        .on(Placement::Bind(vec![0]))
        .map(&real());
    // A kernel without NUMA has no mbind.
    assert!(matches!(
        memory,
        Ok(_)
            | Err(MapError::Nodes {
                errno: Errno::ENOSYS,
                ..
            })
    ));
}

#[test]
fn private_memory_is_kept_out_of_children() {
    let flags = |kind, len| {
        let memory = MapRequest::new(kind, len).map(&real()).unwrap();
        let vmas = crate::smaps::range(&real(), memory.base(), len).unwrap();
        vmas[0]
            .flags
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let has = |flags: &[String], flag: &str| flags.iter().any(|f| f == flag);
    let base = flags(Kind::Base, MIB);
    assert!(has(&base, "dc") && !has(&base, "hg"), "{base:?}");
    let shared = flags(Kind::Memfd(PageSize::K4), MIB);
    assert!(has(&shared, "sh") && !has(&shared, "dc"), "{shared:?}");
    if let Ok(memory) = MapRequest::new(Kind::Thp, 4 * MIB).map(&real()) {
        assert!(memory.base().is_multiple_of(memory.page().bytes()));
        let vmas = crate::smaps::range(&real(), memory.base(), memory.len()).unwrap();
        assert!(
            vmas[0].flags.contains("dc") && vmas[0].flags.contains("hg"),
            "{vmas:?}"
        );
    }
}

/// Many threads map and unmap around each other: nobody's memory is replaced, nobody fails.
#[test]
fn places_are_never_taken_from_others() {
    std::thread::scope(|scope| {
        for n in 0..8u8 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let memory = MapRequest::new(Kind::Base, 64 << 10)
                        .then(Kind::Memfd(PageSize::K4), 64 << 10)
                        .then(Kind::Base, 64 << 10)
                        .align(MIB)
                        .map(&real())
                        .unwrap();
                    for offset in [0, 64 << 10, 128 << 10] {
                        poke(&memory, offset, n);
                    }
                    std::thread::yield_now();
                    for offset in [0, 64 << 10, 128 << 10] {
                        assert_eq!(peek(&memory, offset), n);
                    }
                }
            });
        }
    });
}
