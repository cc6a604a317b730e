//! What a device says about itself, beside its limits.

use std::fmt;
use std::path::PathBuf;

use libc::c_int;

use crate::sys::consts::*;

/// A node GUID, in the order in which it is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(pub [u8; 8]);

impl Guid {
    /// The hardware address from which an EUI-64 was made; `None` for another kind of GUID.
    #[must_use]
    pub const fn mac(self) -> Option<[u8; 6]> {
        match self.0 {
            [a, b, c, 0xff, 0xfe, d, e, f] => Some([a ^ 2, b, c, d, e, f]),
            _ => None,
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i] = self.0;
        write!(
            f,
            "{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{g:02x}:{h:02x}{i:02x}"
        )
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

/// How packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// InfiniBand, or RoCE on an Ethernet port.
    Ib,
    /// iWARP, as eRDMA presents itself.
    Iwarp,
    /// Another, by its number in verbs.h.
    Other(i32),
}

impl Transport {
    pub(crate) const fn from_raw(raw: c_int) -> Self {
        match raw {
            IBV_TRANSPORT_IB => Self::Ib,
            IBV_TRANSPORT_IWARP => Self::Iwarp,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ib => f.write_str("InfiniBand"),
            Self::Iwarp => f.write_str("iWARP"),
            Self::Other(raw) => write!(f, "transport {raw}"),
        }
    }
}

/// Whether memory may be shared with a child of fork.
///
/// hugemr never calls `ibv_fork_init`: that is for the program to decide, before the first registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForkSafety {
    /// A fork may take pages away from the device.
    Disabled,
    /// The program called `ibv_fork_init`.
    Enabled,
    /// The kernel copies pinned pages at fork (5.12 and later): huge pages for the copy must be free, or fork fails.
    Unneeded,
    /// The library is too old to say (before `IBVERBS_1.13`).
    NotReported,
}

/// How the PCI function was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PciSource {
    /// By the RDMA device's own link.
    Link,
    /// The only eRDMA function of the machine.
    OnlyOfItsKind,
    /// The only eRDMA function on the bus of the network interface with the node GUID's hardware address.
    Sibling,
    /// The function of that network interface itself: the address is the interface's, the node likely the device's.
    Interface,
}

/// Where a device sits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pci {
    /// `0000:00:05.0`.
    pub address: String,
    /// The NUMA node; `None` where the platform does not say.
    pub numa_node: Option<u32>,
    /// How it was found.
    pub source: PciSource,
}

/// State of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u8,
    /// Whether it is active; a port that is down registers memory all the same.
    pub active: bool,
    /// Whether it is an Ethernet port.
    pub ethernet: bool,
}

/// What a device says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `erdma_0`.
    pub name: String,
    /// `uverbs0`; `None` where the library does not say.
    pub uverbs: Option<String>,
    /// Firmware, as the device writes it. The in-tree erdma driver writes 0.0.546 for 0.2.34.
    pub fw_ver: String,
    /// PCI vendor.
    pub vendor_id: u32,
    /// PCI device.
    pub vendor_part_id: u32,
    /// Hardware revision.
    pub hw_ver: u32,
    /// Node GUID.
    pub node_guid: Guid,
    /// How packets travel.
    pub transport: Transport,
    /// Its ports.
    pub ports: Vec<Port>,
    /// The network interface with the hardware address of the node GUID.
    pub netdev: Option<String>,
    /// Where it sits.
    pub pci: Option<Pci>,
    /// Whether fork is safe.
    pub fork: ForkSafety,
    /// The libibverbs behind it; `None` where the linker chose it.
    pub library: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_written_as_ibv_devinfo_does_and_gives_the_address() {
        let guid = Guid([0x02, 0x16, 0x3e, 0xff, 0xfe, 0x12, 0x34, 0x56]);
        assert_eq!(guid.to_string(), "0216:3eff:fe12:3456");
        assert_eq!(guid.mac(), Some([0x00, 0x16, 0x3e, 0x12, 0x34, 0x56]));
        assert_eq!(Guid([1; 8]).mac(), None);
    }
}
