//! The memory of a running process, as far as it could be registered.

use std::io;

use hugemr_core::inspect::Mapping;
use hugemr_core::layout::Layout;
use hugemr_core::size::{GIB, PageSize};

use crate::facts::{Process, ProcessId};
use crate::layout::{LayoutError, PageMap, Stride};
use crate::root::Root;
use crate::smaps::{self, Vma};

/// Why a process cannot be inspected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// It is not there, or no longer.
    #[error("there is no process {0}")]
    Gone(ProcessId),
    /// It belongs to somebody else.
    #[error("the mappings of process {0} are not for this user")]
    NotAllowed(ProcessId),
    /// Another failure.
    #[error("the mappings of process {process} could not be read")]
    Read {
        /// Which.
        process: ProcessId,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// One mapping with its physical layout, where that could be read.
#[derive(Debug)]
pub struct Seen {
    /// The mapping.
    pub mapping: Mapping,
    /// Its layout.
    pub layout: Result<Layout, NoLayout>,
}

/// Why there is no layout of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoLayout {
    /// Physical addresses are hidden from this process.
    NotAllowed,
    /// Not all of it is there: what is not, will be when it is registered.
    NotPopulated,
    /// So many small pages that reading them all takes too long.
    TooLarge,
    /// It changed while it was read, or pagemap could not be read.
    Failed,
}

/// A process and its memory.
#[derive(Debug)]
pub struct Inspection {
    /// The process.
    pub process: Process,
    /// Mappings that could be MRs, in the order of addresses.
    pub mappings: Vec<Seen>,
    /// Mappings that could not, and why nobody would: code, read-only files, device memory.
    pub others: usize,
}

/// Above that, memory of base pages is not read page by page.
const LARGE: u64 = 8 * GIB;

/// Inspects a process.
///
/// # Errors
/// See [`InspectError`].
pub fn inspect(root: &Root, id: ProcessId) -> Result<Inspection, InspectError> {
    let process = Process::read(root, id);
    let all = smaps::all(root, id).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => InspectError::Gone(id),
        io::ErrorKind::PermissionDenied => InspectError::NotAllowed(id),
        // ESRCH: it went while it was read.
        _ if source.raw_os_error() == Some(libc::ESRCH) => InspectError::Gone(id),
        _ => InspectError::Read {
            process: id,
            source,
        },
    })?;
    let pagemap = PageMap::open(root, id);
    let total = all.len();
    let mappings: Vec<Seen> = all
        .into_iter()
        .filter(could_be_registered)
        .map(|vma| {
            let mapping = mapping(vma);
            let layout = layout(&mapping, &pagemap);
            Seen { mapping, layout }
        })
        .collect();
    Ok(Inspection {
        process,
        others: total - mappings.len(),
        mappings,
    })
}

/// Memory that programs register: their own, shared, or of a huge-page pool; no code, no private files, no registers of
/// devices.
fn could_be_registered(vma: &Vma) -> bool {
    let flag = |name: &str| vma.flags.split(' ').any(|flag| flag == name);
    let special = vma.name.starts_with("[v") || vma.name.starts_with("[stack");
    let private_file = vma.name.starts_with('/') && !vma.shared && !flag("ht");
    vma.readable && vma.writable && !flag("io") && !flag("pf") && !special && !private_file
}

fn mapping(vma: Vma) -> Mapping {
    let hugetlb = vma.flags.split(' ').any(|flag| flag == "ht");
    Mapping {
        start: vma.start,
        len: vma.end - vma.start,
        shared: vma.shared,
        page: PageSize::new(vma.page).unwrap_or(PageSize::K4),
        hugetlb,
        present: if hugetlb { vma.hugetlb } else { vma.rss },
        thp: vma.thp,
        name: vma.name,
    }
}

fn layout(mapping: &Mapping, pagemap: &Result<PageMap, LayoutError>) -> Result<Layout, NoLayout> {
    if mapping.present < mapping.len {
        return Err(NoLayout::NotPopulated);
    }
    if !mapping.hugetlb && mapping.len > LARGE {
        return Err(NoLayout::TooLarge);
    }
    let stride = if mapping.hugetlb {
        Stride::Huge(mapping.page)
    } else {
        Stride::Every
    };
    let why = |error: &LayoutError| match error {
        LayoutError::NotAllowed => NoLayout::NotAllowed,
        LayoutError::NotPresent { .. } | LayoutError::Swapped { .. } => NoLayout::NotPopulated,
        _ => NoLayout::Failed,
    };
    let pagemap = pagemap.as_ref().map_err(why)?;
    let runs = pagemap.runs(mapping.start, mapping.len, stride, 1);
    runs.map(|runs| Layout::new(mapping.start, runs))
        .map_err(|error| why(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    const SMAPS: &str = "\
400000-401000 r-xp 00000000 08:01 5 /bin/a
KernelPageSize:        4 kB
VmFlags: rd ex mr mw me
7f0000000000-7f0000400000 rw-s 00000000 00:0f 12     /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Shared_Hugetlb:     2048 kB
VmFlags: rd wr sh mr mw me ms ac de ht
7f0000400000-7f0000800000 rw-p 00000000 00:00 0
KernelPageSize:        4 kB
Rss:                4096 kB
AnonHugePages:      4096 kB
VmFlags: rd wr mr mw me ac hg
7f0000900000-7f0000901000 rw-s 00000000 00:05 5 /dev/nvidia0
KernelPageSize:        4 kB
VmFlags: rd wr sh io pf
7f0000a00000-7f0000a01000 rw-p 00000000 08:01 5 /lib/a
KernelPageSize:        4 kB
VmFlags: rd wr
";

    #[test]
    fn what_could_be_registered() {
        let tree = Tree::new();
        tree.file("/proc/7/smaps", SMAPS);
        tree.file("/proc/7/status", "Name:\tstore\nVmPin:\t4096 kB\n");
        let seen = inspect(&tree.root(), ProcessId::Pid(7)).unwrap();
        assert_eq!(seen.process.pinned, Some(4 << 20));
        assert_eq!((seen.mappings.len(), seen.others), (2, 3));
        let first = &seen.mappings[0];
        assert!(first.mapping.hugetlb && first.mapping.shared);
        assert_eq!(
            (first.mapping.page, first.mapping.present),
            (PageSize::M2, 2 << 20)
        );
        assert_eq!(first.layout, Err(NoLayout::NotPopulated));
        // No pagemap in the tree.
        assert_eq!(seen.mappings[1].layout, Err(NoLayout::Failed));
        assert!(matches!(
            inspect(&tree.root(), ProcessId::Pid(8)),
            Err(InspectError::Gone(_))
        ));
    }

    #[test]
    fn own_memory_can_be_inspected() {
        let seen = inspect(&Root::real(), ProcessId::Own).unwrap();
        assert!(
            seen.mappings
                .iter()
                .any(|seen| seen.mapping.name == "[heap]")
        );
        assert!(seen.others > 0);
    }
}
