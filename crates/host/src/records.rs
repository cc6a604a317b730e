//! Files of records below `/run/hugemr`: a head, then a line a record, each padded to one width.
//!
//! A file is replaced by a new one as long as there is room for that. Where there is none (`/run` is full, or the new file
//! cannot be made), the records are changed where they stand: to change one or to take one out needs no new room, because
//! each has its full width from the beginning. A record lies within one page of the file, and is written in one write,
//! so a process that is killed leaves it as it was or as it shall be.

use std::io;

use crate::root::Root;

/// Bytes of a line, its end included. It divides a page, and holds the longest record of the ledger (177).
const WIDTH: usize = 256;

/// Writes all records. `key` is the part of a record that stays while it is changed.
pub(crate) fn save<'a>(
    root: &Root,
    path: &str,
    head: &str,
    records: &'a [String],
    key: impl Fn(&'a str) -> &'a str,
) -> io::Result<()> {
    let lines = std::iter::once(head).chain(records.iter().map(String::as_str));
    let text: String = lines.map(|line| padded(line, WIDTH)).collect();
    match root.replace(path, &text) {
        Ok(()) => Ok(()),
        // The first failure says more.
        Err(error) => in_place(root, path, records, key).map_err(|_| error),
    }
}

/// The lines with their numbers, from 1, the head first. What was taken out is left out.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().map(str::trim_end).zip(1..);
    lines
        .map(|(line, number)| (number, line))
        .filter(|(number, line)| *number == 1 || !line.is_empty())
}

fn padded(line: &str, width: usize) -> String {
    format!("{line:0$}\n", width.saturating_sub(1))
}

/// One line where it stands.
struct Slot<'t> {
    at: usize,
    /// With its end.
    width: usize,
    text: &'t str,
}

fn in_place<'a>(
    root: &Root,
    path: &str,
    records: &'a [String],
    key: impl Fn(&'a str) -> &'a str,
) -> io::Result<()> {
    let old = root.read(path)?;
    let mut slots = Vec::new();
    let mut at = 0;
    for line in old.split_inclusive('\n') {
        slots.push(Slot {
            at,
            width: line.len(),
            text: line.trim_end(),
        });
        at += line.len();
    }
    let no_room = || io::Error::from(io::ErrorKind::StorageFull);
    if slots.is_empty() || !old.ends_with('\n') {
        return Err(no_room());
    }
    // Of the old text only what begins as a key of ours is compared, so that records of another hand are none of ours.
    let mut left: Vec<&'a str> = records.iter().map(String::as_str).collect();
    let (mut writes, mut blank) = (Vec::new(), Vec::<&Slot<'_>>::new());
    for slot in &slots[1..] {
        let same = |record: &'a str| {
            let key = key(record);
            slot.text
                .strip_prefix(key)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        match left.iter().position(|record| same(record)) {
            Some(i) => {
                let record = left.remove(i);
                if record != slot.text {
                    writes.push((slot, record));
                }
            }
            None => blank.push(slot),
        }
    }
    let mut new = Vec::new();
    for record in left {
        let room = blank.iter().position(|slot| record.len() < slot.width);
        match room {
            Some(i) => writes.push((blank.remove(i), record)),
            None => new.push(record),
        }
    }
    let taken_out = blank.into_iter().filter(|slot| !slot.text.is_empty());
    writes.extend(taken_out.map(|slot| (slot, "")));
    if writes
        .iter()
        .any(|(slot, record)| record.len() >= slot.width)
    {
        return Err(no_room());
    }
    for (slot, record) in writes {
        root.overwrite(path, slot.at as u64, &padded(record, slot.width))?;
    }
    for record in new {
        let line = padded(record, WIDTH);
        root.overwrite(path, at as u64, &line)?;
        at += line.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;
    use proptest::prelude::*;

    const PATH: &str = "/run/hugemr/x";

    fn name(record: &str) -> &str {
        record.split(' ').next().unwrap_or_default()
    }

    fn read(root: &Root) -> Vec<String> {
        let text = root.read(PATH).unwrap();
        let mut records: Vec<String> = lines(&text)
            .skip(1)
            .map(|(_, line)| line.to_owned())
            .collect();
        records.sort_unstable();
        records
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Without room for a second file each save comes out as with it, and only new records make the file longer.
        #[test]
        fn what_has_no_room_is_changed_where_it_stands(
            first in proptest::collection::btree_map(0u8..12, any::<u64>(), 0..8),
            then in proptest::collection::vec(
                proptest::collection::btree_map(0u8..12, any::<u64>(), 0..8), 1..4),
        ) {
            let tree = Tree::new();
            let root = tree.root();
            let of = |map: &std::collections::BTreeMap<u8, u64>| -> Vec<String> {
                map.iter().map(|(name, value)| format!("{name} {value}")).collect()
            };
            tree.file(PATH, "");
            save(&root, PATH, "head", &of(&first), name).unwrap();
            // A folder in the place of the new file.
            std::fs::create_dir(root.path("/run/hugemr/x.new")).unwrap();
            let mut most = first.len();
            for map in then {
                save(&root, PATH, "head", &of(&map), name).unwrap();
                most = most.max(map.len());
                let mut want = of(&map);
                want.sort_unstable();
                prop_assert_eq!(read(&root), want);
                prop_assert_eq!(root.read(PATH).unwrap().len(), WIDTH * (most + 1));
                prop_assert!(root.read(PATH).unwrap().starts_with("head "));
            }
        }
    }

    /// A line without the full width (of an earlier version) takes what fits.
    #[test]
    fn a_narrow_line_is_taken_out_and_not_outgrown() {
        let tree = Tree::new();
        let root = tree.root();
        tree.file(PATH, "head\n7 1\n8 22\n");
        std::fs::create_dir(root.path("/run/hugemr/x.new")).unwrap();
        save(&root, PATH, "head", &["8 3".to_owned()], name).unwrap();
        assert_eq!(root.read(PATH).unwrap(), "head\n   \n8 3 \n");
        let error = save(&root, PATH, "head", &["8 33333".to_owned()], name).unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::StorageFull, "the first one");
        assert_eq!(root.read(PATH).unwrap(), "head\n   \n8 3 \n");
    }
}
