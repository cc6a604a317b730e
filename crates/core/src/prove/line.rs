//! The lines that drivers of eRDMA write about MRs when dynamic debug is on.
//!
//! Two drivers, two forms. That of the kernel's tree (6.6 and later) tells the length of the table; the vendor's tells the
//! range, then page size and entries, and then the table too, under two names (`pbl` in older ones). What stands before the
//! message differs as well: the device's name alone, or driver, bus address and name; and whatever decorations somebody has
//! switched on. So the message is searched for, not expected at a place.

/// What one line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugLine {
    /// A table is made.
    Table {
        /// Its length: 8 bytes an entry.
        bytes: u64,
        /// Physically contiguous by force: that of a queue, not of an MR.
        contiguous: bool,
    },
    /// A range is to be registered.
    Range {
        /// Its address.
        start: u64,
        /// Its length, bytes.
        len: u64,
    },
    /// Of the range named before, or of a queue.
    Pages {
        /// Page size, bytes.
        page: u64,
        /// Entries.
        entries: u64,
    },
}

/// Reads what stands behind the beginning of a message.
type Read = fn(&str) -> Option<DebugLine>;

/// How messages begin.
const FORMS: [(&str, Read); 4] = [
    ("create_mtt, size:", table),
    ("create_pbl, size:", table),
    ("start:0x", range),
    ("page_size:", pages),
];

/// Reads a line of the kernel's log: the device's name, where one stands before the message, and what the line says. `None`
/// for every other line.
#[must_use]
pub fn debug_line(text: &str) -> Option<(Option<&str>, DebugLine)> {
    FORMS.iter().find_map(|(head, read)| {
        let at = text.find(head)?;
        let said = read(&text[at + head.len()..])?;
        Some((device(&text[..at]), said))
    })
}

/// The last word before the message, which ends in a colon.
fn device(before: &str) -> Option<&str> {
    let word = before.trim_end().strip_suffix(':')?;
    let name = word.rsplit([' ', ':']).next()?;
    (!name.is_empty()).then_some(name)
}

/// `4096, force cont:0`
fn table(rest: &str) -> Option<DebugLine> {
    let (bytes, rest) = number(rest, 10)?;
    let (force, _) = number(rest.strip_prefix(", force cont:")?, 10)?;
    Some(DebugLine::Table {
        bytes,
        contiguous: force != 0,
    })
}

/// `7f0000000000, len:67108864, virt:0x7f0000000000, access:0x7`
fn range(rest: &str) -> Option<DebugLine> {
    let (start, rest) = number(rest, 16)?;
    let (len, _) = number(rest.strip_prefix(", len:")?, 10)?;
    Some(DebugLine::Range { start, len })
}

/// `2097152, page_offset:0, mtt_nents:32`
fn pages(rest: &str) -> Option<DebugLine> {
    let (page, rest) = number(rest, 10)?;
    let (_, rest) = number(rest.strip_prefix(", page_offset:")?, 10)?;
    let (entries, _) = number(rest.strip_prefix(", mtt_nents:")?, 10)?;
    Some(DebugLine::Pages { page, entries })
}

/// The number at the beginning, and what follows it.
fn number(text: &str, radix: u32) -> Option<(u64, &str)> {
    let end = text
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(text.len());
    let value = u64::from_str_radix(&text[..end], radix).ok()?;
    Some((value, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_drivers_are_read_in_both_prefixes() {
        for (text, device, said) in [
            (
                "erdma_0: create_mtt, size:262144, force cont:0",
                Some("erdma_0"),
                DebugLine::Table {
                    bytes: 262_144,
                    contiguous: false,
                },
            ),
            (
                "erdma 0000:00:06.0 erdma_1: create_mtt, size:8, force cont:1",
                Some("erdma_1"),
                DebugLine::Table {
                    bytes: 8,
                    contiguous: true,
                },
            ),
            (
                "erdma 0000:00:06.0 erdma_0: create_pbl, size:4096, force cont:0",
                Some("erdma_0"),
                DebugLine::Table {
                    bytes: 4096,
                    contiguous: false,
                },
            ),
            (
                "[77] erdma:erdma_reg_user_mr:912: erdma_0: start:0x7f3bc0000000, len:68719476736, virt:0x7f3bc0000000, access:0x7",
                Some("erdma_0"),
                DebugLine::Range {
                    start: 0x7f3b_c000_0000,
                    len: 68_719_476_736,
                },
            ),
            (
                "erdma_0: page_size:2097152, page_offset:0, mtt_nents:32768",
                Some("erdma_0"),
                DebugLine::Pages {
                    page: 2_097_152,
                    entries: 32_768,
                },
            ),
            (
                "page_size:4096, page_offset:512, mtt_nents:2",
                None,
                DebugLine::Pages {
                    page: 4096,
                    entries: 2,
                },
            ),
        ] {
            assert_eq!(debug_line(text), Some((device, said)), "{text}");
        }
    }

    #[test]
    fn other_lines_are_not_read() {
        for text in [
            "erdma_0: create scatter mtt, size:262144, nsg:64",
            "erdma_0: create scatter mtt, size:262144, npages:64",
            "erdma_0: top mtt: level:2, dma_addr 0x12345000",
            "erdma_0: failed to deregister MR 0x100: -5",
            "erdma_0: create_mtt, size:",
            "erdma_0: create_mtt, size:99999999999999999999, force cont:0",
            "erdma_0: page_size:4096",
            "Registered",
            "",
        ] {
            assert_eq!(debug_line(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(
            head in "(erdma_0: )?(create_mtt, size:|start:0x|page_size:)?",
            rest in "\\PC{0,40}",
        ) {
            let _ = debug_line(&format!("{head}{rest}"));
        }
    }
}
