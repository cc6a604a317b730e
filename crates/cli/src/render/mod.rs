//! Answers as text: the answer first, the reason second, the way out last.

pub(crate) mod diagnosis;
pub(crate) mod plan;
mod doctor;
mod inspect;
mod refusal;
pub(crate) mod register;
mod table;
pub(crate) mod words;

pub(crate) use doctor::doctor;
pub(crate) use inspect::inspect;
pub(crate) use plan::{explain, plan};
pub(crate) use refusal::refusal;
pub(crate) use table::table;
