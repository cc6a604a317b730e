//! What backs a range of addresses, by `/proc/PID/smaps`.
//!
//! smaps is written by walking the page tables of the *whole* process, and cannot be read from the middle: with 1 TiB
//! of populated 4 KiB pages this takes seconds. Where the page size is known otherwise, do not ask.

use std::io::{self, BufRead};

use hugemr_core::size::PageSize;

use crate::facts::ProcessId;
use crate::root::Root;

/// One mapping of a process, cut to the range that was asked for where it says so. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it is shared.
    pub shared: bool,
    /// Path or name; empty for anonymous memory.
    pub name: String,
    /// KernelPageSize: that of the pool for huge pages, else the base page.
    pub page: u64,
    /// Memory that is present, not counting huge pages of a pool.
    pub rss: u64,
    /// Memory in transparent huge pages: anonymous, shared and file together.
    pub thp: u64,
    /// Huge pages of a pool that are present.
    pub hugetlb: u64,
    /// VmFlags, for example `rd wr mr mw me ac ht`.
    pub flags: String,
}

impl Vma {
    /// The page size of all of it as far as smaps tells: that of the pool, that of transparent huge pages where they
    /// cover it all, else the base page.
    ///
    /// smaps counts bytes and not places: a mapping that is huge but for one hole shows as base pages, and huge pages
    /// between 4 KiB and 2 MiB (Linux 6.8, `hugepages-64kB` and others) do not show at all.
    #[must_use]
    pub fn page_size(&self, thp: PageSize) -> PageSize {
        let own = PageSize::new(self.page).unwrap_or(PageSize::K4);
        if own < thp && self.thp > 0 && self.thp == self.end - self.start {
            thp
        } else {
            own
        }
    }
}

/// All mappings of a process.
///
/// # Errors
/// That of the system: no such process, or no right to see it.
pub fn all(root: &Root, id: ProcessId) -> io::Result<Vec<Vma>> {
    read(root, id, |_, _| true)
}

/// The mappings of this process that overlap `[base, base + len)`, in order, whole (not cut).
///
/// # Errors
/// That of the system.
pub fn range(root: &Root, base: u64, len: u64) -> io::Result<Vec<Vma>> {
    let end = base.saturating_add(len);
    read(root, ProcessId::Own, move |start, stop| {
        start < end && stop > base
    })
}

/// The mapping of this process at `addr`, by `/proc/self/maps`: cheap, but without sizes and flags.
///
/// # Errors
/// That of the system.
pub fn mapping_at(root: &Root, addr: u64) -> io::Result<Option<Vma>> {
    let maps = root.read(&ProcessId::Own.file("maps"))?;
    Ok(maps
        .lines()
        .filter_map(header)
        .find(|vma| (vma.start..vma.end).contains(&addr)))
}

/// Start of the first mapping in `[base, base + len)` that has a huge page, transparent or of a pool, or none: the
/// confirmation that memory of base pages is just that.
///
/// # Errors
/// That of the system.
pub fn huge_in(root: &Root, base: u64, len: u64) -> io::Result<Option<u64>> {
    let huge = |vma: &Vma| vma.thp > 0 || vma.hugetlb > 0 || vma.page > crate::sys::base_page();
    let vmas = range(root, base, len)?;
    Ok(vmas.iter().find(|vma| huge(vma)).map(|vma| vma.start))
}

/// The first address of `[base, base + len)` that no mapping of `vmas` covers.
#[must_use]
pub fn first_gap(vmas: &[Vma], base: u64, len: u64) -> Option<u64> {
    let end = base.saturating_add(len);
    let mut at = base;
    for vma in vmas {
        if at >= end || vma.start > at {
            break;
        }
        at = at.max(vma.end);
    }
    (at < end).then_some(at)
}

fn read(root: &Root, id: ProcessId, wanted: impl Fn(u64, u64) -> bool) -> io::Result<Vec<Vma>> {
    let file = std::fs::File::open(root.path(&id.file("smaps")))?;
    let mut vmas: Vec<Vma> = Vec::new();
    let mut inside = false;
    for line in io::BufReader::new(file).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(vma) = header(&line) {
            inside = wanted(vma.start, vma.end);
            if inside {
                vmas.push(vma);
            }
        } else if inside && let Some(vma) = vmas.last_mut() {
            detail(vma, &line);
        }
    }
    Ok(vmas)
}

/// `7f0000000000-7f0000200000 rw-s 00000000 00:0f 12 /anon_hugepage (deleted)`.
fn header(line: &str) -> Option<Vma> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let &[read, write, _, shared] = rights else {
        return None;
    };
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Vma {
        start: hex(start)?,
        end: hex(end)?,
        readable: read == b'r',
        writable: write == b'w',
        shared: shared == b's',
        name: words.skip(3).collect::<Vec<_>>().join(" "),
        ..Vma::default()
    })
}

fn detail(vma: &mut Vma, line: &str) {
    let Some((name, rest)) = line.split_once(':') else {
        return;
    };
    if name == "VmFlags" {
        rest.trim().clone_into(&mut vma.flags);
        return;
    }
    let kib = rest.trim().strip_suffix("kB").map(str::trim);
    let Some(bytes) = kib
        .and_then(|kib| kib.parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024))
    else {
        return;
    };
    match name {
        "KernelPageSize" => vma.page = bytes,
        "Rss" => vma.rss = bytes,
        "AnonHugePages" | "ShmemPmdMapped" | "FilePmdMapped" => {
            vma.thp = vma.thp.saturating_add(bytes);
        }
        "Shared_Hugetlb" | "Private_Hugetlb" => {
            vma.hugetlb = vma.hugetlb.saturating_add(bytes);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-s 00000000 00:0f 12     /anon_hugepage (deleted)
Size:               4096 kB
KernelPageSize:     2048 kB
Rss:                   0 kB
Shared_Hugetlb:     2048 kB
VmFlags: rd wr sh mr mw me ms ac de ht
7f0000400000-7f0000800000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:                4096 kB
AnonHugePages:      4096 kB
VmFlags: rd wr mr mw me ac hg
7f0000900000-7f0000901000 r--p 00000000 08:01 5 /lib/a
KernelPageSize:        4 kB
AnonHugePages:         0 kB
";

    #[test]
    fn kinds_of_backing() {
        let tree = Tree::new();
        tree.file("/proc/self/smaps", SMAPS);
        let vmas = all(&tree.root(), ProcessId::Own).unwrap();
        assert_eq!(vmas.len(), 3);
        assert_eq!(vmas[0].page_size(PageSize::M2), PageSize::M2);
        assert_eq!(vmas[0].hugetlb, 2 << 20);
        assert_eq!(vmas[0].name, "/anon_hugepage (deleted)");
        assert!(vmas[0].shared && vmas[0].flags.ends_with("ht"));
        assert_eq!(vmas[1].page_size(PageSize::M2), PageSize::M2);
        assert_eq!(vmas[2].page_size(PageSize::M2), PageSize::K4);
        assert!(!vmas[2].writable);
    }

    #[test]
    fn ranges_and_gaps() {
        let tree = Tree::new();
        tree.file("/proc/self/smaps", SMAPS);
        let part = |base, len| range(&tree.root(), base, len).unwrap();
        assert_eq!(part(0x7f00_003f_f000, 0x2000).len(), 2);
        assert_eq!(part(0x7f00_0080_0000, 0x1000).len(), 0);
        let gap = |base, len| first_gap(&part(base, len), base, len);
        assert_eq!(gap(0x7f00_0000_0000, 0x80_0000), None);
        assert_eq!(gap(0x7f00_0000_0000, 0x80_0001), Some(0x7f00_0080_0000));
        assert_eq!(gap(0x7f00_0070_0000, 0x30_0000), Some(0x7f00_0080_0000));
        assert_eq!(gap(0x1000, 1), Some(0x1000));
    }

    #[test]
    fn own_memory_is_found() {
        let here = Box::new(7u64);
        let base = (&raw const *here).addr() as u64;
        let vmas = range(&Root::real(), base, 8).unwrap();
        assert_eq!(vmas.len(), 1);
        assert!(vmas[0].readable && vmas[0].writable && vmas[0].rss > 0);
    }
}
