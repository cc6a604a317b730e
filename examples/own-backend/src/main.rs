//! Memory of one's own on a device of one's own: planned, registered, looked up and split with nothing of hugemr but
//! its core.
//!
//! The device here is a map in memory. Over a real one, `reg_mr` calls `ibv_reg_mr` and `dereg_mr` calls
//! `ibv_dereg_mr`, and nothing else changes.

use std::collections::BTreeMap;
use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicU8;
use std::sync::{Mutex, PoisonError};

use hugemr_core::backend::{
    Access, Backing, Lkey, MrHandle, MrRequest, RegBackend, RegisteredMr, Rkey, Verb, VerbError,
};
use hugemr_core::device::{Device, Family};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Host, Platform};
use hugemr_core::plan::{Pages, PlanRequest, Wish, plan};
use hugemr_core::registrar::{Options, Registration};
use hugemr_core::size::{Bytes, KIB, PageSize};

// The backend.
#[derive(Debug)]
struct Mine {
    device: Device,
    mrs: Mutex<BTreeMap<u64, MrRequest>>,
}

impl RegBackend for Mine {
    fn device(&self) -> &Device {
        &self.device
    }
    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        let mut mrs = self.mrs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = mrs.last_key_value().map_or(1, |(last, _)| last + 1);
        mrs.insert(key, *request);
        let (handle, key) = (MrHandle(key), u32::try_from(key << 8).unwrap_or(0));
        let (lkey, rkey) = (Lkey(key), Rkey(key));
        Ok(RegisteredMr { handle, lkey, rkey })
    }
    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        let mut mrs = self.mrs.lock().unwrap_or_else(PoisonError::into_inner);
        let (verb, errno) = (Verb::DeregMr, Errno::EINVAL);
        let gone = mrs.remove(&mr.0).ok_or(VerbError { verb, errno })?;
        assert!(gone.len.get() > 0);
        Ok(())
    }
}
// The end of the backend.

/// Memory that the application has anyway. The device writes to it behind the compiler's back, and so its bytes are
/// atomic.
struct Buffer(Box<[AtomicU8]>);

// SAFETY: the bytes are on the heap, they do not move, and they are freed when the value is dropped and not before.
unsafe impl Backing for Buffer {
    fn base(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn page(&self) -> PageSize {
        PageSize::K4
    }
}

/// A device that takes 256 KiB for each MR and 512 entries.
fn device() -> Device {
    let source = || Source::new(Kind::Documented, "own device");
    Device {
        max_mr_size: Limit::exact(256 * KIB, source()),
        entries: Limit::exact(512, source()),
        ..Device::unlimited("mine", Family::Other)
    }
}

fn host() -> Host {
    let platform = Platform {
        kernel: "6.15".parse().ok(),
        driver: Driver::InTree,
        iommu: Some(false),
        ..Platform::default()
    };
    Host {
        platform,
        ..Host::default()
    }
}

fn run(bytes: usize) -> Result<Vec<String>, Box<dyn Error>> {
    let buffer = Buffer((0..bytes).map(|_| AtomicU8::new(0)).collect());
    let (addr, len) = (buffer.base(), buffer.len());
    let backend = Mine {
        device: device(),
        mrs: Mutex::default(),
    };

    let request = PlanRequest::new(Wish::Adopted { addr, len }).pages(Pages::Only(PageSize::K4));
    let plan = plan(&request, &backend.device, &host())?;
    let mut said = vec![format!(
        "{}: {} MRs, {} entries, {}",
        Bytes(plan.mapped),
        plan.mrs,
        plan.entries.1,
        plan.verdict.name()
    )];

    let options = Options::new().workers(NonZeroUsize::new(2).ok_or("no worker")?);
    let registered =
        Registration::new(backend, buffer, &plan.segments, Access::REMOTE_RW, &options)?;
    let keys = registered.keys();
    let key = keys.lookup(addr + 4096, 64 << 10)?;
    said.push(format!("64 KiB at offset 4 KiB: MR {} alone", key.index));

    // What crosses a border is no single key: it comes in parts.
    let border = registered.mrs().nth(1).ok_or("one MR only")?.addr;
    let crossing = keys.lookup(border - 4096, 8192);
    said.push(format!(
        "8 KiB across a border: {}",
        crossing.err().ok_or("it is one MR")?
    ));
    for part in keys.split(border - 4096, 8192)? {
        said.push(format!("  {} in MR {}", Bytes(part.len), part.index));
    }

    let buffer = registered.close()?;
    said.push(format!(
        "taken back, {} are ours again",
        Bytes(buffer.len())
    ));
    Ok(said)
}

fn main() -> Result<(), Box<dyn Error>> {
    for line in run(1 << 20)? {
        println!("{line}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_plans_registers_looks_up_and_splits() {
        let said = run(1 << 20).expect("a run");
        assert!(
            said[0].starts_with("1 MiB: ") && said[0].ends_with(" entries, fits"),
            "{said:?}"
        );
        let parts: Vec<&String> = said
            .iter()
            .filter(|line| line.starts_with("  4 KiB in MR "))
            .collect();
        assert_eq!(parts.len(), 2, "{said:?}");
        assert_eq!(
            said.last().map(String::as_str),
            Some("taken back, 1 MiB are ours again")
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let error = run(3 << 20).expect_err("it does not fit").to_string();
        assert!(error.contains("the device has 512"), "{error}");
    }

    /// The promise of the example.
    #[test]
    fn a_backend_has_30_lines_at_most() {
        let source = include_str!("main.rs");
        let backend = source.split("// The backend.\n").nth(1).expect("its begin");
        let backend = backend
            .split("// The end of the backend.")
            .next()
            .expect("its end");
        assert!(backend.lines().count() <= 30, "{}", backend.lines().count());
    }
}
