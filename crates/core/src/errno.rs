//! Linux error numbers, as plain data: core has no operating system.

use std::fmt;

/// A Linux `errno`. The numbers are those of every architecture that RDMA hosts use (asm-generic).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($value);)*
        }
        /// name, number, what the C library prints for it
        const NAMES: &[(&str, i32, &str)] = &[$((stringify!($name), $value, $text)),*];
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    ENODEV = 19, "No such device";
    EINVAL = 22, "Invalid argument";
    EMFILE = 24, "Too many open files";
    ENOSPC = 28, "No space left on device";
    ENOSYS = 38, "Function not implemented";
    ETIME = 62, "Timer expired";
    EOVERFLOW = 75, "Value too large for defined data type";
    EOPNOTSUPP = 95, "Operation not supported";
    ETIMEDOUT = 110, "Connection timed out";
    EHWPOISON = 133, "Memory page has hardware error";
}

impl Errno {
    /// The symbol, for example `EIO`; `None` for a number that is not in the table.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(_, value, _)| *value == self.0)
            .map(|(name, ..)| *name)
    }

    /// What the C library prints for it, for example `Input/output error`.
    #[must_use]
    pub fn text(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(_, value, _)| *value == self.0)
            .map(|(.., text)| *text)
    }

    /// Reads `EIO`, `eio`, `5` or `Input/output error`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let t = text.trim();
        if let Ok(number) = t.parse::<i32>() {
            return (1..4096).contains(&number).then_some(Self(number));
        }
        NAMES
            .iter()
            .find(|(name, _, said)| name.eq_ignore_ascii_case(t) || said.eq_ignore_ascii_case(t))
            .map(|(_, value, _)| Self(*value))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self.text()) {
            (Some(name), Some(text)) => write!(f, "{name} [{}] {text}", self.0),
            _ => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_messages_are_read() {
        for text in ["EIO", "eio", "5", "Input/output error"] {
            assert_eq!(Errno::parse(text), Some(Errno::EIO));
        }
        assert_eq!(Errno::parse("EWHAT"), None);
        assert_eq!(Errno::parse("0"), None);
        assert_eq!(Errno::EIO.to_string(), "EIO [5] Input/output error");
        assert_eq!(Errno(77).to_string(), "errno 77");
    }
}
