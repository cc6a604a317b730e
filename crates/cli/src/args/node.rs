//! On which NUMA nodes memory lies.

use clap::Args;
use hugemr_core::place::Nodes;

#[derive(Debug, Args)]
#[command(
    next_help_heading = "NUMA nodes (by default no MR straddles two, and the device's comes first)"
)]
pub(crate) struct NodeArgs {
    /// All memory on this node
    #[arg(long, value_name = "N", value_parser = super::parse_id)]
    pub(crate) node: Option<u32>,
    /// Page by page on all nodes in turn: MRs straddle
    #[arg(long, conflicts_with = "node")]
    pub(crate) interleave: bool,
}

impl NodeArgs {
    /// What that means on a host whose device is near `device`.
    pub(crate) fn nodes(&self, device: Option<u32>) -> Nodes {
        match self.node {
            Some(node) => Nodes::Only(node),
            None if self.interleave => Nodes::Interleave,
            None => Nodes::Whole(device),
        }
    }
}
