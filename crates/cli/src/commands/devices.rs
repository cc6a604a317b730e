//! `hugemr devices`.

use hugemr_core::backend::RegBackend as _;
use hugemr_core::size::{Bytes, Grouped};
use serde_json::json;

use super::say;
use crate::args::DevicesCommand;
use crate::exit::{Ended, Exit};
use crate::{device, json, render};

pub(crate) fn run(command: &DevicesCommand) -> Ended {
    if command.simulated {
        return simulated(command.json);
    }
    match device::real() {
        Ok(devices) if command.json => {
            let list: Vec<_> = devices.iter().map(document).collect();
            json::write(&json!({ "schema": "hugemr/devices/1", "devices": list }))?;
        }
        Ok(devices) => {
            for device in &devices {
                say(&text(device))?;
            }
        }
        Err(why) if command.json => {
            json::write(&json!({
                "schema": "hugemr/devices/1", "devices": [],
                "why_none": why.to_string(), "way_out": why.way_out(),
            }))?;
        }
        Err(why) => {
            say(&format!("no RDMA device can be used here: {why}"))?;
            say(&format!("  way out    {}", why.way_out()))?;
            say("  meanwhile  simulated devices: hugemr devices --simulated")?;
        }
    }
    Ok(Exit::Yes)
}

fn simulated(as_json: bool) -> Ended {
    let list = device::simulated();
    if as_json {
        let list: Vec<_> = list
            .iter()
            .map(|(name, what)| json!({ "name": name, "what": what }))
            .collect();
        json::write(&json!({ "schema": "hugemr/devices/1", "devices": list }))?;
    } else {
        let mut rows: Vec<Vec<String>> = list
            .into_iter()
            .map(|(name, what)| vec![name, what])
            .collect();
        rows.push(vec![
            "sim:./FILE.toml".to_owned(),
            "your own; crates/sim-backend/example.toml".to_owned(),
        ]);
        say(&render::table(&["simulated device", "what it is"], &rows))?;
    }
    Ok(Exit::Yes)
}

fn text(real: &device::RealDevice) -> String {
    let backend = match &real.opened {
        Ok(backend) => backend,
        Err(why) => {
            return format!(
                "{}: cannot be used: {why}\n  way out    {}",
                real.name,
                why.way_out()
            );
        }
    };
    let (info, device) = (backend.info(), backend.device());
    let number = |limit: &hugemr_core::fact::Limit| {
        limit
            .known()
            .map_or_else(|| "unknown".to_owned(), |n| Grouped(n).to_string())
    };
    let mut rows = vec![
        vec!["family".to_owned(), device.family.name().to_owned()],
        vec!["transport".to_owned(), info.transport.to_string()],
        vec![
            "vendor".to_owned(),
            format!(
                "{:#06x}, part {}, hw {:#x}",
                info.vendor_id, info.vendor_part_id, info.hw_ver
            ),
        ],
        vec!["firmware".to_owned(), info.fw_ver.clone()],
        vec!["node guid".to_owned(), info.node_guid.to_string()],
        vec![
            "max_mr_size".to_owned(),
            device.max_mr_size.known().map_or_else(
                || "unknown".to_owned(),
                |n| format!("{} ({n:#x})", Bytes(n)),
            ),
        ],
        vec![
            "page_size_cap".to_owned(),
            format!("{:#x}", device.page_size_cap.0),
        ],
        vec!["max_mr".to_owned(), number(&device.max_mr)],
        vec![
            "MTT entries".to_owned(),
            format!("{} ({})", number(&device.entries), device.entries.source),
        ],
    ];
    if let Some(pci) = &info.pci {
        let node = pci
            .numa_node
            .map_or_else(String::new, |n| format!(", NUMA node {n}"));
        rows.push(vec!["PCI".to_owned(), format!("{}{node}", pci.address)]);
    }
    for port in &info.ports {
        let state = if port.active { "active" } else { "not active" };
        rows.push(vec![format!("port {}", port.number), state.to_owned()]);
    }
    format!("{}\n{}", real.name, render::table(&[], &rows))
}

fn document(real: &device::RealDevice) -> serde_json::Value {
    match &real.opened {
        Err(why) => {
            json!({ "name": real.name, "why_not": why.to_string(), "way_out": why.way_out() })
        }
        Ok(backend) => {
            let (info, device) = (backend.info(), backend.device());
            json!({
                "name": real.name,
                "family": device.family.name(),
                "transport": info.transport.to_string(),
                "vendor_id": info.vendor_id,
                "vendor_part_id": info.vendor_part_id,
                "hw_ver": info.hw_ver,
                "fw_ver": info.fw_ver,
                "node_guid": info.node_guid.to_string(),
                "max_mr_size": json::limit(&device.max_mr_size),
                "max_mr": json::limit(&device.max_mr),
                "page_size_cap": format!("{:#x}", device.page_size_cap.0),
                "entries": json::limit(&device.entries),
                "pci": info.pci.as_ref().map(|pci| pci.address.clone()),
                "numa_node": info.pci.as_ref().and_then(|pci| pci.numa_node),
                "ports": info.ports.iter().map(|port| json!({
                    "number": port.number, "active": port.active, "ethernet": port.ethernet,
                })).collect::<Vec<_>>(),
            })
        }
    }
}
