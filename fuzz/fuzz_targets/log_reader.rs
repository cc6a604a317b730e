//! Logs: any bytes are read, line by line; nothing is counted twice, and what is kept is bounded.
#![no_main]

use hugemr_core::diagnose::diagnose;
use hugemr_core::diagnose::logs::{Log, MOST_FAILURES, scan};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut log = Log::default();
    let (mut lines, mut told, mut failed) = (0u64, 0u64, 0u64);
    for line in text.split('\n') {
        let found = scan(line);
        lines += 1;
        told += u64::from(found.is_some());
        failed += u64::from(found.is_some_and(|found| found.is_failure));
        log.read(line);
    }
    let (read, understood, dropped) = log.counts();
    assert_eq!((read, understood), (lines, told));
    let failures = log.failures();
    assert!(failures.len() <= MOST_FAILURES);
    let kept: u64 = failures.iter().map(|failure| failure.count).sum();
    assert!(kept + dropped <= failed);
    for failure in &failures {
        assert!((1..=lines).contains(&failure.line) && failure.count >= 1);
        // Whatever was read, something can be said about it.
        let _ = diagnose(&failure.evidence);
    }
});
