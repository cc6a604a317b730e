//! Device files: taken, or refused with a line that exists.
#![no_main]

use hugemr_sim::{Profile, SimError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(SimError::BadFile { line, .. }) = Profile::from_toml(text, "fuzz.toml") {
        assert!(
            line >= 1 && line <= text.split('\n').count(),
            "line {line} of {text:?}"
        );
    }
});
