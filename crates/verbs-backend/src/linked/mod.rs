//! The same table from the linker, in builds with the feature `linked-verbs`: for distributions that want the
//! dependency on libibverbs written into the binary. Two files with one signature.

#[cfg(not(feature = "linked-verbs"))]
mod disabled;
#[cfg(feature = "linked-verbs")]
mod enabled;

#[cfg(not(feature = "linked-verbs"))]
pub(crate) use disabled::table;
#[cfg(feature = "linked-verbs")]
pub(crate) use enabled::table;
