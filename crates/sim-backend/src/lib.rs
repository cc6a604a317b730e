//! Simulated kernels, drivers and devices: everything `ibv_reg_mr` meets on its way, without hardware.
//!
//! A registration goes through three layers, as on a real host:
//! 1. the [`kernel`] checks the request, gathers the physical runs of the memory into scatter-gather entries and
//!    chooses one page size for the whole MR, by the rule that this version of Linux has;
//! 2. the [`driver`] builds the page table and the command, with the limits and the length defect of its version;
//! 3. the device accounts the entries against its budget ([`device`]) and says yes or no.
//!
//! [`open`] makes a [`SimDevice`] from a [profile] or a [file](mod@file), and `SimDevice` implements
//! [`RegBackend`](hugemr_core::backend::RegBackend). What the memory looks like physically is said with
//! [`SimDevice::back`] or with the default layout ([`memory`]); no memory is needed or touched. Failures come on
//! demand ([`faults`]).
//!
//! *Invariant*: this crate judges what `hugemr-core` predicts, so it shares data types with it but no reasoning. It
//! walks the physical runs entry by entry where core uses a closed form, and has its own table from versions to
//! behaviour; it calls neither core's `layout` functions nor its `quirk` module.
//!
//! ```
//! use std::num::NonZeroU64;
//! use hugemr_core::backend::{Access, MrRequest, RegBackend};
//!
//! let device = hugemr_sim::open("sim:ecs.r8a.32xlarge", &hugemr_sim::Overrides::default())?;
//! let addr = 0x7e00_0000_0000;
//! let request = MrRequest {
//!     addr,
//!     len: NonZeroU64::new(64 << 30).unwrap(),
//!     iova: addr,
//!     access: Access::REMOTE_RW,
//! };
//! // SAFETY: `needs_memory` is false, so the range need not be mapped.
//! let mr = unsafe { device.reg_mr(&request)? };
//! assert_eq!(device.state().entries, 32_768); // 64 GiB on the profile's 2 MiB pages
//! device.dereg_mr(mr.handle)?;
//! assert_eq!(device.state().entries, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod device;
pub mod driver;
mod error;
pub mod faults;
pub mod file;
mod iommu;
pub mod kernel;
pub mod memory;
pub mod overrides;
pub mod profile;
mod sim;
mod space;
mod umem;

pub use device::{Arrival, DeviceState, Layer, LiveMr, Outcome, RegEvent};
pub use error::SimError;
pub use faults::Faults;
pub use memory::{DefaultLayout, SimMemory};
pub use overrides::Overrides;
pub use profile::{Profile, ProfileName, profiles};
pub use sim::{SimDevice, open};
