//! The Linux host side of hugemr: huge-page pools, mappings, populate, physical layout, facts.
//!
//! The way of a piece of memory: a [`pools`] look says what is there, a [`mapping`] takes it (or [`adopt`] takes
//! the caller's), [`populate`] makes its pages real, [`layout`] reads where they lie, and a [`trace`] shows what the kernel makes of it. [`facts`] says what the host
//! and its limits are, as plain data. All files are read through a [`root::Root`], so that tests and containers
//! bring their own `/proc` and `/sys`.
//!
//! *Invariants*: nothing on the host is touched unless it is called for; no output, no signal handler, no change of
//! a limit or of the environment. Only `sys` makes raw system calls.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("hugemr-host needs 64-bit Linux");

pub mod adopt;
pub mod collapse;
pub mod facts;
pub mod inspect;
pub mod layout;
pub mod ledger;
pub mod limits;
pub mod mapping;
pub mod measure;
pub mod netlink;
pub mod pools;
pub mod populate;
mod records;
pub mod reserve;
pub mod root;
pub mod smaps;
mod sys;
pub mod team;
pub mod trace;
