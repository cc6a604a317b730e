//! Proofs by moving data, and what they catch.

use hugemr_core::backend::{
    Access, MrRequest, RegBackend, RegisteredMr, Rkey, VerifyBackend, VerifyError,
};
use hugemr_verbs::VerbsBackend;

use crate::device::{open_the_real_one, refusal_of_access};
use crate::fake::{Counts, Fake};
use crate::memory::Memory;

struct Setup {
    fake: Fake,
    backend: VerbsBackend,
    memory: Memory,
    before: Vec<u8>,
    mr: RegisteredMr,
}

const PAGES: usize = 64;
const LEN: u64 = PAGES as u64 * 4096;

fn setup_with(device: &str, access: Access) -> Setup {
    let fake = Fake::new(&format!("device rxe0 sim=verbs {device}"));
    let backend = fake.open("rxe0").unwrap();
    let mut memory = Memory::pages(PAGES);
    let before = memory.fill();
    let request = MrRequest {
        access,
        ..memory.request()
    };
    // SAFETY: the memory is dropped after the backend.
    let mr = unsafe { backend.reg_mr(&request) }.unwrap();
    Setup {
        fake,
        backend,
        memory,
        before,
        mr,
    }
}

fn setup(device: &str) -> Setup {
    setup_with(device, Access::REMOTE_RW)
}

impl Setup {
    fn prove(&self, offset: u64, len: u64) -> Result<(), VerifyError> {
        let addr = self.memory.addr() + offset;
        self.backend.round_trip(addr, len as u32, self.mr.rkey)
    }

    #[track_caller]
    fn unchanged(&self) {
        assert!(self.memory.bytes() == self.before, "the memory was changed");
    }
}

#[track_caller]
fn status(result: Result<(), VerifyError>) -> (&'static str, String) {
    match result {
        Err(VerifyError::Completion {
            operation, status, ..
        }) => (operation, status),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn no_loopback(result: Result<(), VerifyError>) -> String {
    match result {
        Err(VerifyError::NoLoopback { device, why }) => {
            assert_eq!(device, "rxe0");
            why
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_good_mr_is_proved_and_left_as_it_was() {
    for device in ["link=ethernet", "link=infiniband", "wire=noisy"] {
        let s = setup(device);
        for (offset, len) in [
            (0, 1),
            (0, 64),
            (LEN - 64, 64),
            (4095, 2),
            (0, LEN),
            (1, 70_000),
            (5, 0),
        ] {
            s.prove(offset, len).unwrap();
            s.unchanged();
        }
    }
}

#[test]
fn everything_is_given_back() {
    let s = setup("");
    s.prove(0, 64).unwrap();
    assert_eq!(s.fake.counts().qps, 2);
    s.backend.dereg_mr(s.mr.handle).unwrap();
    drop(s.backend);
    assert_eq!(s.fake.counts(), Counts::default());
}

#[test]
fn a_wrong_rkey_is_caught() {
    let s = setup("");
    let wrong = Rkey(s.mr.rkey.0 ^ 0x100_0000);
    let result = s.backend.round_trip(s.memory.addr(), 64, wrong);
    assert_eq!(
        status(result),
        ("RDMA READ", "IBV_WC_REM_ACCESS_ERR".to_owned())
    );
    s.unchanged();
    // The broken connection is replaced.
    s.prove(0, 64).unwrap();
}

#[test]
fn a_border_off_by_one_byte_is_caught() {
    let s = setup("");
    for (offset, len) in [(LEN - 63, 64), (u64::MAX, 64), (LEN, 1)] {
        let addr = s.memory.addr().wrapping_add(offset);
        let result = s.backend.round_trip(addr, len, s.mr.rkey);
        assert_eq!(status(result).1, "IBV_WC_REM_ACCESS_ERR");
        s.unchanged();
    }
    s.prove(LEN - 64, 64).unwrap();
}

#[test]
fn a_range_beyond_the_address_space_is_refused() {
    let s = setup("");
    let result = s.backend.round_trip(u64::MAX - 3, 64, s.mr.rkey);
    assert_eq!(status(result).1, "range beyond 2^64");
}

#[test]
fn an_mr_that_is_gone_is_caught() {
    let s = setup("");
    s.prove(0, 64).unwrap();
    s.backend.dereg_mr(s.mr.handle).unwrap();
    assert_eq!(status(s.prove(0, 64)).1, "IBV_WC_REM_ACCESS_ERR");
}

#[test]
fn missing_rights_are_caught() {
    let s = setup_with("", Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    assert_eq!(status(s.prove(0, 64)).0, "RDMA READ");
    let s = setup_with("", Access::REMOTE_READ);
    assert_eq!(status(s.prove(0, 64)).0, "RDMA WRITE");
    s.unchanged();
}

#[test]
fn data_that_does_not_arrive_is_caught() {
    let s = setup("wire=loses");
    let addr = s.memory.addr();
    assert_eq!(s.prove(0, 64), Err(VerifyError::Differs { addr, len: 64 }));
    s.unchanged();
    let s = setup("wire=flips");
    let addr = s.memory.addr();
    assert_eq!(s.prove(0, 64), Err(VerifyError::Differs { addr, len: 64 }));
}

/// The connection is checked by one write and one read; a proof is read, write, read, write, read.
#[test]
fn the_former_bytes_come_back_wherever_a_proof_breaks() {
    for step in 3..=7 {
        let s = setup(&format!("break_at={step}"));
        assert_eq!(status(s.prove(0, 4096)).1, "IBV_WC_RETRY_EXC_ERR");
        s.unchanged();
        s.prove(0, 4096).unwrap();
    }
}

#[test]
fn a_device_that_cannot_reach_itself_says_why() {
    for (device, words) in [
        (
            "transport=iwarp",
            "by rdma_cm: no network interface is known for it",
        ),
        ("port=down", "port 1 is not active"),
        ("wire=refuses", "ibv_modify_qp to RTR: EINVAL"),
        ("wire=silent", "RDMA WRITE to itself: IBV_WC_RETRY_EXC_ERR"),
        ("cq=ENOMEM", "ibv_create_cq: ENOMEM"),
        ("qp=ENOMEM", "ibv_create_qp: ENOMEM"),
        ("reg.2+=EIO", "ibv_reg_mr: EIO"),
    ] {
        let s = setup(device);
        let why = no_loopback(s.prove(0, 64));
        assert!(why.contains(words), "{device}: {why}");
        s.unchanged();
    }
}

#[test]
fn eight_threads_prove_at_once() {
    let s = setup("");
    std::thread::scope(|scope| {
        for index in 0..8 {
            let s = &s;
            scope.spawn(move || {
                for round in 0..20 {
                    s.prove(index * 8192 + round, 4096).unwrap();
                }
            });
        }
    });
    s.unchanged();
}

#[test]
#[ignore = "needs a real verbs device"]
fn a_real_device_is_proved_and_catches_a_wrong_key_and_border() {
    let backend = open_the_real_one();
    let mut memory = Memory::pages(PAGES);
    let before = memory.fill();
    // SAFETY: given back below, before the memory goes.
    let mr = unsafe { backend.reg_mr(&memory.request()) }.unwrap();
    let addr = memory.addr();
    for (offset, len) in [(0, 64), (LEN - 64, 64), (0, LEN as u32), (4095, 2)] {
        backend.round_trip(addr + offset, len, mr.rkey).unwrap();
        assert!(memory.bytes() == before);
    }
    let expected = refusal_of_access(&backend);
    let wrong = Rkey(mr.rkey.0 ^ 0x5500);
    let wrong_key = backend.round_trip(addr, 64, wrong);
    assert_eq!(status(wrong_key).1, expected);
    let beyond = backend.round_trip(addr + LEN - 63, 64, mr.rkey);
    assert_eq!(status(beyond).1, expected);
    assert!(memory.bytes() == before);
    backend.round_trip(addr, 64, mr.rkey).unwrap();
    backend.dereg_mr(mr.handle).unwrap();
}

#[test]
fn only_addresses_of_its_own_are_tried_and_ipv4_first() {
    let s = setup("wire=refuses");
    let why = no_loopback(s.prove(0, 64));
    let tried: Vec<&str> = why
        .split("; ")
        .map(|way| way.split(':').next().unwrap())
        .collect();
    assert_eq!(tried, ["port 1 gid 2", "port 1 gid 0"]);
}
