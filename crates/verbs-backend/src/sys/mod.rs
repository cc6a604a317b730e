//! What hugemr needs of the C interface of libibverbs, and no more.
//!
//! The names are those of `infiniband/verbs.h`, where each is documented. The interface is versioned by symbol and
//! only grows at its ends, so a few declarations by hand stay right; `tests/oracle.rs` holds every size, offset and
//! constant against what bindgen makes of the installed headers.
#![allow(missing_docs, reason = "documented in verbs.h, by the same names")]
#![allow(non_camel_case_types, reason = "the names of verbs.h")]

pub mod cm;
pub mod consts;
pub mod table;
pub mod types;

pub use types::*;

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "hugemr-verbs is for 64-bit Linux: an MR longer than 4 GiB has no meaning elsewhere"
);
