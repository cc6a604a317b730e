//! The archive format of an initramfs (cpio, "newc": ASCII header, name, data, each padded to 4).
use std::collections::BTreeSet;

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// An archive being written. Everything belongs to root; times are 0, so that equal content gives
/// equal bytes.
#[derive(Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    inode: u32,
    names: BTreeSet<String>,
}

impl Cpio {
    /// A folder, with the folders above it.
    pub(crate) fn directory(&mut self, name: &str) {
        if name.is_empty() || self.names.contains(name) {
            return;
        }
        self.parents(name);
        // 755: otherwise programs that are not root's find nothing below.
        self.entry(name, DIRECTORY | 0o755, &[]);
    }

    /// A regular file with its permission bits. A second file of the same name is ignored.
    pub(crate) fn file(&mut self, name: &str, mode: u32, data: &[u8]) {
        if !self.names.contains(name) {
            self.parents(name);
            self.entry(name, REGULAR | (mode & 0o7777), data);
        }
    }

    /// A symbolic link.
    pub(crate) fn symlink(&mut self, name: &str, target: &str) {
        if !self.names.contains(name) {
            self.parents(name);
            self.entry(name, SYMLINK | 0o777, target.as_bytes());
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The whole archive with its end mark.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0, 0);
        self.bytes
    }

    fn parents(&mut self, name: &str) {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.directory(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.inode += 1;
        let links = if mode & DIRECTORY != 0 && mode & REGULAR == 0 {
            2
        } else {
            1
        };
        self.header(name, mode, links, data.len());
        self.bytes.extend_from_slice(data);
        self.pad();
        self.names.insert(name.to_owned());
    }

    fn header(&mut self, name: &str, mode: u32, links: u32, size: usize) {
        let size = u32::try_from(size).expect("a guest file is below 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("a short name");
        // inode, mode, uid, gid, links, time, size, device and special device (2 each), name, check
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An independent reader: name, mode, data of each entry.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[6 + 8 * n..14 + 8 * n]).expect("ascii");
                u32::from_str_radix(text, 16).expect("hex")
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).expect("name");
            assert_eq!(bytes[110 + name_size - 1], 0);
            let data_at = (110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return entries;
            }
            entries.push((name, mode, bytes[data_at..data_at + size].to_vec()));
            bytes = &bytes[(data_at + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn entries_come_back_with_parents_first() {
        let mut cpio = Cpio::default();
        cpio.file("usr/bin/x", 0o755, b"12345");
        cpio.symlink("lib", "usr/lib");
        cpio.file("usr/bin/x", 0o644, b"ignored");
        cpio.file("empty", 0o600, b"");
        assert!(cpio.contains("usr/bin"));
        let entries = read(&cpio.finish());
        let expected: Vec<(String, u32, Vec<u8>)> = vec![
            ("usr".into(), 0o040_755, vec![]),
            ("usr/bin".into(), 0o040_755, vec![]),
            ("usr/bin/x".into(), 0o100_755, b"12345".to_vec()),
            ("lib".into(), 0o120_777, b"usr/lib".to_vec()),
            ("empty".into(), 0o100_600, vec![]),
        ];
        assert_eq!(entries, expected);
    }
}
