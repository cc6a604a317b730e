//! The planner, the closed form and the registrar of core, held against the simulator over random requests.
//!
//! core and the simulator share data types and no reasoning: what one says of page sizes, entries, lengths and
//! refusals was worked out twice. Each property names a one-line change that turns it red; most of these changes are
//! in the list of `cargo xtask mutants`.

mod closed_form;
mod common;
mod fits;
mod matrix;
mod max_fit;
mod pages;
mod refusals;
mod rollback;
mod tiling;
