//! RDMA devices as the kernel shows them in sysfs, without libibverbs.

use hugemr_core::doctor::{Port, RdmaDevice};

use crate::root::Root;

const CLASS: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";

/// The devices, by name; `None` where sysfs cannot be seen.
#[must_use]
pub fn devices(root: &Root) -> Option<Vec<RdmaDevice>> {
    if !root.exists("/sys/class") {
        return None;
    }
    let entries: Vec<(String, String)> = root
        .names(VERBS)
        .into_iter()
        .filter_map(|uverbs| {
            let device = root.text(&format!("{VERBS}/{uverbs}/ibdev"))?;
            Some((uverbs, device))
        })
        .collect();
    let names = root.names(CLASS).into_iter();
    Some(names.map(|name| device(root, name, &entries)).collect())
}

fn device(root: &Root, name: String, entries: &[(String, String)]) -> RdmaDevice {
    let uverbs = entries
        .iter()
        .find(|(_, device)| *device == name)
        .map(|(uverbs, _)| uverbs.clone());
    let char_device = uverbs
        .as_ref()
        .map(|uverbs| root.exists(&format!("/dev/infiniband/{uverbs}")));
    let dir = format!("{CLASS}/{name}/ports");
    let mut ports: Vec<Port> = root
        .names(&dir)
        .into_iter()
        .filter_map(|port| {
            Some(Port {
                number: port.parse().ok()?,
                // `4: ACTIVE`
                state: root
                    .text(&format!("{dir}/{port}/state"))
                    .and_then(|text| text.split_once(": ").map(|(_, word)| word.to_owned())),
            })
        })
        .collect();
    ports.sort_by_key(|port| port.number);
    RdmaDevice {
        name,
        uverbs,
        char_device,
        ports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    #[test]
    fn a_device_with_its_ports() {
        let tree = Tree::new();
        assert_eq!(devices(&tree.root()), None);
        tree.file(&format!("{CLASS}/erdma_0/ports/1/state"), "4: ACTIVE\n");
        tree.file(&format!("{CLASS}/erdma_1/ports/1/state"), "1: DOWN\n");
        tree.file(&format!("{CLASS}/erdma_1/ports/2/state"), "?");
        tree.file(&format!("{VERBS}/uverbs7/ibdev"), "erdma_0\n");
        tree.file(&format!("{VERBS}/abi_version"), "6\n");
        let found = devices(&tree.root()).unwrap();
        assert_eq!(found[0].uverbs.as_deref(), Some("uverbs7"));
        assert_eq!(found[0].char_device, Some(false));
        assert_eq!(found[0].ports[0].state.as_deref(), Some("ACTIVE"));
        assert_eq!(
            (found[1].uverbs.as_ref(), found[1].char_device),
            (None, None)
        );
        assert_eq!(found[1].ports[0].state.as_deref(), Some("DOWN"));
        assert_eq!(found[1].ports[1].state, None);
    }
}
