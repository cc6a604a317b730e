//! What MRs over the memory of a running process would become: page size and entries of each mapping.
//!
//! With the physical layout the answer is exact ([`crate::layout::predict`]). Without it, it is bounded by what backs the
//! mapping; pages that happen to lie side by side, and would do better, are not counted.

use crate::layout::{Layout, Prediction, Rules, arrive, predict};
use crate::quirk::SEGMENT_CAP;
use crate::size::{GIB, PageSize, PageSizes};

/// One MR is taken to be at most that long: `max_mr_size` of eRDMA.
pub const LONGEST_MR: u64 = 64 * GIB;

/// A mapping that could be registered. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Length.
    pub len: u64,
    /// Path or name; empty for anonymous memory.
    pub name: String,
    /// Whether it is shared.
    pub shared: bool,
    /// Page size of the pool, or the base page.
    pub page: PageSize,
    /// Whether it is of a huge-page pool.
    pub hugetlb: bool,
    /// Memory that is present.
    pub present: u64,
    /// Memory in transparent huge pages.
    pub thp: u64,
}

/// What MRs over a mapping become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// The page size of the worst MR, at best and at worst.
    pub page: (PageSize, PageSize),
    /// Entries of all its MRs, at best and at worst.
    pub entries: (u64, u64),
    /// Whether it follows from the physical layout.
    pub exact: bool,
    /// Where the device would get another length than was asked for: of the first such MR, both.
    pub wrong_length: Option<(u64, u64)>,
}

impl Mapping {
    /// Lengths of its MRs.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64)> {
        let (start, len) = (self.start, self.len);
        (0..len.div_ceil(LONGEST_MR)).map(move |i| {
            let at = i * LONGEST_MR;
            (start + at, LONGEST_MR.min(len - at))
        })
    }

    /// The page size that backs all of it, at best and at worst.
    #[must_use]
    pub fn backing(&self) -> (PageSize, PageSize) {
        if self.hugetlb || self.page > PageSize::M2 {
            return (self.page, self.page);
        }
        if self.thp == self.len {
            return (PageSize::M2, PageSize::M2);
        }
        // What is not there yet may come in huge pages; one small page that is there decides for the whole MR.
        let small = self.present.saturating_sub(self.thp) > 0 || self.len < PageSize::M2.bytes();
        let best = if small { self.page } else { PageSize::M2 };
        (best, self.page)
    }

    /// Entries of its MRs at pages of that size.
    #[must_use]
    pub fn entries_at(&self, page: PageSize) -> u64 {
        self.pieces()
            .map(|(addr, len)| crate::layout::entries(page, addr, len))
            .sum()
    }
}

/// Forecasts the MRs over a mapping.
#[must_use]
pub fn forecast(mapping: &Mapping, layout: Option<&Layout>, rules: &Rules) -> Forecast {
    let cap = PageSizes::ERDMA;
    let exact: Option<Vec<Prediction>> = layout.and_then(|layout| {
        let pieces = mapping.pieces();
        pieces
            .map(|(addr, len)| predict(layout, addr, len, addr, cap, rules))
            .collect()
    });
    let (best, worst) = match &exact {
        Some(all) => (all.clone(), all.clone()),
        None => bounds(mapping, rules, cap),
    };
    let page = |all: &[Prediction]| all.iter().map(|p| p.page).min().unwrap_or(PageSize::K4);
    let entries = |all: &[Prediction]| all.iter().map(|p| p.entries).sum();
    let wrong = |all: &[Prediction]| {
        let mut pairs = all.iter().zip(mapping.pieces());
        pairs.find_map(|(p, (_, len))| (p.wire_len != len).then_some((len, p.wire_len)))
    };
    Forecast {
        page: (page(&best), page(&worst)),
        entries: (entries(&best), entries(&worst)),
        exact: exact.is_some(),
        wrong_length: wrong(&worst).or_else(|| wrong(&best)),
    }
}

fn bounds(mapping: &Mapping, rules: &Rules, cap: PageSizes) -> (Vec<Prediction>, Vec<Prediction>) {
    let (best, worst) = mapping.backing();
    let at = |page: PageSize, addr: u64, len: u64| {
        let page = if rules.large_pages {
            page
        } else {
            PageSize::K4
        };
        let page = cap.largest_at_most(page).unwrap_or(PageSize::K4);
        arrive(page, addr, len, rules)
    };
    let good = mapping
        .pieces()
        .map(|(addr, len)| at(best, addr, len))
        .collect();
    let bad = mapping
        .pieces()
        .map(|(addr, len)| {
            // With the old rule, 4 GiB in one physical run are enough.
            let falls = rules.old_rule && len > SEGMENT_CAP;
            at(if falls { PageSize::K4 } else { worst }, addr, len)
        })
        .collect();
    (good, bad)
}

/// Sums over mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Bytes.
    pub bytes: u64,
    /// Entries as it is now, at best and at worst.
    pub entries: (u64, u64),
    /// Entries if all of it lay on 2 MiB pages (1 GiB pages stay what they are).
    pub at_2m: u64,
}

impl Total {
    /// Adds a mapping.
    pub fn add(&mut self, mapping: &Mapping, forecast: &Forecast) {
        self.bytes += mapping.len;
        self.entries.0 += forecast.entries.0;
        self.entries.1 += forecast.entries.1;
        self.at_2m += mapping.entries_at(PageSize::M2.max(forecast.page.1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Family;
    use crate::host::{Driver, Platform, Presumption};
    use crate::layout::PhysRun;
    use crate::size::MIB;

    fn rules(kernel: &str, driver: Driver) -> Rules {
        Rules::of(
            &Platform {
                kernel: Some(kernel.parse().unwrap()),
                driver,
                sg_fix: None,
                mtt_va: Some(true),
                iommu: Some(false),
                large_pages: None,
                unknown: Presumption::Affected,
            },
            Family::Erdma,
        )
    }

    fn mapping(len: u64, page: PageSize, present: u64, thp: u64) -> Mapping {
        Mapping {
            start: 0x7f00_0000_0000,
            len,
            name: String::new(),
            shared: false,
            page,
            hugetlb: page > PageSize::K4,
            present,
            thp,
        }
    }

    #[test]
    fn what_backs_a_mapping() {
        let backing = |m: Mapping| m.backing();
        let (k4, m2) = (PageSize::K4, PageSize::M2);
        assert_eq!(backing(mapping(GIB, m2, GIB, 0)), (m2, m2));
        assert_eq!(backing(mapping(GIB, k4, GIB, GIB)), (m2, m2));
        assert_eq!(backing(mapping(GIB, k4, GIB, GIB - 2 * MIB)), (k4, k4));
        assert_eq!(backing(mapping(GIB, k4, 2 * MIB, 2 * MIB)), (m2, k4));
        assert_eq!(backing(mapping(GIB, k4, 0, 0)), (m2, k4));
        assert_eq!(backing(mapping(MIB, k4, 0, 0)), (k4, k4));
    }

    #[test]
    fn long_mappings_are_cut_and_old_kernels_may_fall_back() {
        let long = mapping(97 * GIB, PageSize::M2, 97 * GIB, 0);
        let new = rules("6.12.40", Driver::InTree);
        let seen = forecast(&long, None, &new);
        assert_eq!((seen.entries, seen.exact), ((49_664, 49_664), false));
        assert_eq!(seen.wrong_length, None);
        let old = rules("6.12.30", Driver::InTree);
        let seen = forecast(&long, None, &old);
        assert_eq!(seen.entries, (49_664, 97 * 262_144));
        assert_eq!(seen.page, (PageSize::M2, PageSize::K4));
        let early = rules("6.1.192", Driver::InTree);
        assert_eq!(
            forecast(&long, None, &early).wrong_length,
            Some((64 * GIB, 0))
        );
    }

    #[test]
    fn with_the_layout_the_forecast_is_exact() {
        let m = mapping(4 * MIB, PageSize::M2, 4 * MIB, 0);
        let runs = [1u64, 5].map(|at| PhysRun {
            phys: at * 2 * MIB,
            len: 2 * MIB,
        });
        let layout = Layout::new(m.start, runs);
        let seen = forecast(&m, Some(&layout), &rules("6.12.40", Driver::InTree));
        assert!(seen.exact);
        assert_eq!(
            (seen.page, seen.entries),
            ((PageSize::M2, PageSize::M2), (2, 2))
        );
        // A layout that does not cover it is no layout.
        let half = Layout::new(m.start, [runs[0]]);
        assert!(!forecast(&m, Some(&half), &rules("6.12.40", Driver::InTree)).exact);
    }

    #[test]
    fn sums() {
        let new = rules("6.12.40", Driver::InTree);
        let mut total = Total::default();
        for m in [
            mapping(GIB, PageSize::K4, GIB, 0),
            mapping(2 * GIB, PageSize::G1, 2 * GIB, 0),
        ] {
            total.add(&m, &forecast(&m, None, &new));
        }
        assert_eq!(total.bytes, 3 * GIB);
        assert_eq!(total.entries, (262_146, 262_146));
        assert_eq!(total.at_2m, 514);
    }
}
