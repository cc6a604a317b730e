//! Facts of this host, as the planner takes them.

use hugemr_core::host::Host;

/// Reads what can be read.
pub(crate) fn read(_device: Option<&hugemr_verbs::DeviceInfo>) -> Host {
    Host::default()
}
