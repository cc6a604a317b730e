//! Sizes: no panic, and what is printed in one term is read back as the same size.
#![no_main]

use hugemr_core::size::{Bytes, PageSize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok((bytes, _)) = Bytes::parse(text) else {
        return;
    };
    let shown = bytes.to_string();
    // Two terms (`128 GiB - 4 KiB`) and grouped digits are for people.
    if !shown.contains(['+', '-', ',']) {
        assert_eq!(shown.parse(), Ok(bytes), "{text:?} was shown as {shown:?}");
    }
    if let Ok(page) = text.parse::<PageSize>() {
        assert_eq!(page.bytes(), bytes.0);
    }
});
