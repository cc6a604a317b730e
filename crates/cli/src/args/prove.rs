//! `--prove`: by what the kernel is watched.

use clap::ValueEnum;
use hugemr_core::prove::How;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProveBy {
    /// By the first of these that can be had
    Auto,
    /// By a return probe on the kernel's page-size helper
    Kretprobe,
    /// By the driver's debug lines (one thread registers)
    DebugLines,
}

impl ProveBy {
    /// The ways, in the order in which they are tried.
    pub(crate) const fn ways(self) -> &'static [How] {
        match self {
            Self::Auto => &[How::Kretprobe, How::DebugLines],
            Self::Kretprobe => &[How::Kretprobe],
            Self::DebugLines => &[How::DebugLines],
        }
    }
}
