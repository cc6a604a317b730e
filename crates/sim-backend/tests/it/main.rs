//! Behaviour of simulated devices as a caller sees it.

mod article;
mod common;
