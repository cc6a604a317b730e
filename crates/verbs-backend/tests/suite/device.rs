//! The real device that tests take, where there is one.

use hugemr_verbs::{OpenOptions, Transport, VerbsBackend};

/// The name in `$HUGEMR_TEST_DEVICE`.
pub(crate) fn name_of_the_real_one() -> String {
    std::env::var("HUGEMR_TEST_DEVICE").expect("HUGEMR_TEST_DEVICE names a device")
}

pub(crate) fn open_the_real_one() -> VerbsBackend {
    hugemr_verbs::open(&name_of_the_real_one(), &OpenOptions::default()).unwrap()
}

/// The status with which an access ends that the far end does not allow. An iWARP peer ends the connection instead of
/// answering; what is under way is flushed.
pub(crate) fn refusal_of_access(backend: &VerbsBackend) -> &'static str {
    match backend.info().transport {
        Transport::Iwarp => "IBV_WC_WR_FLUSH_ERR",
        _ => "IBV_WC_REM_ACCESS_ERR",
    }
}
