//! PCI functions of RDMA families, with what the verbs device itself does not tell: its NUMA node and its IOMMU.
//!
//! The in-tree erdma driver's verbs device has no link to its PCI function, so the function is found by its id.

use hugemr_core::device::Family;

use crate::root::Root;

/// How the DMA of a function is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// The host has no active IOMMU.
    Absent,
    /// Addresses pass unchanged (`identity`).
    Identity,
    /// Addresses are translated (`DMA`, `DMA-FQ`): physically scattered memory is contiguous for the device.
    Translated,
    /// In a group whose type cannot be read.
    Unknown,
}

/// A PCI function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// Domain, bus, device, function: `0000:00:07.0`.
    pub address: String,
    /// PCI vendor.
    pub vendor: u16,
    /// PCI device.
    pub device: u16,
    /// Family by vendor.
    pub family: Family,
    /// NUMA node; `None` where the firmware does not say.
    pub node: Option<u32>,
    /// Name of the bound driver.
    pub driver: Option<String>,
    /// Translation of its DMA.
    pub iommu: Iommu,
}

const DEVICES: &str = "/sys/bus/pci/devices";
const GROUPS: &str = "/sys/kernel/iommu_groups";
/// eRDMA's function (Linux `drivers/infiniband/hw/erdma/erdma_hw.h`).
const ERDMA: (u16, u16) = (0x1ded, 0x107f);

/// eRDMA functions, and functions that have a verbs device (`infiniband` folder), by address.
#[must_use]
pub fn functions(root: &Root) -> Vec<PciFunction> {
    root.names(DEVICES)
        .into_iter()
        .filter_map(|address| function(root, address))
        .collect()
}

/// Whether DMA of the eRDMA functions is translated; `None` where there is none, or they differ, or it is not known.
#[must_use]
pub fn translated(functions: &[PciFunction]) -> Option<bool> {
    let mut modes = functions
        .iter()
        .filter(|function| function.family == Family::Erdma)
        .map(|function| match function.iommu {
            Iommu::Absent | Iommu::Identity => Some(false),
            Iommu::Translated => Some(true),
            Iommu::Unknown => None,
        });
    let first = modes.next()??;
    modes.all(|mode| mode == Some(first)).then_some(first)
}

fn function(root: &Root, address: String) -> Option<PciFunction> {
    let dir = format!("{DEVICES}/{address}");
    let id = |file: &str| {
        let text = root.text(&format!("{dir}/{file}"))?;
        u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    let (vendor, device) = (id("vendor")?, id("device")?);
    if (vendor, device) != ERDMA && !root.exists(&format!("{dir}/infiniband")) {
        return None;
    }
    let last = |link: &str| {
        let target = root.link(&format!("{dir}/{link}"))?;
        target.rsplit('/').next().map(str::to_owned)
    };
    let iommu = match last("iommu_group") {
        Some(group) => match root.text(&format!("{GROUPS}/{group}/type")).as_deref() {
            Some("identity") => Iommu::Identity,
            Some("DMA" | "DMA-FQ") => Iommu::Translated,
            _ => Iommu::Unknown,
        },
        // No group: no IOMMU serves this function.
        None => Iommu::Absent,
    };
    Some(PciFunction {
        family: Family::of_device("", vendor.into()),
        vendor,
        device,
        // -1: the firmware does not say.
        node: root
            .number(&format!("{dir}/numa_node"))
            .and_then(|node| u32::try_from(node).ok()),
        driver: last("driver"),
        iommu,
        address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    fn erdma(tree: &Tree, address: &str, group: Option<(&str, &str)>) {
        let dir = format!("{DEVICES}/{address}");
        tree.file(&format!("{dir}/vendor"), "0x1ded\n");
        tree.file(&format!("{dir}/device"), "0x107f\n");
        tree.file(&format!("{dir}/numa_node"), "-1\n");
        if let Some((group, mode)) = group {
            tree.symlink(
                &format!("{dir}/iommu_group"),
                &format!("../../../kernel/iommu_groups/{group}"),
            );
            tree.file(&format!("{GROUPS}/{group}/type"), mode);
        }
    }

    #[test]
    fn translation_is_known_where_all_functions_agree() {
        let tree = Tree::new();
        assert_eq!(translated(&functions(&tree.root())), None);
        erdma(&tree, "0000:00:07.0", None);
        assert_eq!(translated(&functions(&tree.root())), Some(false));
        erdma(&tree, "0000:00:08.0", Some(("1", "identity\n")));
        assert_eq!(translated(&functions(&tree.root())), Some(false));
        erdma(&tree, "0000:00:09.0", Some(("2", "DMA-FQ\n")));
        assert_eq!(translated(&functions(&tree.root())), None);
    }

    #[test]
    fn a_function_of_another_family_needs_a_verbs_device() {
        let tree = Tree::new();
        let dir = format!("{DEVICES}/0000:01:00.0");
        tree.file(&format!("{dir}/vendor"), "0x15b3");
        tree.file(&format!("{dir}/device"), "0x1017");
        assert!(functions(&tree.root()).is_empty());
        tree.file(&format!("{dir}/infiniband/mlx5_0/x"), "");
        tree.file(&format!("{dir}/numa_node"), "1\n");
        tree.symlink(&format!("{dir}/driver"), "../../bus/pci/drivers/mlx5_core");
        let found = functions(&tree.root());
        assert_eq!(found[0].node, Some(1));
        assert_eq!(found[0].driver.as_deref(), Some("mlx5_core"));
        assert_eq!(found[0].family, Family::Other);
    }
}
