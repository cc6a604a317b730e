//! From physical runs to the page size and the entries of an MR, by closed form.

/// A stretch of physically contiguous memory, in the order of virtual addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysRun {
    /// Physical address of its first byte.
    pub phys: u64,
    /// Length, bytes.
    pub len: u64,
}
