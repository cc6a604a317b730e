//! The command line, as typed. Texts are parsed into values here, and nowhere else (`values`); what the values mean
//! together is decided in `request`.

pub(crate) mod alone;
mod command;
mod doctor;
mod estimate;
mod limits;
mod node;
mod prove;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use hugemr_core::backend::Access;
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Source};
use hugemr_core::host::Driver;
use hugemr_core::plan::{Leave, OtherUse, Pages};
use hugemr_core::size::PageSize;

pub(crate) use command::Command;
pub(crate) use doctor::{DoctorCommand, InspectCommand};
pub(crate) use estimate::{EstimateArgs, RateOf};
pub(crate) use limits::{LearnCommand, LimitsArgs, ProbeCommand, UsageCommand};
pub(crate) use node::NodeArgs;
pub(crate) use prove::ProveBy;
pub(crate) use values::{
    Budget, MaybeKernel, Memlock, Size, parse_budget, parse_count, parse_device, parse_driver,
    parse_kernel, parse_length, parse_memlock,
};
use values::{
    parse_access, parse_alias, parse_copies, parse_errno, parse_family, parse_id, parse_leave,
    parse_other, parse_page, parse_pages, parse_pid, parse_threads,
};

/// Registers as much memory as a host has as RDMA memory regions, on devices whose translation table is small.
#[derive(Debug, Parser)]
#[command(
    name = "hugemr",
    version,
    about,
    after_help = "Start here:\n  \
        hugemr plan 896GiB --device sim:ecs.r8a.32xlarge        would it fit, and how\n  \
        hugemr register 896GiB --device sim:ecs.r8a.32xlarge    do it on a simulated device\n  \
        hugemr devices                                          what is here\n\n\
        Exit status: 0 yes or done, 1 the answer is no, 2 bad usage or input, 3 the system refused."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) everywhere: EverywhereArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub(crate) struct EverywhereArgs {
    /// File of defaults [default: hugemr/config.toml in the XDG config folder, then /etc/hugemr/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl EverywhereArgs {
    /// The config file that was named, by the flag or else by the environment.
    pub(crate) fn config(&self) -> Option<PathBuf> {
        let named = self.config.clone();
        named.or_else(|| variable("HUGEMR_CONFIG").map(PathBuf::from))
    }
}

/// What the environment says; an empty variable says nothing.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsCommand {
    /// For which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManCommand {
    /// The page of this command [default: the one of hugemr]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
    /// Write the pages of all commands to this folder, which is made: hugemr.1, hugemr-plan.1, ...
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanCommand {
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    /// Show each segment and quirk with its source (the JSON has them always)
    #[arg(long)]
    pub(crate) explain: bool,
    /// Print every MR as a line (number from 0, offset, length, page), streamed; with --json as JSON Lines
    #[arg(long, conflicts_with_all = ["explain", "estimate"])]
    pub(crate) list: bool,
    #[command(flatten)]
    pub(crate) time: EstimateArgs,
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of the command line"
)]
pub(crate) struct RegisterCommand {
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    /// Keep everything registered until a signal that ends the process (SIGINT, SIGTERM, SIGHUP, ...)
    #[arg(long)]
    pub(crate) hold: bool,
    /// Add the huge pages that are missing, and give exactly those back at the end (needs root)
    #[arg(long)]
    pub(crate) reserve: bool,
    /// Prove each MR and each border by RDMA write and read through the device. Where it cannot reach itself, one line says
    /// so, and the exit status stays 0 (1 with --strict)
    #[arg(long)]
    pub(crate) verify: bool,
    /// Prove the page size of each MR by what the kernel is seen to do: predicted against seen (needs root)
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "auto")]
    pub(crate) prove: Option<ProveBy>,
    /// Skip the refusal of the plan and show what the device answers
    #[arg(long)]
    pub(crate) force: bool,
    /// List every MR instead of the first and the last (the JSON has all)
    #[arg(long)]
    pub(crate) all: bool,
    /// Memory behind the MRs; a simulated device needs none
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) memory: Option<MemoryKind>,
    /// How simulated memory lies physically (with --memory none) [default: scattered]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) layout: Option<SimLayout>,
    /// Threads that populate and register [default: one for each CPU of the process; one without memory]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// For tests of large ranges on small machines: the same N huge pages again and again behind the whole range
    #[arg(long, value_name = "N", value_parser = parse_alias, hide_short_help = true, conflicts_with_all = ["node", "interleave"])]
    pub(crate) alias_pages: Option<std::num::NonZeroU64>,
    /// What the MRs allow: a list of local-write, remote-read, remote-write, remote-atomic, relaxed-ordering
    #[arg(long, value_name = "LIST", value_parser = parse_access, default_value = "local-write,remote-read,remote-write")]
    pub(crate) access: Access,
    #[command(flatten)]
    pub(crate) time: EstimateArgs,
    #[command(flatten)]
    pub(crate) nodes: NodeArgs,
}

/// What is asked for, of `plan` and `register` alike.
#[derive(Debug, Args)]
pub(crate) struct WhatArgs {
    /// How much: 896GiB, 1.5TiB, 68719476736; several sizes are several buffers
    #[arg(required = true, value_name = "SIZE")]
    pub(crate) sizes: Vec<Size>,
    /// On which device: erdma_0, sim:NAME or sim:./FILE.toml [default: the only real one]
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    /// Pages behind the memory: auto, 2MiB, 1GiB, mixed, thp, 4KiB
    #[arg(long, value_name = "PAGES", value_parser = parse_pages, default_value = "auto")]
    pub(crate) pages: Pages,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Undecided counts as no, and so does what is unproven (register --verify, --prove)
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    #[command(flatten)]
    pub(crate) facts: FactArgs,
    /// The command line, for others like it.
    #[arg(skip)]
    pub(crate) typed: crate::typed::Typed,
}

/// How the MRs are to be cut and used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Shape of the MRs")]
pub(crate) struct ShapeArgs {
    /// Length of an MR [default: the longest that is safe]
    #[arg(long, value_name = "SIZE", value_parser = parse_length)]
    pub(crate) chunk: Option<Size>,
    /// A unit of your application that no border may cut
    #[arg(long, value_name = "SIZE", value_parser = parse_length)]
    pub(crate) block: Option<Size>,
    /// One MR for each buffer
    #[arg(long, conflicts_with = "chunk")]
    pub(crate) one_mr: bool,
    /// Devices that each register all of it
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_copies)]
    pub(crate) devices: u64,
    /// Protection domains that each register all of it
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_copies)]
    pub(crate) pds: u64,
    /// Entries of the table to leave free: a number, or 10%
    #[arg(long, value_name = "N", value_parser = parse_leave, default_value = "0")]
    pub(crate) leave: Leave,
    /// Another use of the table that will come: 80GiB@64KiB (may be repeated)
    #[arg(long, value_name = "SIZE@PAGE", value_parser = parse_other)]
    pub(crate) other: Vec<OtherUse>,
}

/// Facts that the user knows better.
#[derive(Debug, Args)]
#[command(next_help_heading = "Facts that you know better")]
pub(crate) struct FactArgs {
    /// Limit of an MR's length, instead of the device's
    #[arg(long, value_name = "SIZE", value_parser = parse_length)]
    pub(crate) max_mr_size: Option<Size>,
    /// Number of MRs, instead of the device's
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) max_mr: Option<u64>,
    /// Entries of the device's table: N, LOW-HIGH, or unknown
    #[arg(long, value_name = "N", value_parser = parse_budget)]
    pub(crate) budget: Option<Budget>,
    /// Upstream version of the kernel: 6.12.31, or unknown
    #[arg(long, value_name = "VERSION", value_parser = parse_kernel)]
    pub(crate) kernel: Option<MaybeKernel>,
    /// Driver: in-tree, vendor, the vendor's bundle (1.5.7), or unknown
    #[arg(long, value_name = "DRIVER", value_parser = parse_driver)]
    pub(crate) driver: Option<Driver>,
    /// What the process may pin: a size, or unlimited
    #[arg(long, value_name = "SIZE", value_parser = parse_memlock)]
    pub(crate) memlock: Option<Memlock>,
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// Which of these flags the config file gave.
    #[arg(skip)]
    pub(crate) configured: Vec<&'static str>,
    /// That file.
    #[arg(skip)]
    pub(crate) config: PathBuf,
}

impl FactArgs {
    /// Where the value of a flag comes from: the flag itself, or the config file.
    pub(crate) fn source(&self, flag: &'static str) -> Source {
        if self.configured.contains(&flag) {
            let file = crate::typed::quoted(self.config.as_os_str());
            Source::new(Kind::Given, format!("config file {file}"))
        } else {
            Source::new(Kind::Given, flag)
        }
    }
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of the command line"
)]
pub(crate) struct ReserveCommand {
    /// How much shall be free afterwards: 896GiB, 1.5TiB, 68719476736
    #[arg(value_name = "SIZE")]
    pub(crate) size: Size,
    /// Size of the huge pages: 2MiB, 1GiB
    #[arg(long, value_name = "PAGE", value_parser = parse_page, default_value = "2MiB")]
    pub(crate) pages: PageSize,
    /// From this NUMA node only
    #[arg(long, value_name = "N", value_parser = parse_id)]
    pub(crate) node: Option<u32>,
    /// The same number from each node (the default)
    #[arg(long, conflicts_with = "node")]
    pub(crate) spread: bool,
    /// Where the kernel gives too few pages, drop its clean page cache too (slows others down)
    #[arg(long)]
    pub(crate) drop_caches: bool,
    /// Print what keeps the pages over a reboot: a boot line, and a systemd unit; nothing of it is installed
    #[arg(long)]
    pub(crate) persist: bool,
    /// Say what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseCommand {
    /// What processes that are gone have left (killed ones), instead of what `hugemr reserve` has added
    #[arg(long)]
    pub(crate) stale: bool,
    /// Say what would be given back, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DevicesCommand {
    /// List the simulated devices instead
    #[arg(long)]
    pub(crate) simulated: bool,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiagnoseCommand {
    /// A log to read instead, of Mooncake, UCX, NCCL, libfabric, a driver; - for standard input
    #[arg(value_name = "LOG", conflicts_with = "errno")]
    pub(crate) log: Option<PathBuf>,
    /// The error: EIO, 5, -5, or "Input/output error"
    #[arg(long, value_name = "ERRNO", value_parser = parse_errno, allow_negative_numbers = true)]
    pub(crate) errno: Option<Errno>,
    /// The device: its family, and its limits as far as they are known, are used
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// Family of the device: erdma, efa, ionic, mlx4, ascend, verbs [default: the device's, or as the log says; else erdma]
    #[arg(long, value_name = "FAMILY", value_parser = parse_family)]
    pub(crate) family: Option<hugemr_core::device::Family>,
    /// Length of the MR
    #[arg(long, value_name = "SIZE")]
    pub(crate) length: Option<Size>,
    /// Page size as the device saw it, or of the mapping
    #[arg(long, value_name = "PAGE", value_parser = parse_page)]
    pub(crate) page: Option<PageSize>,
    /// Largest length of an MR
    #[arg(long, value_name = "SIZE", value_parser = parse_length)]
    pub(crate) max_mr_size: Option<Size>,
    /// Entries of the device's table: N, LOW-HIGH, or unknown
    #[arg(long, value_name = "N", value_parser = parse_budget)]
    pub(crate) budget: Option<Budget>,
    /// What the process may pin: a size, or unlimited
    #[arg(long, value_name = "SIZE", value_parser = parse_memlock)]
    pub(crate) memlock: Option<Memlock>,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// The command line, for others like it.
    #[arg(skip)]
    pub(crate) typed: crate::typed::Typed,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayCommand {
    /// Vectors, one JSON object a line; - for standard input. Several are run one after the other
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Answer as JSON Lines
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MemoryKind {
    /// Map and populate memory of this machine
    Real,
    /// Register addresses without memory (simulated devices only)
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimLayout {
    /// No page continues its neighbour
    Scattered,
    /// One ascending run
    Contiguous,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
