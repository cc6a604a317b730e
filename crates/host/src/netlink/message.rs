//! Netlink messages: headers and attributes as bytes, without trust in any length.

/// Attributes of NLDEV.
pub(super) const DEV_INDEX: u16 = 1;
pub(super) const DEV_NAME: u16 = 2;
pub(super) const FW_VERSION: u16 = 5;
pub(super) const NODE_GUID: u16 = 6;
pub(super) const RES_PID: u16 = 28;
pub(super) const RES_KERN_NAME: u16 = 29;
pub(super) const RES_MR: u16 = 40;
pub(super) const RES_MR_ENTRY: u16 = 41;
pub(super) const RES_MRLEN: u16 = 45;

/// The client NLDEV in the upper bits of a type.
const NLDEV: u16 = 5 << 10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// NLM_F_REQUEST and NLM_F_DUMP (NLM_F_ROOT | NLM_F_MATCH).
const REQUEST_DUMP: u16 = 0x301;
/// NLA_F_NESTED and NLA_F_NET_BYTEORDER, above the type.
const FLAGS: u16 = 0xc000;
const HEADER: usize = 16;

/// The request for a list, of a device where one is named.
pub(super) fn request(command: u16, index: Option<u32>) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(index) = index {
        body.extend(8u16.to_ne_bytes());
        body.extend(DEV_INDEX.to_ne_bytes());
        body.extend(index.to_ne_bytes());
    }
    header(NLDEV | command, REQUEST_DUMP, &body)
}

fn header(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(HEADER + body.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence and port: one request a socket, so neither tells anything.
    bytes.extend(1u32.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend(body);
    bytes
}

/// One message of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply<'a> {
    Data(Attributes<'a>),
    Done,
    /// A positive errno.
    Error(i32),
}

/// The messages of what was received; what follows a length that cannot be is left out.
pub(super) fn replies(mut bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let len = number(bytes.get(..4)?)?;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let len = usize::try_from(len).ok()?;
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(match kind {
            NLMSG_DONE => match status(body) {
                0 => Reply::Done,
                errno => Reply::Error(errno),
            },
            NLMSG_ERROR => match status(body) {
                0 => Reply::Done,
                errno => Reply::Error(errno),
            },
            _ => Reply::Data(Attributes(body)),
        })
    })
}

/// The negative errno at the head of a message; 0 where there is none.
fn status(body: &[u8]) -> i32 {
    let bytes = body.get(..4).and_then(|bytes| bytes.try_into().ok());
    bytes
        .map_or(0, i32::from_ne_bytes)
        .checked_neg()
        .unwrap_or(libc::EIO)
}

fn number(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// Attributes one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    #[cfg(test)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut bytes = self.0;
        std::iter::from_fn(move || {
            let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
            let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
            let value = bytes.get(4..len)?;
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
            Some((kind & !FLAGS, value))
        })
    }

    fn value(self, kind: u16) -> Option<&'a [u8]> {
        self.iter()
            .find(|(found, _)| *found == kind)
            .map(|(_, value)| value)
    }

    pub(super) fn u32(self, kind: u16) -> Option<u32> {
        self.value(kind)?.try_into().ok().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(self, kind: u16) -> Option<u64> {
        self.value(kind)?.try_into().ok().map(u64::from_ne_bytes)
    }

    /// Up to the first zero byte.
    pub(super) fn text(self, kind: u16) -> Option<String> {
        let bytes = self.value(kind)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    pub(super) fn nested(self, kind: u16) -> Option<Self> {
        self.value(kind).map(Self)
    }

    /// Every attribute of that kind.
    pub(super) fn all(self, kind: u16) -> impl Iterator<Item = Self> + use<'a> {
        self.iter()
            .filter(move |(found, _)| *found == kind)
            .map(|(_, value)| Self(value))
    }
}

#[cfg(test)]
pub(super) mod test {
    use super::*;
    use proptest::prelude::*;

    pub(in super::super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(value.len() + 4)
            .unwrap()
            .to_ne_bytes()
            .to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    pub(in super::super) fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        header(NLDEV | kind, 0, body)
    }

    #[test]
    fn a_request_has_the_bytes_of_the_kernels_header() {
        let bytes = request(13, Some(7));
        let want = [
            24u32.to_ne_bytes(),
            [0x0d, 0x14, 0x01, 0x03],
            1u32.to_ne_bytes(),
            [0; 4],
        ]
        .concat();
        assert_eq!(bytes[..16], want);
        assert_eq!(bytes[16..], [[8, 0, 1, 0], 7u32.to_ne_bytes()].concat());
    }

    #[test]
    fn errors_and_the_end_are_told_apart() {
        let error = header(NLMSG_ERROR, 0, &(-19i32).to_ne_bytes());
        let done = header(NLMSG_DONE, 0, &0i32.to_ne_bytes());
        let bytes = [error, done].concat();
        let seen: Vec<_> = replies(&bytes).collect();
        assert!(
            matches!(seen.as_slice(), [Reply::Error(19), Reply::Done]),
            "{seen:?}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for reply in replies(&bytes) {
                if let Reply::Data(attributes) = reply {
                    let _ = (attributes.u32(1), attributes.text(2), attributes.nested(40));
                    prop_assert!(attributes.all(41).count() <= bytes.len());
                }
            }
        }

        #[test]
        fn attributes_read_back(values in prop::collection::vec((1u16..50, prop::collection::vec(any::<u8>(), 0..20)), 0..8)) {
            let bytes: Vec<u8> = values.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
            let back: Vec<(u16, Vec<u8>)> = Attributes(&bytes).iter().map(|(k, v)| (k, v.to_vec())).collect();
            prop_assert_eq!(back, values);
        }
    }
}
