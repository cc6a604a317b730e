//! The emulator from outside: a scripted driver, the socket protocol, the program.

mod binary;
mod faults;
mod golden;
mod hostile;
mod mr;
mod probe;
mod protocol;
mod support;
