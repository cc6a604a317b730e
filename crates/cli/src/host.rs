//! Facts of this host, as the planner takes them.

use hugemr_core::device::Used;
use hugemr_core::host::Host;
use hugemr_core::plan::{Pages, Plan};
use hugemr_core::size::{GIB, PageSize};
use hugemr_host::facts::{Facts, Memory};
use hugemr_host::netlink::{self, Mr};
use hugemr_host::root::Root;

/// Reads what can be read, for this process.
pub(crate) fn read() -> Host {
    Facts::read(&Root::real()).host()
}

/// The host as it could be with `--reserve`: the pools that the pages come from raised by so much memory.
/// Pools of several sizes would take the same memory; the reservation itself finds that out. `auto` raises that of 2 MiB
/// pages: 1 GiB of contiguous memory is rare on a running host, and must be asked for.
pub(crate) fn with_raised_pools(host: &Host, pages: Pages, memory: u64) -> Host {
    let wanted = |page: PageSize| match pages {
        Pages::Auto => page == PageSize::M2,
        Pages::Only(only) => page == only,
        Pages::Mixed => true,
        Pages::Thp => false,
    };
    let mut host = host.clone();
    let mut raised: Vec<PageSize> = Vec::new();
    for pool in host.nodes.iter_mut().flatten().flat_map(|n| &mut n.pools) {
        if wanted(pool.page) && !raised.contains(&pool.page) {
            raised.push(pool.page);
            pool.free = pool.free.saturating_add(memory / pool.page.bytes());
        }
    }
    host
}

/// What is risked where the missing pages of a plan are added to the pools; `None`: nothing.
pub(crate) fn risk_of_raising(plan: &Plan) -> Option<String> {
    let free = free_pages();
    let missing = plan.huge_pages.iter().map(|(page, count)| {
        let there = free
            .iter()
            .find(|(of, _)| of == page)
            .map_or(0, |(_, n)| *n);
        count.saturating_sub(there).saturating_mul(page.bytes())
    });
    Memory::read(&Root::real()).risk(missing.fold(0, u64::saturating_add))
}

/// Free huge pages by size, for a comparison before and after.
pub(crate) fn free_pages() -> Vec<(PageSize, u64)> {
    let pools = hugemr_host::pools::Pools::read(&Root::real());
    pools
        .sizes()
        .into_iter()
        .filter_map(|page| Some((page, pools.of(page)?.available()?)))
        .collect()
}

/// Page size of ordinary memory.
pub(crate) fn base_page() -> Option<PageSize> {
    // SAFETY: sysconf touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    PageSize::new(u64::try_from(bytes).ok()?).ok()
}

/// Sizes of huge pages of which this kernel has pools.
pub(crate) fn huge_page_sizes() -> Vec<PageSize> {
    hugemr_host::pools::Pools::read(&Root::real()).sizes()
}

/// Threads for populating and registering: the CPUs that this process may use.
pub(crate) fn threads() -> std::num::NonZeroUsize {
    let cpus = hugemr_host::populate::usable_cpus(&Root::real());
    std::num::NonZeroUsize::new(cpus).unwrap_or(std::num::NonZeroUsize::MIN)
}

/// What MRs other than those of this process take on a device, as far as the kernel lists them.
pub(crate) fn used_by_others(device: &str) -> Used {
    let own = std::process::id();
    netlink::mrs(device).map_or(Used::UNKNOWN, |mrs| {
        used(mrs.iter().filter(|mr| mr.pid != Some(own)))
    })
}

/// Entries and number of MRs: the kernel tells lengths, and not the page size.
pub(crate) fn used<'a>(mrs: impl Iterator<Item = &'a Mr>) -> Used {
    let mut used = Used::NOTHING;
    let (mut least, mut most, mut count) = (0u64, 0u64, 0u64);
    for mr in mrs {
        count += 1;
        least = least.saturating_add(mr.len.div_ceil(GIB).max(1));
        // It may begin and end within a page.
        most = most.saturating_add(PageSize::K4.pages_for(mr.len).saturating_add(1));
    }
    used.entries = (least, Some(most));
    used.mrs = (count, Some(count));
    used
}

/// CPUs of this host: those of the instance.
pub(crate) fn cpus() -> Option<u64> {
    let online = Root::real().text("/sys/devices/system/cpu/online")?;
    hugemr_host::root::parse_list(&online).map(|list| list.len() as u64)
}

/// Whether a hypervisor shows itself to this host: x86 has a flag for it.
pub(crate) fn is_virtual(root: &Root) -> bool {
    let info = root.read("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_machine_is_known_by_its_flag() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::at(folder.path());
        assert!(!is_virtual(&root));
        std::fs::create_dir(folder.path().join("proc")).expect("a folder");
        for (info, expected) in [
            ("processor\t: 0\nflags\t\t: fpu hypervisor lahf_lm\n", true),
            ("processor\t: 0\nflags\t\t: fpu lahf_lm\n", false),
            ("model name\t: hypervisor\nflags\t\t: fpu\n", false),
            ("processor\t: 0\nFeatures\t: fp asimd\n", false),
        ] {
            std::fs::write(folder.path().join("proc/cpuinfo"), info).expect("a file");
            assert_eq!(is_virtual(&root), expected, "{info}");
        }
    }
}
