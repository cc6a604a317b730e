//! The date of a record.

/// `2026-11-29` (UTC).
///
/// Days to a date of the Gregorian calendar: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", in own words:
/// years begin in March, so that the day that some years have more is the last one of its year.
#[must_use]
pub fn date(seconds: u64) -> String {
    const ERA: u64 = 146_097;
    let day = seconds / 86_400 + 719_468;
    let (era, of_era) = (day / ERA, day % ERA);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{of_month:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let all = [0, 951_782_400, 1_709_164_800, 1_796_000_000, 4_102_444_800].map(date);
        assert_eq!(
            all,
            [
                "1970-01-01",
                "2000-02-29",
                "2024-02-29",
                "2026-11-30",
                "2100-01-01"
            ]
        );
    }
}
