//! The command as a user and a script see it: output, exit codes, streams.

mod common;
mod contract;
mod estimate;
mod main_job;
mod real;
mod replay;
mod streams;
