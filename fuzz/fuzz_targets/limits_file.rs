//! The limits file: any text is refused or read; what was read is written back as it was read, and a file that was cut
//! off is never read.
#![no_main]

use hugemr_core::limits::{Confidence, Identity, Seen};
use hugemr_host::limits::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(limits) = Limits::parse(text) else {
        return;
    };
    for record in &limits.records {
        let (low, high) = record.seen.entries;
        assert!(high.is_none_or(|high| low <= high));
    }
    let written = limits.text();
    let back = Limits::parse(&written).expect("what is written can be read");
    assert_eq!(back.records, limits.records);
    assert_eq!(back.text(), written);
    let body = written.trim_end();
    assert!(Limits::parse(&body[..body.len() - 1]).is_err());
    // Whatever was there, something can be learned and is kept.
    let mut more = limits;
    let now = Identity {
        device: "erdma_0".into(),
        ..Identity::default()
    };
    let seen = Seen {
        entries: (5, None),
        ..Seen::default()
    };
    let learned = more
        .entry(&now, Confidence::Seen, 1)
        .learn(&seen, Confidence::Seen, 1);
    assert!(learned.is_ok());
    let again = Limits::parse(&more.text()).expect("what is written can be read");
    assert!(
        again
            .of(&now)
            .is_some_and(|record| record.seen.entries.0 >= 5)
    );
});
