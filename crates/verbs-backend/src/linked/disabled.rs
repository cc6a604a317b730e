use crate::sys::table::VerbsTable;

/// Nothing is linked in this build.
pub(crate) const fn table() -> Option<VerbsTable> {
    None
}
