//! The device on a socket: vfio-user, as QEMU 10.1 and later speak it.
//!
//! The server is our own rather than that of the crate `vfio_user`, for one reason above all: it must do more
//! than wait for its peer. A late answer needs a clock, faults and budgets change while the guest runs, and a
//! signal must end it with its totals written; that crate's `run` blocks in a read and cannot be stopped. It
//! also answers an error with errno 0, answers posted writes that failed, and trusts lengths. Its client half
//! serves as the independent peer in the tests.

pub mod inbox;
pub mod server;
pub mod session;
pub mod socket;
pub mod windows;
pub mod wire;
