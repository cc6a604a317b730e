//! Memory of an ordinary program, in base pages: registered as it is, collapsed in place, registered again.

use std::sync::Arc;
use std::time::Instant;

use hugemr_core::device::Device;
use hugemr_core::layout::Layout;
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_host::adopt::Adopted;
use hugemr_host::collapse::collapse;
use hugemr_host::layout::Stride;
use hugemr_host::root::Root;

use super::{Judges, Range, Result, register, said};

/// Of this many bytes; one line `COLLAPSE {...}`.
pub(crate) fn run(judges: &Judges, len: u64) -> Result<()> {
    let huge = 2 * MIB;
    // What a program gets from its allocator: whole huge pages are only inside of it.
    let mut bytes = vec![0u8; usize::try_from(len + huge)?];
    for (i, byte) in bytes.iter_mut().enumerate().step_by(4096) {
        *byte = pattern(i);
    }
    let base = bytes.as_mut_ptr();
    let skip = base.align_offset(usize::try_from(huge)?);
    let inner = base.wrapping_add(skip);
    let bytes = Arc::new(bytes);
    // SAFETY: the range lies inside of the vector, which lives in the value and is not touched while anything is registered.
    let memory = unsafe { Adopted::with_page(inner, len, PageSize::K4, Arc::clone(&bytes)) }
        .map_err(|error| error.reason)?;
    let range = Range {
        addr: inner.expose_provenance() as u64,
        len,
    };
    let (before, first) = once(judges, &bytes, range)?;
    let start = Instant::now();
    let done = collapse(&Root::real(), &memory, &|| false)?;
    let took = start.elapsed().as_secs_f64();
    let (after, second) = once(judges, &bytes, range)?;
    let touched = bytes.iter().enumerate().step_by(4096);
    let intact = touched.into_iter().all(|(i, byte)| *byte == pattern(i));
    let gib = u32::try_from(len / MIB)?;
    let per_gib = took / f64::from(gib) * f64::from(u32::try_from(GIB / MIB)?);
    println!(
        "COLLAPSE {{\"va\":{},\"len\":{len},\"before\":{before},\"first\":{first},\"after\":{after},\"second\":{second},\
         \"huge\":{},\"refused\":{},\"intact\":{intact},\"seconds_per_gib\":{per_gib:.3}}}",
        range.addr, done.huge, done.refused
    );
    Ok(())
}

/// A different byte in neighbouring pages.
fn pattern(i: usize) -> u8 {
    u8::try_from(i / 4096 % 251).unwrap_or(0)
}

/// What is predicted, and what registering answers.
fn once(judges: &Judges, bytes: &Arc<Vec<u8>>, range: Range) -> Result<(String, String)> {
    let runs = judges
        .pagemap
        .runs(range.addr, range.len, Stride::Every, 1)?;
    let layout = Layout::new(range.addr, runs);
    let device: &Device = hugemr_core::backend::RegBackend::device(&*judges.real);
    let predicted = hugemr_core::layout::predict(
        &layout,
        range.addr,
        range.len,
        range.addr,
        device.page_size_cap,
        &judges.rules,
    );
    let base = std::ptr::with_exposed_provenance_mut(usize::try_from(range.addr)?);
    // SAFETY: as in `run`.
    let memory = unsafe { Adopted::with_page(base, range.len, PageSize::K4, Arc::clone(bytes)) }
        .map_err(|error| error.reason)?;
    let answer = register(Arc::clone(&judges.real), memory, range);
    Ok((said(predicted), answer))
}
