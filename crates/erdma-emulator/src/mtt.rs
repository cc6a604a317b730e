//! Page tables of memory regions: up to four addresses in the command, or a table in guest memory.
//!
//! | level | where the entries are |
//! |---|---|
//! | 0 | in the command, at most 4 |
//! | 1 | an array at the address given: one table page, or, from drivers before 6.6 and without the capability `MTT_VA`, one block of any length |
//! | 2 | a table page of addresses of table pages |
//! | 3 | one step more |
//!
//! Source: Linux `erdma_verbs.c` (`regmr_cmd`, `erdma_create_mtt`), 6.1, 6.12 and 7.3.

use crate::mem::{GuestMemory, MemError};

/// Most entries the largest table of a driver has: three levels of 512.
pub const MAX_ENTRIES: u64 = 1 << 27;

/// Words read from guest memory at once.
const CHUNK: u64 = 512;

/// Where a table begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// In the command itself.
    Inline([u64; 4]),
    /// In guest memory.
    At(u64),
}

/// A page table as a command describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Entries that the command claims.
    pub entries: u64,
    /// Levels, 0 to 3.
    pub level: u8,
    /// log2 of the size of a table page.
    pub table_shift: u8,
    /// Where it begins.
    pub root: Root,
}

/// Why a table is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// No entries, or more than its levels hold.
    #[error("{entries} entries in a table of {level} level(s)")]
    Count {
        /// Entries claimed.
        entries: u64,
        /// Levels claimed.
        level: u8,
    },
    /// More entries than the device will read.
    #[error("{entries} entries, {limit} are read at most")]
    Limit {
        /// Entries claimed.
        entries: u64,
        /// The limit.
        limit: u64,
    },
    /// A table page that is not aligned: 8 bytes for the array of level 1, the table page else.
    #[error("a table at {0:#x} is not aligned")]
    Unaligned(u64),
    /// A table page that is not in guest memory.
    #[error("the table is not in guest memory")]
    Memory(#[from] MemError),
}

/// Reads entries of a table by number.
pub struct Reader<'m> {
    table: Table,
    mem: &'m dyn GuestMemory,
    /// What was last read on each level, leaf first.
    chunks: [Chunk; 3],
}

struct Chunk {
    addr: u64,
    len: u64,
    words: Box<[u64; 512]>,
}

impl Chunk {
    fn new() -> Self {
        Self {
            addr: 0,
            len: 0,
            words: Box::new([0; 512]),
        }
    }

    /// Word `index` of an array at `base` that has `total` words.
    fn word(
        &mut self,
        base: u64,
        index: u64,
        total: u64,
        mem: &dyn GuestMemory,
    ) -> Result<u64, MemError> {
        let first = index - index % CHUNK;
        let len = (total - first).min(CHUNK);
        let out = MemError {
            addr: base,
            len: total.saturating_mul(8),
        };
        let addr = base.checked_add(first * 8).ok_or(out)?;
        if self.addr != addr || self.len < len {
            self.len = 0;
            let words = usize::try_from(len)
                .ok()
                .and_then(|len| self.words.get_mut(..len));
            mem.read_words(addr, words.ok_or(out)?)?;
            (self.addr, self.len) = (addr, len);
        }
        usize::try_from(index - first)
            .ok()
            .and_then(|i| self.words.get(i))
            .copied()
            .ok_or(out)
    }
}

impl Table {
    /// Entries of one table page.
    #[must_use]
    pub const fn per_page(&self) -> u64 {
        // At most 2^19 bytes from a command; larger values cannot overflow what follows.
        1 << (if self.table_shift > 30 {
            27
        } else {
            self.table_shift.saturating_sub(3)
        })
    }

    /// Checks what can be checked without reading the table.
    ///
    /// # Errors
    /// On a count that the levels cannot hold or that is above `limit`, and on an odd address.
    pub fn check(&self, limit: u64) -> Result<(), TableError> {
        let Self { entries, level, .. } = *self;
        let per_page = self.per_page();
        let room = match level {
            0 => 4,
            1 => MAX_ENTRIES,
            2 => per_page * per_page,
            3 => per_page.saturating_pow(3),
            _ => 0,
        };
        if entries == 0 || entries > room {
            return Err(TableError::Count { entries, level });
        }
        if entries > limit {
            return Err(TableError::Limit { entries, limit });
        }
        match self.root {
            Root::Inline(_) => Ok(()),
            Root::At(addr) => self.check_page(addr, level),
        }
    }

    fn check_page(&self, addr: u64, level: u8) -> Result<(), TableError> {
        let align = if level <= 1 && self.level == 1 {
            8
        } else {
            self.per_page() * 8
        };
        if addr == 0 || !addr.is_multiple_of(align) {
            return Err(TableError::Unaligned(addr));
        }
        Ok(())
    }

    /// A reader of its entries.
    #[must_use]
    pub fn reader<'m>(&self, mem: &'m dyn GuestMemory) -> Reader<'m> {
        Reader {
            table: *self,
            mem,
            chunks: [Chunk::new(), Chunk::new(), Chunk::new()],
        }
    }
}

impl Reader<'_> {
    /// Entry `index`.
    ///
    /// # Errors
    /// When there is none, or the table on the way to it is odd or not in guest memory.
    pub fn entry(&mut self, index: u64) -> Result<u64, TableError> {
        let Self {
            table,
            mem,
            chunks: [leaf, middle, top],
        } = self;
        let out = TableError::Count {
            entries: table.entries,
            level: table.level,
        };
        if index >= table.entries {
            return Err(out);
        }
        let base = match table.root {
            Root::Inline(words) => {
                return usize::try_from(index)
                    .ok()
                    .and_then(|i| words.get(i))
                    .copied()
                    .ok_or(out);
            }
            Root::At(base) => base,
        };
        let per_page = table.per_page();
        let leaves = table.entries.div_ceil(per_page);
        let leaf_number = index / per_page;
        let leaf_page = match table.level {
            1 => return Ok(leaf.word(base, index, table.entries, *mem)?),
            2 => middle.word(base, leaf_number, leaves, *mem)?,
            3 => {
                let page = top.word(
                    base,
                    leaf_number / per_page,
                    leaves.div_ceil(per_page),
                    *mem,
                )?;
                table.check_page(page, 2)?;
                let left = leaves - leaf_number / per_page * per_page;
                middle.word(page, leaf_number % per_page, left.min(per_page), *mem)?
            }
            _ => return Err(out),
        };
        table.check_page(leaf_page, 1)?;
        let left = table.entries - leaf_number * per_page;
        Ok(leaf.word(leaf_page, index % per_page, left.min(per_page), *mem)?)
    }
}

/// The entries of a table in order, ended by the first error.
pub struct Walk<'m> {
    reader: Reader<'m>,
    next: u64,
    end: u64,
    refused: Option<TableError>,
}

/// Walks `table`, reading no more than `limit` entries.
#[must_use]
pub fn walk<'m>(table: &Table, mem: &'m dyn GuestMemory, limit: u64) -> Walk<'m> {
    let refused = table.check(limit).err();
    Walk {
        reader: table.reader(mem),
        next: 0,
        end: if refused.is_some() { 0 } else { table.entries },
        refused,
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<u64, TableError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        if self.next >= self.end {
            return None;
        }
        let entry = self.reader.entry(self.next);
        self.next += 1;
        if entry.is_err() {
            self.end = self.next;
        }
        Some(entry)
    }
}

/// What a whole table looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Survey {
    /// Entries read.
    pub entries: u64,
    /// Maximal stretches of entries whose pages follow each other in memory.
    pub runs: u64,
    /// Entries of the longest of them.
    pub longest_run: u64,
    /// Entries that are no multiple of the page size.
    pub misaligned: u64,
    /// Entries of zero.
    pub zero: u64,
    /// Lowest address.
    pub lowest: u64,
    /// Highest address.
    pub highest: u64,
}

/// Reads a whole table and counts.
///
/// # Errors
/// On the first table page that cannot be read, or a count that cannot be right.
pub fn survey(
    table: &Table,
    page_shift: u8,
    mem: &dyn GuestMemory,
    limit: u64,
) -> Result<Survey, TableError> {
    let page = 1u64 << page_shift.min(63);
    let mut survey = Survey {
        lowest: u64::MAX,
        ..Survey::default()
    };
    let (mut expected, mut run) = (None, 0);
    for entry in walk(table, mem, limit) {
        let entry = entry?;
        survey.entries += 1;
        survey.misaligned += u64::from(!entry.is_multiple_of(page));
        survey.zero += u64::from(entry == 0);
        survey.lowest = survey.lowest.min(entry);
        survey.highest = survey.highest.max(entry);
        if expected == Some(entry) {
            run += 1;
        } else {
            survey.runs += 1;
            run = 1;
        }
        survey.longest_run = survey.longest_run.max(run);
        expected = entry.checked_add(page);
    }
    Ok(survey)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::RamMemory;
    use proptest::prelude::*;

    const BASE: u64 = 0x10_0000;

    /// Builds a table of `level` levels at [`BASE`], as a driver of 6.6 and later does.
    fn build(entries: &[u64], level: u8) -> (RamMemory, Table) {
        let mem = RamMemory::new(BASE, 16 << 20);
        let mut next = BASE;
        let mut layer = entries.to_vec();
        for step in (1..=level).rev() {
            if step == 1 {
                assert!(layer.len() <= 512);
            }
            layer = layer
                .chunks(512)
                .map(|words| {
                    let page = next;
                    next += 4096;
                    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
                    mem.write(page, &bytes).expect("room");
                    page
                })
                .collect();
        }
        assert_eq!(layer.len(), 1);
        let n = u64::try_from(entries.len()).expect("small");
        (
            mem,
            Table {
                entries: n,
                level,
                table_shift: 12,
                root: Root::At(layer[0]),
            },
        )
    }

    fn pages(n: u64) -> Vec<u64> {
        (0..n).map(|i| (i * 7 + 3) << 12).collect()
    }

    #[test]
    fn every_level_gives_the_entries_back() {
        for (n, level) in [
            (5, 1),
            (512, 1),
            (513, 2),
            (262_144, 2),
            (262_145, 3),
            (300_000, 3),
            (5, 3),
        ] {
            let want = pages(n);
            let (mem, table) = build(&want, level);
            let got: Result<Vec<_>, _> = walk(&table, &mem, MAX_ENTRIES).collect();
            assert_eq!(got.expect("walk"), want, "{n} entries, level {level}");
        }
    }

    #[test]
    fn level_1_may_be_one_long_array_at_an_odd_place() {
        let want = pages(2000);
        let bytes: Vec<u8> = want.iter().flat_map(|w| w.to_le_bytes()).collect();
        // ends with the memory: nothing behind the last entry is read
        let mem = RamMemory::from_bytes(BASE + 8, bytes);
        let table = Table {
            entries: 2000,
            level: 1,
            table_shift: 12,
            root: Root::At(BASE + 8),
        };
        let got: Result<Vec<_>, _> = walk(&table, &mem, MAX_ENTRIES).collect();
        assert_eq!(got.expect("walk"), want);
        let short = Table {
            entries: 2001,
            ..table
        };
        assert!(matches!(
            survey(&short, 12, &mem, MAX_ENTRIES),
            Err(TableError::Memory(_))
        ));
    }

    #[test]
    fn counts_that_do_not_fit() {
        let mem = RamMemory::new(BASE, 4096);
        let table = |entries, level, root| Table {
            entries,
            level,
            table_shift: 12,
            root,
        };
        let inline = Root::Inline([0x1000; 4]);
        for t in [
            table(0, 0, inline),
            table(5, 0, inline),
            table(262_145, 2, Root::At(BASE)),
            table((1 << 27) + 1, 3, Root::At(BASE)),
            table(1 << 52, 1, Root::At(BASE)),
        ] {
            assert!(matches!(
                walk(&t, &mem, u64::MAX).next(),
                Some(Err(TableError::Count { .. }))
            ));
        }
        let t = table(100, 1, Root::At(BASE));
        assert_eq!(
            walk(&t, &mem, 99).collect::<Vec<_>>(),
            [Err(TableError::Limit {
                entries: 100,
                limit: 99
            })]
        );
        let t = table(100, 2, Root::At(BASE + 8));
        assert_eq!(
            walk(&t, &mem, 100).next(),
            Some(Err(TableError::Unaligned(BASE + 8)))
        );
    }

    #[test]
    fn a_hole_in_the_middle_ends_the_walk() {
        let (mem, table) = build(&pages(1500), 2);
        let Root::At(root) = table.root else { panic!() };
        mem.write(root + 8, &0xdead_0000_0000u64.to_le_bytes())
            .expect("write");
        let got: Vec<_> = walk(&table, &mem, MAX_ENTRIES).collect();
        assert_eq!(got.len(), 513);
        assert!(matches!(got.last(), Some(Err(TableError::Memory(_)))));
    }

    #[test]
    fn survey_counts_runs() {
        let mut entries: Vec<u64> = (1..=10u64).map(|i| i << 21).collect();
        entries.extend([40 << 21, 39 << 21, 60 << 21, 61 << 21, 0, 0x1000]);
        let (mem, table) = build(&entries, 1);
        let s = survey(&table, 21, &mem, MAX_ENTRIES).expect("survey");
        assert_eq!((s.entries, s.runs, s.longest_run), (16, 6, 10));
        assert_eq!(
            (s.misaligned, s.zero, s.lowest, s.highest),
            (1, 1, 0, 61 << 21)
        );
    }

    proptest! {
        #[test]
        fn hostile_tables_end(
            entries in any::<u64>(), level in any::<u8>(), table_shift in 0u8..40, shift in any::<u8>(),
            root in prop_oneof![(0u64..4096).prop_map(|w| BASE + w * 8), any::<u64>()],
            content in prop::collection::vec(prop_oneof![Just(BASE), Just(BASE + 4096), any::<u64>()], 1024),
            inline in any::<bool>(),
        ) {
            let bytes: Vec<u8> = content.iter().flat_map(|w| w.to_le_bytes()).collect();
            let mem = RamMemory::from_bytes(BASE, bytes);
            let root = if inline { Root::Inline([root; 4]) } else { Root::At(root) };
            let table = Table { entries: entries % 5000, level: level % 5, table_shift, root };
            let n = walk(&table, &mem, 3000).count();
            prop_assert!(n <= 3000);
            let _ = survey(&Table { entries, ..table }, shift, &mem, 3000);
        }
    }
}
