//! Answers as text: the answer first, the reason second, the way out last.

pub(crate) mod diagnosis;
mod doctor;
pub(crate) mod estimate;
mod inspect;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod prove;
mod refusal;
pub(crate) mod register;
pub(crate) mod reserve;
mod table;
pub(crate) mod words;

pub(crate) use doctor::doctor;
pub(crate) use inspect::inspect;
pub(crate) use plan::{explain, plan};
pub(crate) use refusal::refusal;
pub(crate) use table::table;
