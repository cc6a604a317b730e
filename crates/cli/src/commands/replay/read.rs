//! Values of `in`, checked while they are read, so that an error knows its key's place.

use hugemr_core::backend::Access;
use hugemr_core::device::Family;
use hugemr_core::errno::Errno;
use hugemr_core::host::Driver;
use hugemr_core::size::PageSize;
use hugemr_core::version::KernelVersion;
use serde::de::{Deserialize, Deserializer, Error};

/// An object as a struct: a line, or the `in` of an op.
pub(super) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    // serde would take a list for the values of a struct, in the order of its fields.
    if !text.trim_start().starts_with('{') {
        return Err("an object, {...}, belongs here".to_owned());
    }
    serde_json::from_str(text).map_err(|error| reason(&error))
}

/// What the JSON reader says, with the place inside of the line: it counts lines from the text that it was given.
fn reason(error: &serde_json::Error) -> String {
    hugemr_input::plain(&error.to_string()).replace("line 1 column", "column")
}

/// `None` where the key is absent or null, else what `parse` makes of it.
fn maybe<'de, D, T, U>(
    from: D,
    parse: impl Fn(T) -> Result<U, String>,
) -> Result<Option<U>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::<T>::deserialize(from)?
        .map(parse)
        .transpose()
        .map_err(D::Error::custom)
}

pub(super) fn page<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PageSize>, D::Error> {
    maybe(from, |bytes: u64| {
        PageSize::new(bytes).map_err(|error| error.to_string())
    })
}

pub(super) fn family<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Family>, D::Error> {
    maybe(from, |name: String| Family::named(&name))
}

pub(super) fn errno<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Errno>, D::Error> {
    maybe(from, |name: String| {
        Errno::parse(&name).ok_or_else(|| format!("{name:?} is no errno that is known"))
    })
}

pub(super) fn kernel<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<KernelVersion>, D::Error> {
    maybe(from, |text: String| {
        text.parse::<KernelVersion>()
            .map_err(|error| error.to_string())
    })
}

/// `in-tree`, or the vendor's bundle.
pub(super) fn driver<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Driver>, D::Error> {
    maybe(from, |text: String| match text.as_str() {
        "in-tree" => Ok(Driver::InTree),
        bundle => bundle
            .parse()
            .map(|bundle| Driver::Vendor(Some(bundle)))
            .map_err(|_| format!("{text:?} is no driver (in-tree, or a bundle such as 1.5.7)")),
    })
}

/// Words with `,` between them.
pub(super) fn access<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Access>, D::Error> {
    maybe(from, |text: String| {
        text.split(',').try_fold(Access::empty(), |access, word| {
            Ok(access
                | match word.trim() {
                    "local_write" => Access::LOCAL_WRITE,
                    "remote_write" => Access::REMOTE_WRITE,
                    "remote_read" => Access::REMOTE_READ,
                    "remote_atomic" => Access::REMOTE_ATOMIC,
                    "relaxed_ordering" => Access::RELAXED_ORDERING,
                    other => return Err(format!("{other:?} is no access flag")),
                })
        })
    })
}
