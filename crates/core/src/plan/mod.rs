//! From a request, a device and a host to a plan, or to a refusal that says the way out.
//!
//! The planner is a function of plain data: total, deterministic, without I/O. A [`Plan`] carries its own arithmetic,
//! so that what a person reads and what a test asserts is the same data. Chunks tile the range exactly, in order,
//! without overlap; borders are multiples of the step, the least common multiple of page and application block; all
//! chunks are equal but the last (and, for adopted memory, the first). Nothing is ever cut or exchanged silently.

mod answer;
mod choose;
mod evaluate;
mod judge;
mod pieces;
mod request;
mod tiling;
mod words;

pub use answer::{
    Alternative, Check, ChunkBound, Code, MaxFit, Plan, Refusal, Resource, SplitReport, Verdict,
    WayOut, reserve_command,
};
pub use choose::{max_fit, plan};
pub use request::{ForkSafety, Leave, OtherUse, Pages, PlanRequest, Split, Wish};
pub use words::mrs;
