//! The command as a user and a script see it: output, exit codes, streams.

mod common;
mod contract;
mod diagnose;
mod estimate;
mod files;
mod json;
mod main_job;
mod man;
mod printed;
mod real;
mod replay;
mod replay_files;
mod streams;
mod together;
