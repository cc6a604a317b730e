//! Lines of bounded length, one at a time.

use std::fmt;
use std::io::{self, BufRead, Read as _};

/// Longest line, bytes, without its end.
pub(super) const LONGEST: usize = 1 << 20;

/// Reads line by line and keeps one.
pub(super) struct Lines<R> {
    from: R,
    number: u64,
    buffer: Vec<u8>,
}

/// Why a line is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadLine {
    TooLong,
    /// At this byte, from 1.
    NotUtf8(usize),
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => f.write_str("the line is longer than 1 MiB"),
            Self::NotUtf8(byte) => write!(f, "the line is not UTF-8 (byte {byte})"),
        }
    }
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            number: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line with its number, from 1; `None` at the end.
    pub(super) fn next(&mut self) -> Option<io::Result<(u64, Result<&str, BadLine>)>> {
        self.buffer.clear();
        let most = LONGEST as u64 + 1;
        match (&mut self.from)
            .take(most)
            .read_until(b'\n', &mut self.buffer)
        {
            Ok(0) => return None,
            Ok(_) => self.number += 1,
            Err(error) => return Some(Err(error)),
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if self.buffer.len() > LONGEST {
            return Some(self.skip().map(|()| (self.number, Err(BadLine::TooLong))));
        }
        let text = match self.number {
            1 => hugemr_input::without_mark(&self.buffer),
            _ => &self.buffer,
        };
        let text =
            std::str::from_utf8(text).map_err(|error| BadLine::NotUtf8(error.valid_up_to() + 1));
        Some(Ok((self.number, text)))
    }

    /// Reads to the end of the line and keeps nothing.
    fn skip(&mut self) -> io::Result<()> {
        loop {
            let part = match self.from.fill_buf() {
                Ok(part) => part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (used, done) = match part.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (part.len(), part.is_empty()),
            };
            self.from.consume(used);
            if done {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<(u64, Result<String, BadLine>)> {
        let mut lines = Lines::new(bytes);
        let mut list = Vec::new();
        while let Some(line) = lines.next() {
            let (number, text) = line.unwrap();
            list.push((number, text.map(str::to_owned)));
        }
        list
    }

    #[test]
    fn lines_end_at_a_newline_or_at_the_end() {
        let two = [(1, Ok("a".to_owned())), (2, Ok("b".to_owned()))];
        assert_eq!(all(b"a\nb"), two);
        assert_eq!(all(b"a\nb\n"), two);
        assert_eq!(all(b""), []);
        assert_eq!(all("\u{feff}a\nb".as_bytes()), two);
        let later = all("a\n\u{feff}b".as_bytes());
        assert_eq!(later[1], (2, Ok("\u{feff}b".to_owned())));
    }

    #[test]
    fn a_line_of_1_mib_is_read_and_a_longer_one_is_passed_over() {
        for (len, fits) in [(LONGEST, true), (LONGEST + 1, false), (3 * LONGEST, false)] {
            let mut bytes = vec![b'x'; len];
            bytes.extend_from_slice(b"\nnext");
            let lines = all(&bytes);
            assert_eq!(lines.len(), 2, "{len}");
            assert_eq!(lines[0].1.is_ok(), fits, "{len}");
            assert_eq!(lines[1], (2, Ok("next".to_owned())));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_said() {
        let lines = all(b"ab\xffc\nok");
        assert_eq!(lines[0].1, Err(BadLine::NotUtf8(3)));
        assert_eq!(lines[1].1, Ok("ok".to_owned()));
    }
}
