//! Small scanners: numbers behind keys, an errno in any of its usual dresses, a device's name.

use std::sync::LazyLock;

use crate::errno::Errno;

/// The part of `line` behind the first `key`; both in lower case.
fn behind<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.find(key).map(|at| &line[at + key.len()..])
}

/// Whether the character before the match belongs to the same word.
fn is_inside_a_word(line: &str, at: usize) -> bool {
    line[..at]
        .chars()
        .next_back()
        .is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The number right behind the first of `keys` that stands as a word and has one: `0x` hexadecimal, else decimal.
pub(super) fn number_after(line: &str, keys: &[&str]) -> Option<u64> {
    keys.iter().find_map(|key| {
        line.match_indices(key)
            .filter(|(at, _)| !is_inside_a_word(line, *at))
            .find_map(|(at, key)| number(&line[at + key.len()..]))
    })
}

/// A number at the start of `text`, behind blanks, `=`, `:`, `(` or a quote.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim_start_matches([' ', '=', ':', '(', '[', '\'', '"']);
    if let Some(hex) = text.strip_prefix("0x") {
        let end = hex
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(hex.len());
        return u64::from_str_radix(&hex[..end], 16).ok();
    }
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The first hexadecimal number with `0x` of at least seven digits: an address.
pub(super) fn first_address(line: &str) -> Option<u64> {
    line.match_indices("0x").find_map(|(at, _)| {
        let digits = line[at + 2..]
            .bytes()
            .take_while(u8::is_ascii_hexdigit)
            .count();
        (7..=16)
            .contains(&digits)
            .then(|| number(&line[at..]))
            .flatten()
    })
}

/// The last place at or before `most` at which `text` can be cut.
pub(super) fn floor(text: &str, most: usize) -> usize {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// Whether a word of the line begins with `word`, and, where that is short, is it: `mr` is not in `mrs smith`, but `mlx` is
/// in `mlx5_0`.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_alone = |end: usize| !line[end..].starts_with(|c: char| c.is_ascii_alphabetic());
    line.match_indices(word).any(|(at, word)| {
        !is_inside_a_word(line, at) && (word.len() > 3 || is_alone(at + word.len()))
    })
}

/// Whether an address stands right behind a word of a call.
pub(super) fn begins_with_address(rest: &str) -> bool {
    let rest = rest.trim_start_matches([' ', ':', '=', '(', '[', '\'', '"']);
    ["", "at ", "address ", "addr "].iter().any(|word| {
        rest.strip_prefix(word)
            .is_some_and(|rest| rest.starts_with("0x"))
    })
}

/// Whether an errno follows right behind the name of a call, as `perror` prints it: `ibv_reg_mr: Bad address`,
/// `ibv_reg_mr_iova2(): EIO`.
pub(super) fn begins_with_errno(rest: &str) -> bool {
    let mut rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    // Its arguments, or which of several calls it was.
    if let Some(inside) = rest.trim_start_matches(' ').strip_prefix('(') {
        rest = inside.split_once(')').map_or("", |(_, rest)| rest);
    }
    let Some(rest) = rest.trim_start_matches(' ').strip_prefix(':') else {
        return false;
    };
    let rest = rest.trim_start_matches(' ');
    let is_text = |text: &str| rest.starts_with(text) && ends_a_clause(rest, text.len());
    let word = rest.find(|c: char| !c.is_ascii_alphanumeric());
    let word = &rest[..word.unwrap_or(rest.len())];
    TEXTS.iter().any(|(text, _)| is_text(text))
        || symbol(word).is_some() && ends_a_clause(rest, word.len())
}

/// Whether a line says that the call at `from` failed: by what stands before it in its clause, else by what follows. A word
/// that is negated, or that speaks of what might be, says nothing.
pub(super) fn fails(line: &str, from: usize, words: &[&str]) -> bool {
    const NOT: [&str; 11] = [
        "not", "n't", "never", "cannot", "would", "might", "may", "could", "should", "can",
        "without",
    ];
    // Of a number they count: `rank 0 failed` is a failure.
    const NONE: [&str; 3] = ["no", "0", "zero"];
    let says = |at: usize, word: &str| {
        let before = line[..at].trim_end_matches(' ');
        let stands = |no: &str| {
            before
                .strip_suffix(no)
                .is_some_and(|rest| no == "n't" || !is_inside_a_word(before, rest.len()))
        };
        let is_counted = ["errors", "failures", "error:", "failure:"]
            .iter()
            .any(|noun| line[at..].starts_with(noun));
        let is_negated =
            NOT.iter().any(|no| stands(no)) || is_counted && NONE.iter().any(|no| stands(no));
        let is_of_failing = word.starts_with('c') && line[at + word.len()..].starts_with(" fail");
        !is_negated && !is_of_failing
    };
    let found = || words.iter().flat_map(|word| line.match_indices(*word));
    let is_of_the_clause = |at: usize| !line[at..from].contains([':', ';', ']', '|']);
    let before = found()
        .filter(|(at, _)| *at < from && is_of_the_clause(*at))
        .max();
    let behind = || found().filter(|(at, _)| *at >= from).min();
    match before.or_else(behind) {
        Some((at, word)) => says(at, word),
        // A level, or what is said of the whole line: `ERROR: ibv_reg_mr`.
        None => found().next().is_some(),
    }
}

/// Whether a line says that the call at `from` succeeded, before any of `fails` stands: what failed then is something else.
pub(super) fn succeeded(line: &str, from: usize, fails: &[&str]) -> bool {
    const WORDS: [&str; 5] = ["succeeded", "succeeds", "successful", "success", "ok"];
    let first = fails.iter().filter_map(|word| line.find(word)).min();
    WORDS.iter().any(|word| {
        line[from..].match_indices(word).any(|(at, _)| {
            let at = from + at;
            let end = at + word.len();
            let before = line[..at].trim_end_matches(' ');
            let is_negated = ["not", "no", "never", "without", "n't"]
                .iter()
                .any(|no| before.ends_with(no));
            // `success=0` is a field with a value of its own.
            let is_field = line[end..].trim_start_matches(' ').starts_with(['=', ':']);
            let is_word = !is_inside_a_word(line, at)
                && (*word == "successful"
                    || !line[end..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
            is_word && !is_negated && !is_field && first.is_none_or(|first| at < first)
        })
    })
}

/// An address and a length in brackets, `(0x7f73b1200000,2147483648)`.
pub(super) fn pair(line: &str) -> Option<(u64, u64)> {
    let (start, rest) = behind(line, "(0x")?.split_once(',')?;
    Some((u64::from_str_radix(start, 16).ok()?, number(rest)?))
}

/// A range `[0x..-0x..]` or `[0x....0x..]`: start and length.
pub(super) fn range(line: &str) -> Option<(u64, u64)> {
    let inner = behind(line, "[0x")?;
    let (from, rest) = inner.split_once("..").or_else(|| inner.split_once('-'))?;
    let start = u64::from_str_radix(from.trim(), 16).ok()?;
    let end = number(rest)?;
    Some((start, end.checked_sub(start)?))
}

/// An errno in a line (in lower case): as the C library's text, as a symbol, or as a number that is said to be one.
pub(super) fn errno(line: &str) -> Option<Errno> {
    by_text(line)
        .or_else(|| by_symbol(line))
        .or_else(|| by_number(line))
}

/// What the C library prints for each errno, in lower case.
static TEXTS: LazyLock<Vec<(String, Errno)>> = LazyLock::new(|| {
    (1..134)
        .map(Errno)
        .filter_map(|errno| Some((errno.text()?.to_ascii_lowercase(), errno)))
        .collect()
});

/// Whether a clause ends here, or where and when follows: `bad address book` is no errno's text, `bad address at foo.c:12` has
/// one.
fn ends_a_clause(line: &str, end: usize) -> bool {
    const FOLLOWS: [&str; 10] = [
        "after", "at", "during", "for", "from", "in", "on", "when", "while", "with",
    ];
    let rest = line[end..].trim_start_matches(' ');
    let word = rest
        .find(|c: char| !c.is_alphanumeric())
        .map_or(rest, |end| &rest[..end]);
    !rest.starts_with(char::is_alphabetic)
        || rest.len() < line.len() - end && FOLLOWS.contains(&word)
}

fn by_text(line: &str) -> Option<Errno> {
    // The text that stands last is the cause; what comes before may quote it.
    TEXTS
        .iter()
        .filter_map(|(text, errno)| line.rfind(text).map(|at| (at + text.len(), *errno)))
        .filter(|(end, _)| ends_a_clause(line, *end))
        .max_by_key(|(end, errno)| (*end, std::cmp::Reverse(errno.0)))
        .map(|(_, errno)| errno)
}

fn by_symbol(line: &str) -> Option<Errno> {
    line.split(|c: char| !c.is_ascii_alphanumeric())
        .find_map(symbol)
}

fn symbol(word: &str) -> Option<Errno> {
    let is_one = word.len() > 2 && word.starts_with('e');
    let errno = is_one.then(|| Errno::parse(word)).flatten()?;
    errno.name().is_some().then_some(errno)
}

fn by_number(line: &str) -> Option<Errno> {
    const KEYS: [&str; 8] = [
        "errno",
        "error code",
        "error_code",
        "err",
        "ret is",
        "ret",
        "rc",
        "error",
    ];
    let after_key = KEYS.iter().find_map(|key| {
        line.match_indices(key)
            .filter(|(at, _)| !is_inside_a_word(line, *at))
            .map(|(at, key)| &line[at + key.len()..])
            .filter(|rest| !(matches!(*key, "err" | "error") && is_after_a_level(rest)))
            .find_map(small)
    });
    // `Some text [34]` or `(-12)` at the end.
    let at_end = || {
        let line = line.trim_end().trim_end_matches(['.', ',']);
        let open = line.rfind(['[', '('])?;
        let closed = line.ends_with([']', ')']);
        closed.then(|| small(&line[open..])).flatten()
    };
    at_end().or(after_key).or_else(|| negative(line)).map(Errno)
}

/// Whether what stands behind `error` is no errno but the next field of the line, as in `ERROR 12 --- [main] failed to
/// register`: a blank, digits, and words behind.
fn is_after_a_level(rest: &str) -> bool {
    let next = rest.trim_start_matches(' ');
    let behind = next.trim_start_matches(|c: char| c.is_ascii_digit());
    next.len() < rest.len() && behind.len() < next.len() && behind.starts_with(' ')
}

/// A negative number as the last word, as the kernel and libfabric return it: `ends up being -95.`
fn negative(line: &str) -> Option<i32> {
    let line = line.trim_end().trim_end_matches(['.', ',']);
    let word = line.rsplit([' ', '=', ':']).next()?;
    word.starts_with('-').then(|| small(word)).flatten()
}

/// The code in the brackets behind `status some words(0x3)`.
pub(super) fn status_code(line: &str) -> Option<u64> {
    let (words, rest) = behind(line, "status ")?.split_once('(')?;
    let is_words = words.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
    is_words.then(|| number(rest)).flatten()
}

/// Whether libfabric's line is of a provider that is not on verbs: `libfabric:41405:1705531788::gni:mr:func():12<warn>`.
pub(super) fn provider_without_verbs(line: &str) -> bool {
    // fi_provider(7).
    const PROVIDERS: [&str; 12] = [
        "gni", "cxi", "psm", "psm2", "psm3", "opx", "tcp", "udp", "sockets", "shm", "usnic", "bgq",
    ];
    behind(line, "libfabric:").is_some_and(|rest| {
        rest.split(':')
            .take(4)
            .any(|part| PROVIDERS.contains(&part))
    })
}

/// Whether a program may have printed it: lines of logs have a digit or a mark of a name or a field. Mere words are
/// prose, whatever they speak of.
pub(super) fn is_of_a_log(line: &str) -> bool {
    line.bytes()
        .any(|b| b.is_ascii_digit() || matches!(b, b':' | b'_' | b'=' | b'[' | b'('))
}

/// A number from 1 to 133, perhaps negative, right at the start. -1 says only that a call failed: it is no EPERM.
fn small(text: &str) -> Option<i32> {
    let start = text.trim_start_matches([' ', '=', ':', '(', '[', '-']);
    let negative = text[..text.len() - start.len()].ends_with('-');
    let text = start;
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let follows = text[end..].chars().next();
    let value = text[..end].parse().ok()?;
    let whole = !follows.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    let least = if negative { 2 } else { 1 };
    ((least..134).contains(&value) && whole).then_some(value)
}

/// The name of a verbs device: a known prefix, and a digit at the end.
pub(super) fn device(line: &str) -> Option<&str> {
    const PREFIXES: [&str; 12] = [
        "erdma_", "mlx5_", "mlx4_", "ionic_", "efa_", "rdmap", "hns_", "bnxt_re", "irdma", "rxe",
        "siw", "roce",
    ];
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
        .find(|word| {
            word.len() <= 32
                && word.ends_with(|c: char| c.is_ascii_digit())
                && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errnos_in_every_dress() {
        for (line, want) in [
            (
                "failed to register memory 0x7f105035d000: input/output error [5]",
                Some(5),
            ),
            (
                "failed to register memory 0x7f56e6600000: numerical result out of range [34]",
                Some(34),
            ),
            ("ibv_reg_mr failed with einval", Some(22)),
            ("fi_mr_reg failed, ret is:-12", Some(12)),
            ("failed to register mr [-12]", Some(12)),
            (
                "create_mkey(0x200) failed, syndrome (0x18af6), err(-12)",
                Some(12),
            ),
            ("ibv_reg_mr failed [error code: 14]", Some(14)),
            (
                "register mr failed errno=11 (resource temporarily unavailable)",
                Some(11),
            ),
            ("memory registration failed", None),
            ("registered 64 regions at 0x7f0000000000", None),
            ("failed: error 4096", None),
            ("error 12 --- [main] failed to register memory", None),
            ("error: 12 register memory", Some(12)),
            ("registering memory: unknown error 12", Some(12)),
            ("register memory failed with error 12, again", Some(12)),
            ("register memory failed with error -12 on mlx5_0", Some(12)),
            ("ibv_reg_mr failed: errno 5 input/output error foo", Some(5)),
            ("ibv_reg_mr failed: error code 12 in the driver", Some(12)),
            ("ibv_reg_mr failed: input/output error at foo.c:12", Some(5)),
            ("ibv_reg_mr failed: bad address for mr 3", Some(14)),
            ("ibv_reg_mr failed: bad address book", None),
            ("ibv_reg_mr failed: bad addresses", None),
            ("failed 12 times", None),
            ("error 12ms later", None),
        ] {
            assert_eq!(errno(line).map(|e| e.0), want, "{line}");
        }
    }

    #[test]
    fn numbers_ranges_and_devices() {
        assert_eq!(
            number_after("addr 0x10 length 4885774336", &["length"]),
            Some(4_885_774_336)
        );
        assert_eq!(
            number_after("maxlength 3 length=0x20,", &["length"]),
            Some(32)
        );
        assert_eq!(number_after("length abc", &["length"]), None);
        assert_eq!(
            number_after("length 99999999999999999999999", &["length"]),
            None
        );
        assert_eq!(
            range("region 0x5 [0x7fae34a00000..0x7fae35000000]: x"),
            Some((0x7fae_34a0_0000, 0x60_0000))
        );
        assert_eq!(range("[0x20..0x10]"), None);
        assert_eq!(
            first_address("pd 0x12 at 0x7fae34a00000"),
            Some(0x7fae_34a0_0000)
        );
        assert_eq!(device("rdma device: mlx5_bond_5, lid"), Some("mlx5_bond_5"));
        assert_eq!(device("mlx5_core 0000:41:00.0"), None);
        assert_eq!(device("erdma_0: create_mtt"), Some("erdma_0"));
    }
}
