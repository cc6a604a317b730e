//! Byte sizes, page sizes and sets of page sizes.
//!
//! Inside, every size is a `u64` count of bytes. Outside, `GiB` is 2^30: `64GiB`, `64G`, `64g` and
//! `68719476736` are the same size. `64GB` is taken at its word, 64 x 10^9 bytes, and the parser says
//! so, because on this subject it is nearly always a slip. Nothing is rounded on the way in or out.

use std::fmt;
use std::str::FromStr;

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;
/// 2^40 bytes.
pub const TIB: u64 = 1 << 40;

/// Binary units, largest first, with the name used for display.
const UNITS: [(u64, &str); 6] = [
    (1 << 60, "EiB"),
    (1 << 50, "PiB"),
    (TIB, "TiB"),
    (GIB, "GiB"),
    (MIB, "MiB"),
    (KIB, "KiB"),
];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Nothing but white space.
    #[error("a size is missing (write for example 64GiB)")]
    Empty,
    /// The part before the unit is not a plain decimal number.
    #[error("{0:?} does not start with a number of digits (write for example 64GiB or 1.5TiB)")]
    NoNumber(String),
    /// A comma that does not stand before groups of three digits: it may be a decimal point elsewhere.
    #[error("{0:?}: commas stand before groups of three digits (write 1.5TiB, or 1,500GiB)")]
    Groups(String),
    /// The part behind the number is no unit that is known.
    #[error("{unit:?} in {text:?} is no unit (use KiB, MiB, GiB, TiB, PiB, or K, M, G, T, P)")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The part that was not understood.
        unit: String,
    },
    /// The fraction does not come out as whole bytes.
    #[error("{0:?} is not a whole number of bytes")]
    NotWhole(String),
    /// More than 2^64 - 1 bytes.
    #[error("{0:?} is more than 16 EiB - 1, the largest size")]
    Overflow(String),
    /// A page size that is not a power of two of at least 4 KiB.
    #[error("{0} is no page size (a power of two of at least 4 KiB)")]
    NotAPage(Bytes),
}

impl Bytes {
    /// Parses a size; the second value is true where a decimal unit (`GB`) was used.
    ///
    /// # Errors
    /// Anything that is not exactly one size; see [`SizeError`].
    pub fn parse(text: &str) -> Result<(Self, bool), SizeError> {
        let t = text.trim();
        if t.is_empty() {
            return Err(SizeError::Empty);
        }
        let number_len = t.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_' && c != ',');
        let (number, unit) = t.split_at(number_len.unwrap_or(t.len()));
        let (scale, decimal) = unit_scale(unit.trim()).ok_or_else(|| match number {
            "" => SizeError::NoNumber(text.to_owned()),
            _ => SizeError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.trim().to_owned(),
            },
        })?;
        let value = scaled(number, scale, text)?;
        Ok((Self(value), decimal))
    }

    /// As an argument of a command takes it: `97GiB`, or plain bytes where the exact text has two terms or separators.
    #[must_use]
    pub fn argument(self) -> String {
        let text = self.to_string();
        match text.split_once(' ') {
            Some((number, unit)) if unit.ends_with("iB") && !unit.contains(' ') => {
                if number.contains(',') {
                    return self.0.to_string();
                }
                format!("{number}{unit}")
            }
            _ => self.0.to_string(),
        }
    }

    /// Rounds up to a multiple of `step`; `None` beyond 2^64 - 1. `step` 0 counts as 1.
    #[must_use]
    pub fn round_up(self, step: u64) -> Option<Self> {
        self.0.checked_next_multiple_of(step.max(1)).map(Self)
    }
}

/// `number` (digits, at most one point, separators between digits) times `scale`, exactly.
fn scaled(number: &str, scale: u64, text: &str) -> Result<u64, SizeError> {
    let overflow = || SizeError::Overflow(text.to_owned());
    let bad = || SizeError::NoNumber(text.to_owned());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(bad());
    }
    let mut units: u128 = 0;
    if !whole.starts_with(|c: char| c.is_ascii_digit()) || whole.ends_with(['_', ',']) {
        return Err(bad());
    }
    let digits = ungrouped(whole).ok_or_else(|| SizeError::Groups(text.to_owned()))?;
    for c in digits.chars() {
        let digit = c.to_digit(10).ok_or_else(bad)?;
        units = units
            .checked_mul(10)
            .and_then(|v| v.checked_add(digit.into()))
            .ok_or_else(overflow)?;
        if units > u128::from(u64::MAX) {
            return Err(overflow());
        }
    }
    let mut total = units * u128::from(scale);
    // Each digit of the fraction is worth scale / 10^n; keep numerator and denominator apart.
    let (mut numerator, mut denominator) = (0u128, 1u128);
    for c in fraction.trim_end_matches('0').chars() {
        let digit = c.to_digit(10).ok_or_else(bad)?;
        denominator = denominator
            .checked_mul(10)
            .ok_or_else(|| SizeError::NotWhole(text.to_owned()))?;
        numerator = numerator * 10 + u128::from(digit);
    }
    let part = numerator
        .checked_mul(u128::from(scale))
        .ok_or_else(|| SizeError::NotWhole(text.to_owned()))?;
    if part % denominator != 0 {
        return Err(SizeError::NotWhole(text.to_owned()));
    }
    total += part / denominator;
    u64::try_from(total).map_err(|_| overflow())
}

/// A number without its separators: `1,048,576`, `1_000`. `None` where a comma stands elsewhere than before groups of three
/// digits.
#[must_use]
pub fn ungrouped(number: &str) -> Option<String> {
    let plain: String = number.chars().filter(|c| *c != '_').collect();
    let mut groups = plain.split(',');
    let first = groups.next()?;
    let grouped = plain.contains(',');
    let sound = !grouped || (1..=3).contains(&first.len()) && groups.all(|group| group.len() == 3);
    sound.then(|| plain.replace(',', ""))
}

/// The scale of a unit, and whether it is a decimal one.
fn unit_scale(unit: &str) -> Option<(u64, bool)> {
    let lower = unit.to_ascii_lowercase();
    if matches!(lower.as_str(), "" | "b") {
        return Some((1, false));
    }
    let power = "kmgtpe".find(lower.chars().next()?)? + 1;
    let power = u32::try_from(power).ok()?;
    match &lower[1..] {
        "" | "i" | "ib" => Some((1u64 << (10 * power), false)),
        "b" => Some((10u64.pow(3 * power), true)),
        _ => None,
    }
}

impl FromStr for Bytes {
    type Err = SizeError;
    fn from_str(text: &str) -> Result<Self, SizeError> {
        Self::parse(text).map(|(bytes, _)| bytes)
    }
}

/// Exact: the largest unit with at most three decimals, else two terms (`128 GiB - 4 KiB`), else bytes.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&exact(self.0))
    }
}

fn exact(value: u64) -> String {
    let Some(&(unit, name)) = UNITS.iter().find(|(unit, _)| value >= *unit) else {
        return format!("{value} B");
    };
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return format!("{whole} {name}");
    }
    // 1000/1024 would print as three decimals of nothing: the fraction must come out exactly.
    let thousandths = u128::from(rest) * 1000;
    if thousandths.is_multiple_of(u128::from(unit)) {
        let text = format!("{:03}", thousandths / u128::from(unit));
        return format!("{whole}.{} {name}", text.trim_end_matches('0'));
    }
    // Two terms where the second is small (`128 GiB - 4 KiB`); else the largest unit that divides.
    let missing = unit - rest;
    let (sign, term, near) = if missing < rest {
        ('-', missing, whole + 1)
    } else {
        ('+', rest, whole)
    };
    let divides = |of: u64| UNITS.iter().find(|(unit, _)| of.is_multiple_of(*unit));
    match divides(term) {
        Some((small, small_name)) if term <= unit / 16 && term / small < 1024 => {
            format!("{near} {name} {sign} {} {small_name}", term / small)
        }
        Some((small, small_name)) => format!("{} {small_name}", Grouped(value / small)),
        None => format!("{} B", Grouped(value)),
    }
}

/// A count with a comma between groups of three digits: `234,881,024`.
#[derive(Clone, Copy, Debug)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A count with its noun in the singular: `1 MR`, `14 MRs`, `458,752 MTT entries`.
#[derive(Clone, Copy, Debug)]
pub struct Count<'a>(pub u64, pub &'a str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(n, noun) = *self;
        write!(f, "{} ", Grouped(n))?;
        if n == 1 {
            return f.write_str(noun);
        }
        match noun.strip_suffix('y') {
            Some(stem) => write!(f, "{stem}ies"),
            None if noun.ends_with("ss") => write!(f, "{noun}es"),
            None => write!(f, "{noun}s"),
        }
    }
}

/// The word alone, for those that [`Count`] does not build: `is`, `are`.
#[must_use]
pub fn plural<'a>(n: u64, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

/// A page size: a power of two, at least 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageSize {
    shift: u8,
}

impl PageSize {
    /// 4 KiB, the base page of x86-64 and of most arm64 kernels.
    pub const K4: Self = Self { shift: 12 };
    /// 64 KiB.
    pub const K64: Self = Self { shift: 16 };
    /// 2 MiB, the huge page of x86-64.
    pub const M2: Self = Self { shift: 21 };
    /// 512 MiB, the huge page of arm64 kernels with 64 KiB base pages.
    pub const M512: Self = Self { shift: 29 };
    /// 1 GiB.
    pub const G1: Self = Self { shift: 30 };

    /// The page size of `bytes`.
    ///
    /// # Errors
    /// [`SizeError::NotAPage`] unless `bytes` is a power of two of at least 4 KiB.
    pub fn new(bytes: u64) -> Result<Self, SizeError> {
        if bytes.is_power_of_two() && bytes >= 4096 {
            Ok(Self::from_shift_unchecked(bytes.trailing_zeros()))
        } else {
            Err(SizeError::NotAPage(Bytes(bytes)))
        }
    }

    /// The page size of 2^`shift` bytes; `None` unless 12 <= `shift` < 64.
    #[must_use]
    pub fn from_shift(shift: u32) -> Option<Self> {
        (12..64)
            .contains(&shift)
            .then(|| Self::from_shift_unchecked(shift))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a shift below 64 fits in u8"
    )]
    const fn from_shift_unchecked(shift: u32) -> Self {
        Self { shift: shift as u8 }
    }

    /// Bytes of one page.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// log2 of the bytes of one page.
    #[must_use]
    pub const fn shift(self) -> u32 {
        self.shift as u32
    }

    /// Pages that cover `len` bytes from a page border.
    #[must_use]
    pub const fn pages_for(self, len: u64) -> u64 {
        len.div_ceil(self.bytes())
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Bytes(self.bytes()).fmt(f)
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageSize({self})")
    }
}

impl FromStr for PageSize {
    type Err = SizeError;
    fn from_str(text: &str) -> Result<Self, SizeError> {
        Self::new(text.parse::<Bytes>()?.0)
    }
}

/// A set of page sizes as devices report it (`page_size_cap`): bit n set means 2^n bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSizes(pub u64);

impl PageSizes {
    /// What the erdma driver offers, 4 KiB to 1 GiB (`ERDMA_PAGE_SIZE_SUPPORT`, Linux 6.1 to 7.3).
    pub const ERDMA: Self = Self(0x7fff_f000);
    /// Every page size.
    pub const ALL: Self = Self(!0xfff);

    /// Whether `page` is in the set.
    #[must_use]
    pub const fn contains(self, page: PageSize) -> bool {
        self.0 & page.bytes() != 0
    }

    /// The largest member not above `page`.
    #[must_use]
    pub fn largest_at_most(self, page: PageSize) -> Option<PageSize> {
        let below = self.0 & (page.bytes() | (page.bytes() - 1)) & !0xfff;
        below.checked_ilog2().and_then(PageSize::from_shift)
    }

    /// The smallest member.
    #[must_use]
    pub fn smallest(self) -> Option<PageSize> {
        PageSize::from_shift((self.0 & !0xfff).trailing_zeros())
    }
}

impl fmt::Debug for PageSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageSizes({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, bytes: u64) {
        assert_eq!(Bytes::parse(text), Ok((Bytes(bytes), false)), "{text}");
    }

    #[test]
    fn binary_units_and_plain_bytes() {
        for text in [
            "64GiB",
            "64G",
            "64g",
            "64Gi",
            "64 GiB",
            "68719476736",
            "68_719_476_736",
            "65536MiB",
        ] {
            check(text, 64 * GIB);
        }
        check("1.5TiB", 3 * TIB / 2);
        check("0.001953125GiB", 2 * MIB);
        check(
            "1.50000000000000000000000000000000000000000000G",
            3 * GIB / 2,
        );
        check("18446744073709551615", u64::MAX);
        check("0", 0);
    }

    #[test]
    fn decimal_units_are_taken_at_their_word_and_said() {
        assert_eq!(Bytes::parse("64GB"), Ok((Bytes(64_000_000_000), true)));
        assert_eq!(Bytes::parse("1kb"), Ok((Bytes(1000), true)));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            " ",
            "GiB",
            "-1",
            "+1",
            "1e9",
            "1..5G",
            ".5G",
            "1.G",
            "1.5",
            "1.1KiB",
            "64GiBB",
            "64 Gi B",
            "16EiB",
            "18446744073709551616",
            "999999999999999999999999999999999999999999",
            "0.0000000000000000000000000000000000000000000001G",
            "1,G",
            "_1",
            "1,5TiB",
            "1,50GiB",
            "12,34,5GiB",
            "0,9GiB",
            "1234,567",
            "1,2345",
            "1,,234",
            "64Xi",
            "６４G",
            "é",
        ] {
            assert!(Bytes::parse(text).is_err(), "{text:?} was taken as a size");
        }
    }

    #[test]
    fn display_is_exact() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (896 * GIB, "896 GiB"),
            (3 * TIB / 2, "1.5 TiB"),
            (58_752 * 2 * MIB, "114.75 GiB"),
            (TIB + 4 * KIB, "1 TiB + 4 KiB"),
            (128 * GIB - 4 * KIB, "128 GiB - 4 KiB"),
            (4 * GIB - 2 * MIB, "4 GiB - 2 MiB"),
            (8840 * MIB, "8,840 MiB"),
            (2_145_386_496, "2 GiB - 2 MiB"),
            (GIB + 376 * MIB, "1,400 MiB"),
            (TIB + 1, "1,099,511,627,777 B"),
            (3_779_571_220, "3,779,571,220 B"),
            (u64::MAX, "18,446,744,073,709,551,615 B"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(Grouped(234_881_024).to_string(), "234,881,024");
    }

    #[test]
    fn page_sizes() {
        assert_eq!("2MiB".parse(), Ok(PageSize::M2));
        assert!(PageSize::new(2048).is_err());
        assert!(PageSize::new(3 << 20).is_err());
        assert_eq!(
            PageSizes::ERDMA.largest_at_most(PageSize::G1),
            Some(PageSize::G1)
        );
        assert_eq!(
            PageSizes(0x1000).largest_at_most(PageSize::G1),
            Some(PageSize::K4)
        );
        assert_eq!(PageSizes(0).largest_at_most(PageSize::G1), None);
        assert_eq!(
            PageSizes::ALL.largest_at_most(PageSize::M2),
            Some(PageSize::M2)
        );
    }

    #[test]
    fn counts_have_their_noun() {
        for (n, noun, text) in [
            (1, "MR", "1 MR"),
            (0, "MR", "0 MRs"),
            (1, "MTT entry", "1 MTT entry"),
            (458_752, "MTT entry", "458,752 MTT entries"),
            (2, "process", "2 processes"),
        ] {
            assert_eq!(Count(n, noun).to_string(), text);
        }
    }

    proptest! {
        /// Whatever Display prints can be read back, but for the two-term and grouped forms.
        #[test]
        fn one_term_display_reads_back(value in any::<u64>(), shift in 0u32..50) {
            let bytes = Bytes(value >> shift << shift.min(40));
            let text = bytes.to_string();
            if !text.contains([',', '+', '-']) {
                prop_assert_eq!(text.parse::<Bytes>(), Ok(bytes));
            }
            let argument = bytes.argument();
            prop_assert!(argument.chars().all(|c| c.is_ascii_alphanumeric() || c == '.'));
            prop_assert_eq!(argument.parse::<Bytes>(), Ok(bytes));
        }

        #[test]
        fn the_parser_never_panics(text in "\\PC{0,40}") {
            let _ = Bytes::parse(&text);
        }
    }
}
