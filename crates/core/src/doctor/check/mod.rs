//! The checks, one subject a file.

mod cgroup;
mod driver;
mod look;
mod memory;
mod pools;
mod process;
mod stack;
mod wish;

use super::{Examined, Finding};

pub(super) use wish::refused;

type Check = fn(&Examined<'_>, &mut Vec<Finding>);

/// All checks. Within one degree of harm, findings are said in this order.
pub(super) const ALL: &[Check] = &[
    stack::verbs,
    stack::functions,
    stack::ports,
    wish::device,
    pools::pools,
    pools::memory,
    pools::node,
    process::memlock,
    process::address_space,
    cgroup::hugetlb,
    cgroup::memory,
    driver::quirks,
    driver::compat_mode,
    driver::iommu,
    wish::budget,
    memory::transparent,
    memory::movable,
    memory::max_map_count,
    memory::shm,
    memory::hugetlbfs,
    look::kprobes,
    look::dynamic_debug,
    driver::versions,
];
