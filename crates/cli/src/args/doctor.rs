//! The arguments of `doctor` and `inspect`.

use std::path::PathBuf;

use clap::Args;
use hugemr_core::host::Driver;
use hugemr_core::plan::Pages;

use super::{
    FactArgs, MaybeKernel, Size, parse_device, parse_driver, parse_kernel, parse_pages, parse_pid,
};

#[derive(Debug, Args)]
pub(crate) struct DoctorCommand {
    /// Answer for this size: 896GiB
    #[arg(long = "for", value_name = "SIZE")]
    pub(crate) size: Option<Size>,
    /// On which device: erdma_0, sim:NAME or sim:./FILE.toml [default: the only real one]
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    /// For the process with this number, instead of this one: its limits, rights and cgroups
    #[arg(long, value_name = "N", value_parser = parse_pid)]
    pub(crate) pid: Option<u32>,
    /// Pages behind the memory (with --for): auto, 2MiB, 1GiB, mixed, thp, 4KiB
    #[arg(long, value_name = "PAGES", value_parser = parse_pages, default_value = "auto", requires = "size")]
    pub(crate) pages: Pages,
    /// In a container: the folder where the host's root is mounted
    #[arg(long, value_name = "DIR")]
    pub(crate) host_root: Option<PathBuf>,
    /// In a container: facts of the host, taken there by --save
    #[arg(long = "facts", value_name = "FILE", conflicts_with_all = ["save", "host_root"])]
    pub(crate) facts_file: Option<PathBuf>,
    /// Save the facts as JSON, for --facts
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Show what is fine, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Undecided counts as no
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) facts: FactArgs,
    /// The command line, for others like it.
    #[arg(skip)]
    pub(crate) typed: crate::typed::Typed,
}

#[derive(Debug, Args)]
pub(crate) struct InspectCommand {
    /// The process
    #[arg(long, value_name = "N", value_parser = parse_pid)]
    pub(crate) pid: u32,
    /// Show every mapping that could be an MR, not only the largest
    #[arg(long)]
    pub(crate) all: bool,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// Upstream version of the kernel: 6.12.31, or unknown [default: as read]
    #[arg(long, value_name = "VERSION", value_parser = parse_kernel)]
    pub(crate) kernel: Option<MaybeKernel>,
    /// Driver: in-tree, vendor, the vendor's bundle (1.5.7), or unknown [default: as read]
    #[arg(long, value_name = "DRIVER", value_parser = parse_driver)]
    pub(crate) driver: Option<Driver>,
    /// The command line, for others like it.
    #[arg(skip)]
    pub(crate) typed: crate::typed::Typed,
}
