//! hugemr on real RDMA devices.
//!
//! libibverbs is loaded at run time (`load`), so one binary runs on every host and can say what is missing:
//! each failure is an [`Unavailable`] with a way out. [`list`] shows the devices, [`open`] gives a [`VerbsBackend`]
//! for `hugemr_core`; [`VerbsBackend::from_raw`] wraps a device and protection domain of the program's own.
//!
//! Manners: no signal handler, no `ibv_fork_init`, no environment changed, nothing printed.
//!
//! With the feature `linked-verbs` the same functions come from the linker instead; nothing else changes.
#![warn(missing_docs)]

mod availability;
mod backend;
mod context;
mod devices;
mod errno;
mod info;
mod linked;
mod load;
mod loopback;
pub mod sys;
mod sysfs;

pub use availability::{AbiMismatch, Unavailable};
pub use backend::{VerbsBackend, open};
pub use devices::{DeviceEntry, OpenOptions, list};
pub use info::{DeviceInfo, ForkSafety, Guid, Pci, PciSource, Port, Transport};
pub use load::{LIBRARY_VARIABLE, Library, LibrarySource};
