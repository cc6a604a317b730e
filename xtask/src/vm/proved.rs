//! What hugemr saw in the kernel, against what the device saw: the device is asked neither by hugemr nor by the kernel.
use anyhow::{Context as _, Result, ensure};

use super::agree::Run;
use super::answer::{Document, hexadecimal};
use super::emulator::Event;

/// Page size and entries that hugemr reports as seen are those with which the MR arrived at the device.
pub(crate) fn proved(run: &Run<'_>) -> Result<String> {
    let arrived: Vec<_> = run
        .events
        .iter()
        .filter_map(|event| match event {
            Event::RegMr(mr) if mr.kind == "user" => Some(mr),
            _ => None,
        })
        .collect();
    let (mut at, mut count, mut pages) = (0, 0, 0);
    for line in run.log.lines() {
        let Some(json) = line.strip_prefix("| PROVED ") else {
            continue;
        };
        let document: Document =
            serde_json::from_str(json).with_context(|| format!("in {json}"))?;
        // Several threads register: the MRs of one run arrive in any order.
        let run = arrived.get(at..at + document.mrs.len());
        let run = run.context("the guest names more MRs than arrived")?;
        at += document.mrs.len();
        for mr in &document.mrs {
            let addr = hexadecimal(&mr.addr).with_context(|| mr.addr.clone())?;
            let found = run.iter().find(|r| r.va == addr && r.len == mr.len);
            let found = found.with_context(|| format!("0x{addr:x} did not arrive"))?;
            let seen = mr.seen.as_ref();
            let seen = seen.with_context(|| format!("0x{addr:x} was not seen"))?;
            ensure!(
                seen.entries == Some(found.entries),
                "0x{addr:x}: {:?} entries seen, {} arrived",
                seen.entries,
                found.entries
            );
            // Few entries do not tell the page size.
            if let Some(page) = seen.page {
                ensure!(
                    page == 1 << found.page_shift,
                    "0x{addr:x}: pages of {page} seen, of {} arrived",
                    1_u64 << found.page_shift
                );
                pages += 1;
            }
            count += 1;
        }
    }
    ensure!(count > 0, "the guest proved nothing");
    Ok(format!(
        "{count} MRs arrived with the entries that were seen, {pages} with the page size"
    ))
}
