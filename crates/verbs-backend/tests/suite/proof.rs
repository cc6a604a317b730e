//! A whole registration proved, and the same with wrong keys and wrong borders: each of them must be caught, at the MR
//! where it is.

use std::ops::Range;
use std::sync::Arc;

use hugemr::core::backend::{RegBackend, Rkey, VerifyError};
use hugemr::core::host::Host;
use hugemr::core::key_table::{Entry, KeyTable};
use hugemr::core::plan::{Pages, PlanRequest, plan};
use hugemr::core::size::{Bytes, KIB, MIB, PageSize};
use hugemr::{Build, Pool, ProofError, verify};
use hugemr_verbs::VerbsBackend;

use crate::device::{open_the_real_one, refusal_of_access};
use crate::fake::{Counts, Fake};

/// Bytes on each side of a border that a proof may touch, and more.
const AROUND: u64 = 128;

/// Registers `size` in MRs of `chunk`.
fn register(
    backend: VerbsBackend,
    size: u64,
    chunk: u64,
    page: PageSize,
) -> Pool<Arc<VerbsBackend>> {
    let mut request = PlanRequest::total(size).pages(Pages::Only(page));
    request.chunk = Some(chunk);
    let plan = plan(&request, backend.device(), &Host::default()).unwrap();
    assert_eq!((plan.mapped, plan.mrs), (size, size / chunk));
    Build::new(&plan).build(Arc::new(backend)).unwrap()
}

/// The MRs of a pool as a table takes them.
fn entries(pool: &Pool<Arc<VerbsBackend>>) -> Vec<Entry> {
    let keys = pool.keys();
    keys.iter()
        .map(|mr| Entry {
            addr: mr.addr,
            len: mr.len,
            lkey: mr.lkey,
            rkey: mr.rkey,
        })
        .collect()
}

/// The bytes before and after each border, and at both ends.
fn places(entries: &[Entry]) -> impl Iterator<Item = Range<u64>> + '_ {
    entries.iter().flat_map(|mr| {
        let end = mr.addr + mr.len;
        [mr.addr..mr.addr + AROUND, end - AROUND..end]
    })
}

/// Something that is not zero, and different at each place.
fn fill(entries: &[Entry]) {
    for addr in places(entries).flatten() {
        let place = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize);
        // SAFETY: inside registered memory, and no transfer is under way.
        unsafe { place.write(pattern(addr)) };
    }
}

#[track_caller]
fn unchanged(entries: &[Entry], after: &str) {
    for addr in places(entries).flatten() {
        let place = std::ptr::with_exposed_provenance::<u8>(addr as usize);
        // SAFETY: as in `fill`. Volatile, for the device writes it behind the compiler's back.
        let byte = unsafe { place.read_volatile() };
        assert_eq!(
            byte,
            pattern(addr),
            "{addr:#x} was changed by a proof with {after}"
        );
    }
}

fn pattern(addr: u64) -> u8 {
    (addr % 251) as u8 ^ (addr >> 20) as u8 | 1
}

/// Proves the pool with these entries instead of its own: the first thing that is wrong must be at MR `at`.
#[track_caller]
fn caught(pool: &Pool<Arc<VerbsBackend>>, wrong: Vec<Entry>, at: usize, what: &str) {
    let keys = KeyTable::new(wrong).unwrap();
    match verify(pool.backend(), &keys, |_| ()) {
        Err(ProofError::Transfer {
            mr,
            source: VerifyError::Completion { status, .. },
        }) => {
            assert_eq!(
                (mr, status.as_str()),
                (at, refusal_of_access(pool.backend())),
                "{what}"
            );
        }
        other => panic!("{what} of MR {at}: {other:?}"),
    }
    unchanged(&entries(pool), what);
}

/// Proves it all, then makes one thing wrong after the other.
fn prove_and_catch(pool: &Pool<Arc<VerbsBackend>>) {
    let good = entries(pool);
    let last = good.len() - 1;
    fill(&good);
    let proof = pool.verify(pool.backend(), &|_| ()).unwrap();
    assert_eq!((proof.mrs, proof.borders), (good.len(), last));
    unchanged(&good, "the right keys");

    let with = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut wrong = good.clone();
        change(&mut wrong);
        wrong
    };
    let known = |key: Rkey| good.iter().any(|mr| mr.rkey == key);
    for at in 0..good.len() {
        let nobodys = Rkey(good[at].rkey.0 ^ 0x0100_0000);
        assert!(!known(nobodys));
        let wrong = with(&|mrs| mrs[at].rkey = nobodys);
        caught(pool, wrong, at, "an rkey of no MR");
        let wrong = with(&|mrs| mrs[at].rkey = good[if at == 0 { last } else { at - 1 }].rkey);
        caught(pool, wrong, at, "the rkey of another MR");
    }
    for at in 1..good.len() {
        let wrong = with(&|mrs| {
            mrs[at - 1].len += 1;
            mrs[at].addr += 1;
            mrs[at].len -= 1;
        });
        caught(pool, wrong, at - 1, "a border one byte late");
        let wrong = with(&|mrs| {
            mrs[at - 1].len -= 1;
            mrs[at].addr -= 1;
            mrs[at].len += 1;
        });
        caught(pool, wrong, at, "a border one byte early");
    }
    let wrong = with(&|mrs| mrs[last].len += 1);
    caught(pool, wrong, last, "an end one byte late");
    // All that was wrong is gone with its table.
    pool.verify(pool.backend(), &|_| ()).unwrap();
    // Read by the check of the guest.
    println!(
        "caught: {} in {} MRs: {} wrong rkeys and {} borders off by one byte",
        Bytes(pool.bytes()),
        good.len(),
        2 * good.len(),
        2 * last + 1
    );
}

#[test]
fn wrong_keys_and_borders_are_caught() {
    let fake = Fake::new("device erdma_0 sim=verbs");
    let pool = register(
        fake.open("erdma_0").unwrap(),
        512 * KIB,
        64 * KIB,
        PageSize::K4,
    );
    prove_and_catch(&pool);
    pool.close().unwrap();
    assert_eq!(fake.counts(), Counts::default());
}

#[test]
#[ignore = "needs a guest: 512 MiB of huge pages and a real verbs device"]
fn wrong_keys_and_borders_are_caught_in_512_mib_of_huge_pages() {
    let pool = register(open_the_real_one(), 512 * MIB, 64 * MIB, PageSize::M2);
    prove_and_catch(&pool);
    pool.close().unwrap();
}
