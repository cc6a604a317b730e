//! An emulated eRDMA PCI device: the unmodified Linux driver binds to it, in QEMU, without RDMA hardware.
//!
//! It exists to judge. The driver registers memory; the device takes the command apart, walks the page table in
//! guest memory, keeps the account of page-table entries, refuses what goes beyond it, and writes down what it
//! saw, one line of JSON each ([`events`]). So what a planner predicted (page size, entries, levels, length on
//! the wire) can be held against what a real driver sent.
//!
//! **A judge shares no code with what it judges**: this crate depends on no other crate of the workspace, and
//! computes lengths, entries and budgets by itself. If it and the planner agree, they do so independently.
//!
//! # What it does not do
//!
//! There is no data path: no send, receive, read or write, no connections, no asynchronous events, no RoCE
//! commands. Queue pairs and completion queues are remembered by number and nothing more. In place of traffic
//! there is the [stamp check](stamp): the guest writes addresses into its memory and the device looks for them
//! through the table it was given. What real firmware does with a wrong length, how it numbers its errors and
//! whether its budget counts entries or table pages is not public; here errors have numbers of our own
//! ([`cmd::Syndrome`]), entries are counted, and a wrong length is accepted unless
//! [told otherwise](config::Config::refuse_wrong_length).
//!
//! # Rooms
//!
//! | module | content |
//! |---|---|
//! | [`regs`], [`cmd`], [`ring`], [`mtt`] | formats: registers, requests and answers, the three rings, page tables |
//! | [`ledger`] | the account of entries |
//! | [`stamp`] | the stamp check |
//! | [`device`] | the state machine: reads and writes of BAR 0, no I/O, no clock |
//! | [`faults`], [`control`], [`config`], [`events`] | what goes wrong on demand, commands to a running device, what it is made of, what it saw |
//! | [`pci`] | configuration space |
//! | [`vfio`] | the socket that QEMU connects to, and guest memory |
//!
//! *Invariant*: whatever the guest writes, the device neither panics nor allocates or works without bound. One
//! command reads at most [`config::Config::walk_limit`] entries and [`stamp::StampConfig::limit`] blocks; one
//! doorbell starts at most [`ring::MAX_DEPTH`] units. The pure parts take plain bytes and are made to be fuzzed:
//! [`cmd::decode`], and [`mtt::walk`] over a [`mem::RamMemory`].
//!
//! *Invariant*: entries in use are the sum over the regions that stand, and no registration takes them above
//! the budget.
//!
//! *Invariant*: the only unsafe code is in [`vfio::windows`], which maps guest memory.
//!
//! # Sources
//!
//! | what | where |
//! |---|---|
//! | registers, command and answer layouts, opcodes | Linux `drivers/infiniband/hw/erdma/erdma_hw.h`, 6.1.192, 6.12.117, 7.3.4 |
//! | start-up, what the driver insists on | `erdma_main.c`, same versions |
//! | rings, owner bits, arming | `erdma_cmdq.c`, `erdma_eq.c`, same versions |
//! | forms of REG_MR, tables in levels (6.6 and later), one contiguous table (before) | `erdma_verbs.c`, same versions |
//! | the protocol of the socket | QEMU, `docs/interop/vfio-user.rst` |
//!
//! Three generations of the driver differ in what a device must stand: 6.1 sends requests of 64 bytes into a
//! queue of 256 units and knows one table in one block; 6.12 and 7.3 send 128 bytes into 512 units, and tables in
//! levels if the device has [`regs::CAP_MTT_VA`].

pub mod cmd;
pub mod config;
pub mod control;
pub mod device;
pub mod events;
pub mod faults;
pub mod ledger;
pub mod mem;
pub mod mtt;
pub mod pci;
pub mod regs;
pub mod ring;
pub mod stamp;
pub mod vfio;

mod bits;
