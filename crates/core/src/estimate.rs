//! How long a plan will take, from what a unit of each step costs, with the uncertainty of that.
//!
//! Every cost is three numbers: at best, likely, at worst. Nothing is added in quadrature: what differs here (cold memory,
//! fragmentation, an unknown device) differs for all units alike.
//!
//! *Invariant*: a step whose cost is not known has no time, and a total that needs it has no upper end.

use crate::fact::{Kind, Source};
use crate::plan::Plan;
use crate::size::GIB;

/// A number of seconds with its uncertainty, `best <= likely <= worst`. `worst` is `None` where there is no telling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// At best.
    pub best: f64,
    /// Likely.
    pub likely: f64,
    /// At worst.
    pub worst: Option<f64>,
}

impl Seconds {
    /// None at all.
    pub const ZERO: Self = Self::exactly(0.0);

    /// The same at best and at worst.
    #[must_use]
    pub const fn exactly(seconds: f64) -> Self {
        Self {
            best: seconds,
            likely: seconds,
            worst: Some(seconds),
        }
    }

    /// Of several measurements: the median, and from a fifth below the shortest to a quarter above the longest, because a short
    /// measurement does not see everything. `None` of none.
    #[must_use]
    pub fn of(measured: &[f64]) -> Option<Self> {
        let mut sorted = measured.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            best: *sorted.first()? * 0.8,
            likely: *sorted.get(sorted.len() / 2)?,
            worst: sorted.last().map(|longest| longest * 1.25),
        })
    }

    /// Whether a time lies between best and worst.
    #[must_use]
    pub fn has(&self, seconds: f64) -> bool {
        self.best <= seconds && self.worst.is_none_or(|worst| seconds <= worst)
    }

    fn times(self, factor: f64) -> Self {
        Self {
            best: self.best * factor,
            likely: self.likely * factor,
            worst: self.worst.map(|worst| worst * factor),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            best: self.best + other.best,
            likely: self.likely + other.likely,
            worst: self.worst.zip(other.worst).map(|(one, two)| one + two),
        }
    }

    /// Two steps that overlap, cut into `chunks`: at best the longer counts alone; likely the shorter has one chunk that
    /// nothing overlaps; at worst both want the same CPUs, and take turns.
    fn overlapping(self, other: Self, chunks: u64) -> Self {
        let likely = self.likely.max(other.likely);
        let shorter = self.likely.min(other.likely);
        let likely = likely + shorter / chunks.max(1) as f64;
        let worst = self.plus(other).worst;
        Self {
            best: self.best.max(other.best),
            likely: worst.map_or(likely, |worst| likely.min(worst)),
            worst,
        }
    }
}

/// What one unit of a step costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Seconds for one unit.
    pub per_unit: Seconds,
    /// Seconds besides, however many units there are. Nothing where there are none.
    pub once: Seconds,
    /// How it is known.
    pub source: Source,
}

impl Cost {
    /// Reserving a huge page of a pool, where nothing was measured: 3.3 us were measured for 2 MiB pages of unfragmented
    /// memory, and up to 0.53 ms where the kernel had to reclaim and compact for them. Clearing is not in it: Linux
    /// clears a page of a pool when it is touched first. Besides, 5 to 8 ms were measured for reserving 32 pages.
    #[must_use]
    pub fn assumed_reserve() -> Self {
        let per_unit = Seconds {
            best: 3.0e-6,
            likely: 3.3e-6,
            worst: Some(530e-6),
        };
        let once = Seconds {
            best: 0.0,
            likely: 2e-3,
            worst: Some(10e-3),
        };
        let text = "2 MiB pages on another machine, unfragmented to fragmented";
        Self {
            per_unit,
            once,
            source: Source::new(Kind::Assumed, text),
        }
    }

    fn of(&self, units: f64) -> Seconds {
        self.per_unit.times(units).plus(self.once)
    }
}

/// What is known of this host and device. `None`: not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Adding one huge page to a pool.
    pub reserve: Option<Cost>,
    /// Making a GiB real, with all threads together.
    pub populate: Option<Cost>,
    /// Pinning a GiB, on one thread.
    pub pin: Option<Cost>,
    /// What the device takes for one MR besides, however many are asked of it at once.
    pub command: Option<Cost>,
}

/// How a plan will be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Huge pages that are missing in the pools, and will be added.
    pub missing_pages: u64,
    /// Threads that populate, and as many that register.
    pub threads: u64,
}

/// Predicted times of a plan, for one process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Raising pools.
    pub reserve: Option<Seconds>,
    /// Making pages real.
    pub populate: Option<Seconds>,
    /// Pinning, the part of registering that the kernel does on the CPU.
    pub pin: Option<Seconds>,
    /// Registering: pinning, and the device's own time. Its worst is `None` where the device's time is not known.
    pub register: Option<Seconds>,
    /// All of it; populating and registering overlap.
    pub total: Option<Seconds>,
}

impl Estimate {
    /// Of one process that registers the plan on one device in one PD.
    #[must_use]
    pub fn of(plan: &Plan, way: Way, costs: &Costs) -> Self {
        let gib = plan.mapped as f64 / GIB as f64;
        let mrs = plan.mrs.max(1);
        let threads = way.threads.clamp(1, mrs) as f64;
        let of = |cost: &Option<Cost>, units: f64| Some(cost.as_ref()?.of(units));
        let reserve = match way.missing_pages {
            0 => Some(Seconds::ZERO),
            missing => of(&costs.reserve, missing as f64),
        };
        let populate = of(&costs.populate, gib);
        let pin = of(&costs.pin, gib / threads);
        let register = pin.map(|pin| match of(&costs.command, mrs as f64) {
            Some(commands) => pin.plus(commands),
            None => Seconds { worst: None, ..pin },
        });
        let total = reserve
            .zip(populate.zip(register))
            .map(|(reserve, (populate, register))| {
                reserve.plus(populate.overlapping(register, mrs))
            });
        Self {
            reserve,
            populate,
            pin,
            register,
            total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, Family};
    use crate::host::{Host, Platform};
    use crate::plan::{Pages, PlanRequest, plan};
    use crate::size::PageSize;
    use crate::version::KernelVersion;

    fn planned(gib: u64, chunk_gib: u64) -> Plan {
        let mut request = PlanRequest::total(gib * GIB).pages(Pages::Only(PageSize::M2));
        request.chunk = Some(chunk_gib * GIB);
        let device = Device::unlimited("test", Family::Other);
        let platform = Platform {
            // With the fix for MRs of more than 4 GiB.
            kernel: Some(KernelVersion::new(6, 16, 0)),
            iommu: Some(false),
            ..Platform::default()
        };
        let host = Host {
            platform,
            ..Host::default()
        };
        plan(&request, &device, &host).unwrap()
    }

    fn cost(best: f64, likely: f64, worst: f64) -> Option<Cost> {
        Some(Cost {
            per_unit: Seconds {
                best,
                likely,
                worst: Some(worst),
            },
            once: Seconds::ZERO,
            source: Source::new(Kind::Measured, "test"),
        })
    }

    const WAY: Way = Way {
        missing_pages: 1000,
        threads: 2,
    };

    #[test]
    fn each_step_is_its_units_and_overlap_counts_once() {
        let costs = Costs {
            reserve: cost(0.001, 0.002, 0.004),
            populate: cost(0.1, 0.2, 0.4),
            pin: cost(0.02, 0.04, 0.08),
            command: cost(1.0, 1.0, 1.0),
        };
        let told = Estimate::of(&planned(40, 10), WAY, &costs);
        let is = |got: Option<Seconds>, best: f64, likely: f64, worst: Option<f64>| {
            let got = got.unwrap();
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(near(got.best, best) && near(got.likely, likely), "{got:?}");
            assert_eq!(got.worst.is_some(), worst.is_some(), "{got:?}");
            assert!(
                near(got.worst.unwrap_or(0.0), worst.unwrap_or(0.0)),
                "{got:?}"
            );
        };
        is(told.reserve, 1.0, 2.0, Some(4.0));
        is(told.populate, 4.0, 8.0, Some(16.0));
        // Two threads.
        is(told.pin, 0.4, 0.8, Some(1.6));
        // The four commands of the device are not shared among them.
        is(told.register, 4.4, 4.8, Some(5.6));
        // 1 + max(4, 4.4); 2 + 8 + 4.8 / 4 MRs; 4 + 16 + 5.6.
        is(told.total, 5.4, 11.2, Some(25.6));
    }

    #[test]
    fn more_threads_than_mrs_gain_nothing() {
        let costs = Costs {
            pin: cost(0.1, 0.1, 0.1),
            ..Costs::default()
        };
        let of = |threads| {
            let way = Way { threads, ..WAY };
            Estimate::of(&planned(20, 10), way, &costs)
                .pin
                .unwrap()
                .likely
        };
        assert_eq!(of(1), 2.0);
        assert_eq!(of(2), 1.0);
        assert_eq!(of(100), 1.0);
    }

    /// A few pages take far longer than so many times one of them.
    #[test]
    fn reserving_costs_something_once_and_nothing_where_nothing_is_missing() {
        let costs = Costs {
            reserve: Some(Cost::assumed_reserve()),
            ..Costs::default()
        };
        let of = |missing_pages| {
            let way = Way {
                missing_pages,
                ..WAY
            };
            Estimate::of(&planned(1, 1), way, &costs).reserve.unwrap()
        };
        assert!(of(32).has(5e-3) && of(32).has(8e-3), "{:?}", of(32));
        assert!(of(32).likely > 2e-3);
        assert_eq!(of(0), Seconds::ZERO);
    }

    #[test]
    fn what_is_not_known_has_no_time_and_no_upper_end() {
        let told = Estimate::of(&planned(10, 10), WAY, &Costs::default());
        assert_eq!(
            (told.reserve, told.populate, told.total),
            (None, None, None)
        );
        let costs = Costs {
            populate: cost(0.1, 0.1, 0.1),
            pin: cost(0.1, 0.1, 0.1),
            ..Costs::default()
        };
        let nothing_missing = Way {
            missing_pages: 0,
            ..WAY
        };
        let told = Estimate::of(&planned(10, 10), nothing_missing, &costs);
        assert_eq!(told.reserve, Some(Seconds::ZERO));
        // The device's own time is not known.
        assert_eq!(told.register.unwrap().worst, None);
        let total = told.total.unwrap();
        assert_eq!(total.worst, None);
        assert!(total.has(1e9) && !total.has(0.5));
    }

    #[test]
    fn measurements_become_best_likely_and_worst() {
        let of = Seconds::of(&[4.0, 1.0, 2.0]).unwrap();
        assert_eq!((of.best, of.likely, of.worst), (0.8, 2.0, Some(5.0)));
        assert_eq!(Seconds::of(&[]), None);
    }
}
