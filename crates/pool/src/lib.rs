//! Register as much memory as a host has as RDMA memory regions.
//!
//! This is the library to embed. It brings the parts together as one transaction, each step of which is undone when a
//! later one fails:
//!
//! 1. plan ([`plan`]): a function of a request, a device and a host;
//! 2. raise the pools of huge pages by what is missing, where that is asked for ([`Build::reserve`]);
//! 3. map, populate, read the physical layout, predict, register ([`Build`]), chunk by chunk, one chunk being populated
//!    while another is registered;
//! 4. hand out keys ([`Pool::keys`]), prove them by moving data ([`Pool::verify`]);
//! 5. deregister, unmap, lower the pools by exactly what was added ([`Pool::close`], or drop).
//!
//! [`Build::run`] does all of it in one call. [`Step`] names the steps, and [`Build::progress`] hears of each.
//!
//! It names no backend: any [`RegBackend`] will do, that of `hugemr-verbs` on a real host, of `hugemr-sim` in tests, or
//! your own. It installs no signal handler, never calls `ibv_fork_init`, sets no environment and no limit, prints
//! nothing, and touches no pool of huge pages unless [`Build::reserve`] asks for it.
//!
//! ```
//! use hugemr::core::plan::{Pages, PlanRequest, plan};
//! use hugemr::core::size::{MIB, PageSize};
//! use hugemr::{Build, core};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = hugemr_sim::open("sim:erdma", &hugemr_sim::Overrides::default())?;
//! let host = core::host::Host { platform: device.platform().clone(), ..core::host::Host::default() };
//! let request = PlanRequest::total(8 * MIB).pages(Pages::Only(PageSize::K4));
//! let plan = plan(&request, core::backend::RegBackend::device(&device), &host)?;
//!
//! let pool = Build::new(&plan).build(device)?;
//! let key = pool.keys().lookup(pool.base() + 4096, 65536)?;
//! assert_eq!(key.index, 0);
//! pool.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Memory of your own
//!
//! A [`Pool`] maps its memory. What your program has mapped already (hugetlbfs, shm, memfd) is adopted as it is, and
//! registered by the same plan; it is kept for as long as an MR covers it.
//!
//! ```
//! use hugemr::core::backend::Access;
//! use hugemr::core::plan::{Pages, PlanRequest, plan};
//! use hugemr::core::registrar::{Options, Registration};
//! use hugemr::core::size::{MIB, PageSize};
//! use hugemr::host::{adopt::Adopted, root::Root};
//! use hugemr::{RegBackend as _, core};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = hugemr_sim::open("sim:erdma", &hugemr_sim::Overrides::default())?;
//! let mut mine = vec![0u8; 8 << 20];
//! let (base, len) = (mine.as_mut_ptr(), mine.len() as u64);
//! // SAFETY: it is writable, and mapped for as long as the vector lives, which is given along.
//! let memory = unsafe { Adopted::new(&Root::real(), base, len, mine) }.map_err(|e| e.reason)?;
//!
//! let mut request = PlanRequest::total(len).pages(Pages::Only(PageSize::K4));
//! request.chunk = Some(2 * MIB);
//! let plan = plan(&request, device.device(), &core::host::Host::default())?;
//! let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
//! let registration = Registration::new(device, memory, &plan.segments, access, &Options::new())?;
//! assert_eq!(registration.keys().len(), 4);
//! let memory = registration.close()?; // the vector is still in it
//! # drop(memory);
//! # Ok(())
//! # }
//! ```

mod build;
mod error;
mod pipeline;
mod populating;
mod prove;
mod report;
mod reserve;
mod step;
mod verify;

pub use build::{Build, Pool};
pub use error::{BuildError, Cause, CheckFailure};
pub use prove::PageProof;
pub use report::{LayoutProof, MrReport, Report};
pub use step::{Event, Step};
pub use verify::{Proof, ProofError, verify};

pub use hugemr_core as core;
pub use hugemr_core::backend::RegBackend;
pub use hugemr_core::plan;
pub use hugemr_host as host;
