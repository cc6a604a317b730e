//! Facts of this host, as the planner takes them.

use hugemr_core::host::Host;
use hugemr_host::facts::Facts;
use hugemr_host::root::Root;

/// Reads what can be read, for this process.
pub(crate) fn read() -> Host {
    Facts::read(&Root::real()).host()
}

/// Free huge pages by size, for a comparison before and after.
pub(crate) fn free_pages() -> Vec<(hugemr_core::size::PageSize, u64)> {
    let pools = hugemr_host::pools::Pools::read(&Root::real());
    pools
        .sizes()
        .into_iter()
        .filter_map(|page| Some((page, pools.of(page)?.available()?)))
        .collect()
}

/// Threads for populating and registering: the CPUs that this process may use.
pub(crate) fn threads() -> std::num::NonZeroUsize {
    let cpus = hugemr_host::populate::usable_cpus(&Root::real());
    std::num::NonZeroUsize::new(cpus).unwrap_or(std::num::NonZeroUsize::MIN)
}
