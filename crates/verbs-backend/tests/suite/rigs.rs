//! The three backends of the conformance suite.

use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::size::PageSize;
use hugemr_sim::{DefaultLayout, Overrides, SimDevice};
use hugemr_verbs::VerbsBackend;

use crate::conformance::{Limits, Rig};
use crate::device::open_the_real_one;
use crate::fake::Fake;

/// hugemr-sim, directly.
pub(crate) struct Simulator;

impl Rig for Simulator {
    type Backend = SimDevice;

    fn open(&self) -> [SimDevice; 2] {
        [(); 2].map(|()| hugemr_sim::open("erdma", &Overrides::default()).unwrap())
    }

    fn small(&self, limits: Limits) -> Option<SimDevice> {
        let exactly = |value| Some(Limit::exact(value, Source::new(Kind::Given, "test")));
        let overrides = Overrides {
            entries: exactly(limits.entries),
            max_mr: exactly(limits.max_mr),
            max_mr_size: exactly(limits.max_mr_size),
            memory: Some(DefaultLayout::scattered(PageSize::K4)),
            ..Overrides::default()
        };
        Some(hugemr_sim::open(limits.family, &overrides).unwrap())
    }
}

/// The real backend over fake-verbs.
pub(crate) struct FakeVerbs;

impl Rig for FakeVerbs {
    type Backend = VerbsBackend;

    fn open(&self) -> [VerbsBackend; 2] {
        let fake = Fake::new("device erdma_0 sim=erdma");
        [(); 2].map(|()| fake.open("erdma_0").unwrap())
    }

    fn small(&self, limits: Limits) -> Option<VerbsBackend> {
        let Limits {
            family,
            entries,
            max_mr,
            max_mr_size,
        } = limits;
        let fake = Fake::new(&format!(
            "device {family}_0 sim={family} entries={entries} max_mr={max_mr} max_mr_size={max_mr_size} page=4096"
        ));
        Some(fake.open(&format!("{family}_0")).unwrap())
    }
}

/// A device of this machine, named by `$HUGEMR_TEST_DEVICE`.
pub(crate) struct RealDevice;

impl Rig for RealDevice {
    type Backend = VerbsBackend;

    fn open(&self) -> [VerbsBackend; 2] {
        [(); 2].map(|()| open_the_real_one())
    }

    fn small(&self, _: Limits) -> Option<VerbsBackend> {
        // Read by `cargo xtask vm`, which makes a table of the suite: without it "ok" would look like a check.
        println!("not shown: a real device has the limits it has");
        None
    }
}

conformance_suite!(simulator, Simulator);
conformance_suite!(fake_verbs, FakeVerbs);
conformance_suite!(
    real_device,
    RealDevice,
    #[ignore = "needs a real verbs device"]
);
