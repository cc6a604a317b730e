//! Plans, registers and explains very large RDMA memory registrations: the reasoning of hugemr, without I/O.
//!
//! The way of a request: a [`plan`]ning request meets a [`device`] and a [`host`] and becomes a plan (or a
//! refusal that says the way out); a [`registrar`] carries the plan out through a [`backend`]; what it registered
//! is looked up in a [`key_table`]; every failure carries a [`diagnose`]d cause.
//!
//! *Invariant*: this crate opens no file, makes no system call, reads no clock and names no backend. Unsafe code
//! is denied but in `registrar`, the one caller of [`backend::RegBackend::reg_mr`], and in `backend`, where the unsafe
//! traits live.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
pub mod backend;
pub mod chunks;
pub mod device;
pub mod diagnose;
pub mod doctor;
pub mod errno;
pub mod estimate;
pub mod fact;
pub mod host;
pub mod inspect;
pub mod key_table;
pub mod layout;
pub mod learn;
pub mod limits;
pub mod margin;
pub mod place;
pub mod plan;
pub mod prior;
pub mod probe;
pub mod process;
pub mod prove;
pub mod quirk;
#[allow(unsafe_code)]
pub mod registrar;
pub mod size;
pub mod version;
