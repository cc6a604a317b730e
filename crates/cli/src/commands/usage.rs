//! `hugemr usage`: who holds MRs, what is pinned, and what is left of the table.

use std::collections::BTreeMap;

use hugemr_core::device::{Family, Used};
use hugemr_core::limits::Range;
use hugemr_core::size::{Bytes, Count, Grouped};
use hugemr_host::facts::{Facts, ProcessId, kib_field};
use hugemr_host::netlink::{self, Mr};
use hugemr_host::root::Root;
use serde_json::{Value, json};

use super::say;
use crate::args::UsageCommand;
use crate::exit::{Ended, Exit, Failure};
use crate::typed::quoted;
use crate::{device, host, json, limits, notes, render};

/// What one process holds on a device.
pub(crate) struct Row {
    /// `None`: the kernel, or a process of another PID namespace.
    pub(crate) pid: Option<u32>,
    pub(crate) comm: String,
    pub(crate) mrs: u64,
    pub(crate) bytes: u64,
    /// Entries: exact where the process is hugemr and has noted them.
    pub(crate) entries: (u64, u64),
    pub(crate) pinned: Option<u64>,
    pub(crate) locked: Option<u64>,
}

impl Row {
    pub(crate) fn name(&self) -> String {
        match self.pid {
            Some(pid) => format!("pid {pid} {}", self.comm),
            None => self.comm.clone(),
        }
    }
}

pub(crate) fn run(command: &UsageCommand) -> Ended {
    let devices = match &command.device {
        Some(name) if name.starts_with("sim:") => {
            return Err(Failure::usage(
                "a simulated device lives in one process: nobody else can hold MRs on it",
            ));
        }
        Some(name) => vec![name.clone()],
        None => netlink::devices()
            .map_err(|error| {
                Failure::system(format_args!(
                    "the kernel does not list RDMA devices: {error}"
                ))
                .with("way out    sudo modprobe ib_uverbs; and see: hugemr doctor")
            })?
            .into_iter()
            .map(|device| device.name)
            .collect(),
    };
    let mut documents = Vec::new();
    for name in &devices {
        let rows = processes(name).map_err(|error| {
            Failure::system(format_args!(
                "the kernel does not list the MRs of {name}: {error}"
            ))
            .with("which devices there are: hugemr usage, hugemr devices")
        })?;
        let budget = budget(command, name)?;
        if command.json {
            documents.push(document(name, &rows, budget));
        } else {
            let limits = command.limits.quoted();
            let limits = limits.map_or_else(String::new, |file| format!(" --limits {file}"));
            say(&text(name, &rows, budget, &limits))?;
        }
    }
    if command.json {
        json::write(&json!({ "schema": "hugemr/usage/1", "devices": documents }))?;
    } else if devices.is_empty() {
        say("no RDMA device here: hugemr doctor says why")?;
    }
    Ok(Exit::Yes)
}

/// The processes that hold MRs on a device, the one with the most bytes first.
pub(crate) fn processes(device: &str) -> std::io::Result<Vec<Row>> {
    let mut by_owner: BTreeMap<(Option<u32>, String), Vec<Mr>> = BTreeMap::new();
    for mr in netlink::mrs(device)? {
        let comm = match (&mr.kernel, mr.pid) {
            (Some(name), _) => format!("kernel ({name})"),
            (None, Some(_)) => String::new(),
            (None, None) => "a process of another PID namespace".to_owned(),
        };
        by_owner
            .entry((mr.pid.filter(|_| mr.kernel.is_none()), comm))
            .or_default()
            .push(mr);
    }
    let noted = notes::all();
    let root = Root::real();
    let mut rows: Vec<Row> = by_owner
        .into_iter()
        .map(|((pid, comm), mrs)| {
            let used: Used = host::used(mrs.iter());
            let note = noted.iter().find(|note| {
                Some(note.pid) == pid && note.device == device && note.mrs == mrs.len() as u64
            });
            let status = pid.and_then(|pid| root.read(&format!("/proc/{pid}/status")).ok());
            let field = |name| kib_field(status.as_deref()?, name);
            let comm = match pid {
                Some(pid) => Facts::read_for(&root, ProcessId::Pid(pid))
                    .process
                    .name
                    .unwrap_or_default(),
                None => comm,
            };
            Row {
                pid,
                comm,
                mrs: mrs.len() as u64,
                bytes: mrs.iter().map(|mr| mr.len).fold(0, u64::saturating_add),
                entries: note.map_or(
                    (used.entries.0, used.entries.1.unwrap_or(u64::MAX)),
                    |note| (note.entries, note.entries),
                ),
                pinned: field("VmPin"),
                locked: field("VmLck"),
            }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    Ok(rows)
}

/// What is known of the size of the table.
fn budget(command: &UsageCommand, name: &str) -> Result<Range, Failure> {
    let which = device::which(name)?;
    Ok(match limits::known(&command.limits, &which) {
        Some((_, record)) if record.identity.changes(&which.identity).is_empty() => {
            record.seen.entries
        }
        _ => hugemr_core::limits::UNKNOWN,
    })
}

fn total(rows: &[Row]) -> (u64, u64) {
    rows.iter().fold((0, 0), |(low, high), row| {
        (
            low.saturating_add(row.entries.0),
            high.saturating_add(row.entries.1),
        )
    })
}

fn span((low, high): (u64, u64)) -> String {
    limits::range((low, Some(high)))
}

fn text(name: &str, rows: &[Row], budget: Range, limits: &str) -> String {
    if rows.is_empty() {
        return format!("{name}: no MRs");
    }
    let bytes = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| Bytes(n).to_string());
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.pid
                    .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                row.comm.clone(),
                Grouped(row.mrs).to_string(),
                Bytes(row.bytes).to_string(),
                span(row.entries),
                bytes(row.pinned),
                bytes(row.locked),
            ]
        })
        .collect();
    let mrs: u64 = rows.iter().map(|row| row.mrs).sum();
    let all = rows
        .iter()
        .map(|row| row.bytes)
        .fold(0, u64::saturating_add);
    let used = total(rows);
    let probe = format!(
        "sudo hugemr probe --device {}{limits}",
        quoted(name.as_ref())
    );
    let known = match budget {
        hugemr_core::limits::UNKNOWN if Family::of_device(name, 0) == Family::Erdma => format!(
            "size of the table never measured here; {}; know: {probe}",
            hugemr_core::prior::text(host::cpus())
        ),
        hugemr_core::limits::UNKNOWN => {
            format!("size of the table not known; know: {probe}")
        }
        (low, high) => format!(
            "of {} that the table has: {} left",
            limits::range((low, high)),
            limits::range((
                low.saturating_sub(used.1),
                high.map(|high| high.saturating_sub(used.0))
            ))
        ),
    };
    format!(
        "{name}: {}, {}, {}\n{}\n{known}\nentries are exact for processes of hugemr, and for others from 1 GiB pages to 4 KiB pages; QPs and CQs can take more",
        Count(mrs, "MR"),
        Bytes(all),
        limits::entries((used.0, Some(used.1)), "table "),
        render::table(
            &[
                "pid",
                "process",
                "MRs",
                "bytes",
                "table entries",
                "pinned",
                "locked"
            ],
            &table
        )
    )
}

fn document(name: &str, rows: &[Row], (low, high): Range) -> Value {
    let used = total(rows);
    json!({
        "device": name,
        "mrs": rows.iter().map(|row| row.mrs).sum::<u64>(),
        "bytes": rows.iter().map(|row| row.bytes).fold(0, u64::saturating_add),
        "entries": { "min": used.0, "max": used.1 },
        "budget": { "min": low, "max": high },
        "processes": rows.iter().map(|row| json!({
            "pid": row.pid,
            "name": row.comm,
            "mrs": row.mrs,
            "bytes": row.bytes,
            "entries": { "min": row.entries.0, "max": row.entries.1 },
            "pinned": row.pinned,
            "locked": row.locked,
        })).collect::<Vec<_>>(),
    })
}
