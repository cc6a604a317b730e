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

/// `3.2 GiB`: nobody needs the bytes.
fn rough(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10240 && unit + 1 < units.len() {
        tenths /= 1024;
        unit += 1;
    }
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {}", units[unit]),
        (whole, tenth) => format!("{whole}.{tenth} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::{GIB, KIB, MIB};

    #[test]
    fn rough_sizes() {
        for (bytes, text) in [
            (0, "0 KiB"),
            (KIB, "1 KiB"),
            (MIB - 1, "1023.9 KiB"),
            (64 * MIB, "64 MiB"),
            (GIB + GIB / 2, "1.5 GiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(rough(bytes), text);
        }
    }
}
