//! What sysfs says about RDMA devices, under a root that tests replace.

use std::fs;
use std::path::{Path, PathBuf};

use crate::info::{Guid, Pci, PciSource};

/// PCI identity of the eRDMA function.
const ERDMA_PCI: (&str, &str) = ("0x1ded", "0x107f");

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|t| t.trim().to_owned())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The RDMA devices that the kernel has, sorted.
pub(crate) fn rdma_devices(sys: &Path) -> Vec<String> {
    names(&sys.join("class/infiniband"))
}

/// The name of the character device (`uverbs0`) of an RDMA device.
pub(crate) fn uverbs_of(sys: &Path, device: &str) -> Option<String> {
    let class = sys.join("class/infiniband_verbs");
    names(&class)
        .into_iter()
        .find(|entry| text(&class.join(entry).join("ibdev")).as_deref() == Some(device))
}

/// The version of the kernel's verbs interface.
pub(crate) fn kernel_abi(sys: &Path) -> Option<u32> {
    text(&sys.join("class/infiniband_verbs/abi_version"))?
        .parse()
        .ok()
}

/// The name of the provider for a device: that of its driver where sysfs links it (`mlx5_core` is mlx5), else the
/// device's name without its number (`erdma_0`, whose driver makes no link).
pub(crate) fn provider_of(sys: &Path, device: &str) -> String {
    let link = sys
        .join("class/infiniband")
        .join(device)
        .join("device/driver");
    let driver = fs::read_link(link)
        .ok()
        .and_then(|target| Some(target.file_name()?.to_str()?.to_owned()));
    match driver.as_deref() {
        Some("mlx5_core") => "mlx5".to_owned(),
        Some("mlx4_core") => "mlx4".to_owned(),
        Some("hns3" | "hns_roce_hw_v2") => "hns".to_owned(),
        Some(driver) => driver.to_owned(),
        None => {
            let stem = device.trim_end_matches(|c: char| c.is_ascii_digit());
            stem.trim_end_matches('_').to_owned()
        }
    }
}

/// The interface numbers of the provider's files in `dir` (`liberdma-rdmav34.so`).
pub(crate) fn provider_abis(dir: &Path, provider: &str) -> Vec<u32> {
    let prefix = format!("lib{provider}-rdmav");
    let mut numbers: Vec<u32> = names(dir)
        .iter()
        .filter_map(|name| {
            name.strip_prefix(&prefix)?
                .strip_suffix(".so")?
                .parse()
                .ok()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// The kind of a port's GID (`RoCE v2`, `IB/RoCE v1`).
pub(crate) fn gid_type(sys: &Path, device: &str, port: u8, index: u32) -> Option<String> {
    text(&sys.join(format!(
        "class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}"
    )))
}

/// The network interface behind a GID.
pub(crate) fn gid_netdev(sys: &Path, device: &str, port: u8, index: u32) -> Option<String> {
    text(&sys.join(format!(
        "class/infiniband/{device}/ports/{port}/gid_attrs/ndevs/{index}"
    )))
}

/// The network interface with this hardware address.
pub(crate) fn netdev_of_mac(sys: &Path, mac: [u8; 6]) -> Option<String> {
    let wanted = mac.map(|byte| format!("{byte:02x}")).join(":");
    let class = sys.join("class/net");
    names(&class)
        .into_iter()
        .find(|name| text(&class.join(name).join("address")).as_deref() == Some(wanted.as_str()))
}

/// Whether a path component is a PCI address, `0000:00:05.0`.
fn is_bdf(name: &str) -> bool {
    let shape = b"hhhh:hh:hh.h";
    name.len() == shape.len()
        && name.bytes().zip(shape).all(|(byte, kind)| match kind {
            b'h' => byte.is_ascii_hexdigit(),
            separator => byte == *separator,
        })
}

/// The PCI function under which the device behind `link` lives: the last address in its real path (a virtio
/// interface is one level below it).
fn pci_above(link: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(link).ok()?;
    real.ancestors()
        .find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(is_bdf)
        })
        .map(Path::to_path_buf)
}

fn pci_at(path: &Path, source: PciSource) -> Option<Pci> {
    let node = text(&path.join("numa_node")).and_then(|node| node.parse::<i64>().ok());
    Some(Pci {
        address: path.file_name()?.to_str()?.to_owned(),
        numa_node: node.and_then(|node| u32::try_from(node).ok()),
        source,
    })
}

/// The PCI function of a device, as far as it can be told.
///
/// The in-tree erdma driver makes no `device` link: there the node GUID gives the hardware address, that gives the
/// network interface, and the eRDMA function is the only one of its kind or a neighbour of the interface's.
pub(crate) fn pci_of(sys: &Path, device: &str, guid: Guid) -> Option<Pci> {
    let link = sys.join("class/infiniband").join(device).join("device");
    if let Some(path) = pci_above(&link) {
        return pci_at(&path, PciSource::Link);
    }
    let beside = guid
        .mac()
        .and_then(|mac| netdev_of_mac(sys, mac))
        .and_then(|name| pci_above(&sys.join("class/net").join(name).join("device")));
    if device.starts_with("erdma") {
        let bus = sys.join("bus/pci/devices");
        let functions: Vec<PathBuf> = names(&bus)
            .into_iter()
            .map(|name| bus.join(name))
            .filter(|path| {
                text(&path.join("vendor")).as_deref() == Some(ERDMA_PCI.0)
                    && text(&path.join("device")).as_deref() == Some(ERDMA_PCI.1)
            })
            .collect();
        if let [only] = functions.as_slice() {
            return pci_at(only, PciSource::OnlyOfItsKind);
        }
        let interface_bus = beside.as_deref().and_then(|path| {
            Some(
                path.file_name()?
                    .to_str()?
                    .split_at_checked(7)?
                    .0
                    .to_owned(),
            )
        });
        let mut siblings = functions.iter().filter(|path| {
            interface_bus.as_deref().is_some_and(|bus| {
                path.file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.starts_with(bus))
            })
        });
        if let (Some(only), None) = (siblings.next(), siblings.next()) {
            return pci_at(only, PciSource::Sibling);
        }
    }
    pci_at(&beside?, PciSource::Interface)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Sys(tempfile::TempDir);

    impl Sys {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }
        fn root(&self) -> &Path {
            self.0.path()
        }
        fn file(&self, path: &str, content: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fn link(&self, path: &str, target: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::create_dir_all(self.root().join(target)).unwrap();
            symlink(self.root().join(target), path).unwrap();
        }
    }

    const GUID: Guid = Guid([0x02, 0x16, 0x3e, 0xff, 0xfe, 0x12, 0x34, 0x56]);

    /// As on an instance with eRDMA: the RDMA device is virtual, the interface a virtio one.
    fn instance() -> Sys {
        let sys = Sys::new();
        sys.link(
            "class/infiniband/erdma_0",
            "devices/virtual/infiniband/erdma_0",
        );
        sys.file(
            "devices/pci0000:00/0000:00:05.0/virtio2/net/eth0/address",
            "00:16:3e:12:34:56\n",
        );
        sys.file("devices/pci0000:00/0000:00:05.0/numa_node", "1\n");
        sys.link(
            "class/net/eth0",
            "devices/pci0000:00/0000:00:05.0/virtio2/net/eth0",
        );
        sys.link(
            "devices/pci0000:00/0000:00:05.0/virtio2/net/eth0/device",
            "devices/pci0000:00/0000:00:05.0/virtio2",
        );
        sys
    }

    fn erdma_function(sys: &Sys, bdf: &str, node: &str) {
        let home = format!("devices/pci0000:00/{bdf}");
        sys.file(&format!("{home}/vendor"), "0x1ded\n");
        sys.file(&format!("{home}/device"), "0x107f\n");
        sys.file(&format!("{home}/numa_node"), node);
        sys.link(&format!("bus/pci/devices/{bdf}"), &home);
    }

    #[test]
    fn a_device_link_is_believed() {
        let sys = Sys::new();
        sys.link(
            "class/infiniband/mlx5_0/device",
            "devices/pci0000:80/0000:81:00.0",
        );
        sys.file("devices/pci0000:80/0000:81:00.0/numa_node", "-1\n");
        sys.link(
            "devices/pci0000:80/0000:81:00.0/driver",
            "bus/pci/drivers/mlx5_core",
        );
        let pci = pci_of(sys.root(), "mlx5_0", Guid([0; 8])).unwrap();
        assert_eq!(
            (pci.address.as_str(), pci.numa_node, pci.source),
            ("0000:81:00.0", None, PciSource::Link)
        );
        assert_eq!(provider_of(sys.root(), "mlx5_0"), "mlx5");
    }

    #[test]
    fn erdma_without_a_link_is_found_by_its_interface() {
        let sys = instance();
        let pci = pci_of(sys.root(), "erdma_0", GUID).unwrap();
        assert_eq!(
            (pci.address.as_str(), pci.numa_node, pci.source),
            ("0000:00:05.0", Some(1), PciSource::Interface)
        );

        erdma_function(&sys, "0000:00:06.0", "0\n");
        let pci = pci_of(sys.root(), "erdma_0", GUID).unwrap();
        assert_eq!(
            (pci.address.as_str(), pci.numa_node, pci.source),
            ("0000:00:06.0", Some(0), PciSource::OnlyOfItsKind)
        );

        erdma_function(&sys, "0000:40:06.0", "1\n");
        let pci = pci_of(sys.root(), "erdma_0", GUID).unwrap();
        assert_eq!(
            (pci.address.as_str(), pci.source),
            ("0000:00:06.0", PciSource::Sibling)
        );

        erdma_function(&sys, "0000:00:07.0", "1\n");
        let pci = pci_of(sys.root(), "erdma_0", GUID).unwrap();
        assert_eq!(pci.source, PciSource::Interface);
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        let sys = Sys::new();
        assert_eq!(rdma_devices(sys.root()), Vec::<String>::new());
        assert_eq!(uverbs_of(sys.root(), "erdma_0"), None);
        assert_eq!(kernel_abi(sys.root()), None);
        assert_eq!(pci_of(sys.root(), "erdma_0", GUID), None);
    }

    #[test]
    fn uverbs_and_versions_are_read() {
        let sys = Sys::new();
        sys.file("class/infiniband_verbs/abi_version", "6\n");
        sys.file("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
        sys.file("class/infiniband_verbs/uverbs3/ibdev", "erdma_0\n");
        assert_eq!(uverbs_of(sys.root(), "erdma_0").as_deref(), Some("uverbs3"));
        assert_eq!(kernel_abi(sys.root()), Some(6));
    }

    #[test]
    fn providers_are_named_and_numbered() {
        let sys = Sys::new();
        for (device, provider) in [
            ("erdma_0", "erdma"),
            ("rxe0", "rxe"),
            ("mlx5_bond_0", "mlx5_bond"),
        ] {
            assert_eq!(provider_of(sys.root(), device), provider);
        }
        for name in [
            "liberdma-rdmav65.so",
            "liberdma-rdmav34.so",
            "liberdma.so",
            "libefa-rdmav59.so",
        ] {
            sys.file(&format!("lib/{name}"), "");
        }
        assert_eq!(provider_abis(&sys.root().join("lib"), "erdma"), [34, 65]);
    }

    #[test]
    fn pci_addresses() {
        assert!(is_bdf("0000:00:05.0") && is_bdf("10ab:c1:1f.7"));
        for name in [
            "pci0000:00",
            "0000:00:05",
            "0000:00:05.g",
            "virtio2",
            "",
            "0000-00:05.00",
        ] {
            assert!(!is_bdf(name), "{name}");
        }
    }
}
