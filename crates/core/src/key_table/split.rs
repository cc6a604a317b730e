//! A range that crosses MRs, part by part.

use super::{KeyTable, Part};
use crate::backend::Lkey;

/// Iterator over the parts of a range; see [`KeyTable::split`].
#[derive(Clone, Debug)]
pub struct Split<'a, L = Lkey> {
    table: &'a KeyTable<L>,
    /// Address of the first byte that is left. Means nothing when no MR is left.
    at: u64,
    /// Address of the last byte.
    last: u64,
    /// Number of the MR that holds `at`.
    next: usize,
    /// Number of MRs left.
    left: usize,
}

impl<'a, L: Copy> Split<'a, L> {
    /// `[at, last]`, every byte of which is held by the MRs `first` to `last_mr`.
    pub(super) fn new(
        table: &'a KeyTable<L>,
        at: u64,
        last: u64,
        first: usize,
        last_mr: usize,
    ) -> Self {
        Self {
            table,
            at,
            last,
            next: first,
            left: last_mr - first + 1,
        }
    }
}

impl<L: Copy> Iterator for Split<'_, L> {
    type Item = Part<L>;

    #[inline]
    fn next(&mut self) -> Option<Part<L>> {
        self.left = self.left.checked_sub(1)?;
        let table = &*self.table.inner;
        let (_, to, keys) = table.index.mr(self.next)?;
        let last = self.last.min(table.base + to);
        let part = Part {
            addr: self.at,
            len: last - self.at + 1,
            lkey: keys.lkey,
            rkey: keys.rkey,
            index: self.next,
        };
        // Behind the last byte of the address space comes 0, and no part.
        self.at = last.wrapping_add(1);
        self.next += 1;
        Some(part)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<L: Copy> ExactSizeIterator for Split<'_, L> {}

impl<L: Copy> std::iter::FusedIterator for Split<'_, L> {}
