//! What the unmodified Linux driver sent to an emulated eRDMA device, measured in virtual machines with Ubuntu's 6.8
//! and Debian's 6.1.192, 6.12.117 and 7.3.4, the latter three also with the page-size fix taken out.

use hugemr_core::errno::Errno;
use hugemr_core::host::Driver;
use hugemr_core::layout::PhysRun;
use hugemr_core::size::{GIB, KIB, MIB, PageSize};
use hugemr_sim::{DefaultLayout, Overrides, SimDevice, SimMemory};

use crate::common::{BASE, reg, sim};

/// The in-tree driver on this kernel. `fixed` replaces what the version says.
fn kernel(version: &str, fixed: Option<bool>, page: PageSize) -> SimDevice {
    let overrides = Overrides {
        kernel: Some(version.parse().ok()),
        driver: Some(Driver::InTree),
        sg_fix: fixed,
        memory: Some(DefaultLayout::scattered(page)),
        ..Overrides::default()
    };
    sim("sim:erdma", &overrides)
}

/// (page shift, entries, level) of one MR at [`BASE`].
fn shape(device: &SimDevice, addr: u64, len: u64) -> Result<(u32, u64, u8), Errno> {
    let mr = reg(device, addr, len)?;
    let arrival = device.mr(mr.handle).expect("a live MR").arrival;
    Ok((arrival.page.shift(), arrival.entries, arrival.level))
}

/// One ascending run at `phys`.
fn ascending(device: &SimDevice, addr: u64, len: u64, phys: u64) {
    let run = PhysRun { phys, len };
    let runs = SimMemory::Runs(vec![run]);
    device.back(addr, len, runs).expect("a range");
}

#[test]
fn entries_without_a_long_run() {
    let check = |page, len, want| {
        for version in ["6.6.1", "6.8", "6.12.117", "7.3.4"] {
            let device = kernel(version, None, page);
            assert_eq!(shape(&device, BASE, len), Ok(want), "{version}, {page}");
        }
    };
    check(PageSize::K4, MIB, (12, 256, 1));
    check(PageSize::K4, 256 * MIB, (12, 65_536, 2));
    check(PageSize::M2, GIB, (21, 512, 1));
    check(PageSize::M2, 5 * GIB, (21, 2560, 2));
    check(PageSize::M2, 64 * GIB, (21, 32_768, 2));
    check(PageSize::G1, GIB, (30, 1, 0));
    check(PageSize::G1, 5 * GIB, (30, 5, 1));
    // A fresh guest whose 4 KiB pages came in aligned runs of 32 KiB.
    let runs = PageSize::new(32 * KIB).expect("a page");
    check(runs, MIB, (15, 32, 1));
}

#[test]
fn pages_grow_where_addresses_agree() {
    for (agree, want) in [
        (4 * MIB, (22, 64, 1)),
        (16 * MIB, (24, 16, 1)),
        (32 * MIB, (25, 8, 1)),
    ] {
        let device = kernel("6.12.117", None, PageSize::M2);
        ascending(&device, BASE, 256 * MIB, agree);
        assert_eq!(shape(&device, BASE, 256 * MIB), Ok(want));
    }
    // Congruent modulo 1 GiB, start in the middle of a 1 GiB block.
    let device = kernel("7.3.4", None, PageSize::M2);
    let start = BASE + 512 * MIB;
    ascending(&device, start, 2 * GIB, 8 * GIB + 512 * MIB);
    assert_eq!(shape(&device, start, 2 * GIB), Ok((30, 3, 0)));
}

#[test]
fn one_long_run() {
    type Want = Result<(u32, u64), Errno>;
    let check = |version: &str, fixed, phys, len, want: Want| {
        let device = kernel(version, Some(fixed), PageSize::M2);
        ascending(&device, BASE, len, phys);
        let shape = shape(&device, BASE, len);
        let own = shape.map(|(shift, entries, _)| (shift, entries));
        assert_eq!(own, want, "{version} fixed {fixed}, {len}");
    };
    let whole = 8 * GIB;
    for version in ["6.8.0", "6.12.117"] {
        check(version, false, whole, 4 * GIB, Ok((12, 1_048_576)));
        check(version, false, whole, 5 * GIB, Ok((12, 1_310_720)));
        check(version, false, 4 * MIB, 4096 * MIB, Ok((12, 1_048_576)));
    }
    check("6.1.192", false, whole, 4 * GIB, Err(Errno::ENOMEM));
    check("6.1.192", false, whole, 5 * GIB, Err(Errno::ENOMEM));
    check("6.1.192", false, 16 * MIB, 4096 * MIB, Err(Errno::ENOMEM));
    // 2 MiB less is harmless.
    check("6.8.0", false, 4 * MIB, 4094 * MIB, Ok((22, 1024)));
    check("6.12.117", false, 32 * MIB, 4094 * MIB, Ok((25, 128)));
    check("6.1.192", false, 16 * MIB, 4094 * MIB, Ok((24, 256)));
    for version in ["6.1.192", "6.12.117", "7.3.4"] {
        check(version, true, whole, 4 * GIB, Ok((30, 4)));
        check(version, true, whole, 5 * GIB, Ok((30, 5)));
    }
    check("6.12.117", true, 16 * MIB, 4094 * MIB, Ok((24, 256)));
    check("6.12.117", true, 16 * MIB, 4096 * MIB, Ok((24, 256)));
}

#[test]
fn linux_6_1_needs_one_block_for_the_table() {
    let device = kernel("6.1.192", None, PageSize::K4);
    assert_eq!(shape(&device, BASE, 2 * GIB), Ok((12, 524_288, 1)));
    let over = shape(&device, BASE, 2 * GIB + 4096);
    assert_eq!(over, Err(Errno::ENOMEM));
}

#[test]
fn huge_pages_keep_their_size_from_any_start() {
    let device = kernel("6.12.117", None, PageSize::M2);
    assert_eq!(shape(&device, BASE + 4096, 16 * MIB), Ok((21, 9, 1)));
    // One page, and a range inside one page.
    assert_eq!(shape(&device, BASE, 2 * MIB), Ok((21, 1, 0)));
    assert_eq!(shape(&device, BASE, 4096), Ok((12, 1, 0)));
}

#[test]
fn a_budget_is_used_up_to_the_last_entry() {
    let with = |entries| {
        let device = Overrides {
            actual_entries: Some(entries),
            memory: Some(DefaultLayout::scattered(PageSize::K4)),
            ..Overrides::default()
        };
        sim("sim:erdma", &device)
    };
    for (budget, chunk, fit) in [
        (655_360, 256 * MIB, 10),
        (196_608, 128 * MIB, 6),
        (3_000_000, GIB, 11),
    ] {
        let device = with(budget);
        let (mrs, failed) = crate::common::reg_chunks(&device, 20 * GIB, chunk);
        assert_eq!((mrs.len(), failed), (fit, Some((fit, Errno::EIO))));
    }
}
