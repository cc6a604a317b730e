//! The root of the file system through which `/proc` and `/sys` are read.
//!
//! [`Root::real`] is the machine's own; [`Root::at`] is a folder: the host's root mounted into a container, or a
//! tree that a test has made. Paths are written as on the host (`/sys/kernel/mm/hugepages`).

use std::fmt;
use std::fs;
use std::io;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder that stands for `/`.
#[derive(Clone)]
pub struct Root {
    base: PathBuf,
    after_write: Option<Arc<AfterWrite>>,
}

type AfterWrite = dyn Fn(&str, &str) + Send + Sync;

impl Root {
    /// The file system of this machine.
    #[must_use]
    pub fn real() -> Self {
        Self::at("/")
    }

    /// The folder `base` in the place of `/`.
    pub fn at(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            after_write: None,
        }
    }

    /// Calls `kernel(path, value)` after each write of ours, so that a test can play the kernel's part: cut a count
    /// short, move another one.
    #[must_use]
    pub fn after_write(mut self, kernel: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        self.after_write = Some(Arc::new(kernel));
        self
    }

    /// Whether this is the machine's own root.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.base == Path::new("/")
    }

    /// Where `path` really lies.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.base.join(path.trim_start_matches('/'))
    }

    /// The whole file, as text (other bytes than UTF-8 replaced).
    ///
    /// # Errors
    /// That of the system.
    pub fn read(&self, path: &str) -> io::Result<String> {
        fs::read(self.path(path)).map(|bytes| match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })
    }

    /// The file without white space at its ends; `None` where it cannot be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        self.read(path).ok().map(|text| text.trim().to_owned())
    }

    /// The number that the file holds; `None` where there is none.
    #[must_use]
    pub fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Names in a folder, sorted; empty where it cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    /// Whether there is such a file or folder, as far as this process may see.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a symbolic link; `None` where there is none.
    #[must_use]
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        target.into_os_string().into_string().ok()
    }

    /// Writes `value` to a file that exists, as `echo value > path` does, in one write.
    ///
    /// # Errors
    /// That of the system.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).truncate(true).open(self.path(path))?;
        file.write_all(value.as_bytes())?;
        drop(file);
        self.written(path, value);
        Ok(())
    }

    /// Whether a file that exists can be written: it is opened, and nothing is changed.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn may_write(&self, path: &str) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(self.path(path));
        file.map(|_| ())
    }

    /// Writes `value` behind what the file holds, as `echo value >> path` does. Some files of the kernel forget everything
    /// when they are opened for anything else (`kprobe_events`).
    ///
    /// # Errors
    /// That of the system.
    pub fn append(&self, path: &str, value: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(self.path(path))?;
        file.write_all(value.as_bytes())?;
        drop(file);
        self.written(path, value);
        Ok(())
    }

    /// Makes a folder.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn make_folder(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.path(path))?;
        self.written(path, "mkdir");
        Ok(())
    }

    /// Removes an empty folder. A test's kernel is told before, so that it can empty it as tracefs does.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn remove_folder(&self, path: &str) -> io::Result<()> {
        self.written(path, "rmdir");
        fs::remove_dir(self.path(path))
    }

    /// Opens a file for reading without ever waiting for more (`O_NONBLOCK`).
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn open_stream(&self, path: &str) -> io::Result<fs::File> {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        options.open(self.path(path))
    }

    /// Writes a new file that takes the place of `path` in one step, so that nobody ever reads half of it.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn replace(&self, path: &str, text: &str) -> io::Result<()> {
        let place = self.path(path);
        let new = place.with_extension("new");
        let made = fs::write(&new, text).and_then(|()| fs::rename(&new, place));
        if made.is_err() {
            // Half of a file keeps room that others want.
            let _gone = fs::remove_file(&new);
        }
        made?;
        self.written(path, text);
        Ok(())
    }

    /// Writes into a file that exists, from byte `at` on, in one write. What stands behind it stays.
    ///
    /// # Errors
    /// That of the system.
    pub(crate) fn overwrite(&self, path: &str, at: u64, text: &str) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(self.path(path))?;
        file.write_all_at(text.as_bytes(), at)?;
        self.written(path, text);
        Ok(())
    }

    fn written(&self, path: &str, text: &str) {
        if let Some(kernel) = &self.after_write {
            kernel(path, text);
        }
    }
}

impl Default for Root {
    fn default() -> Self {
        Self::real()
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Root").field(&self.base).finish()
    }
}

/// Reads a list as the kernel writes it: `0-3,8,10-11`. `None` for anything else, or for a list of more than
/// 2^20 members.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut members = Vec::new();
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    for part in parts {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last - first >= 1 << 20 {
            return None;
        }
        members.extend(first..=last);
    }
    Some(members)
}

#[cfg(test)]
pub(crate) mod fake {
    //! Trees for tests, and the lock of the real pools.

    use super::*;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held by each test that uses the pools of the machine: one of them empties a pool.
    pub(crate) fn pool_lock() -> MutexGuard<'static, ()> {
        static LOCK: Mutex<()> = Mutex::new(());
        LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A folder that goes away with the value.
    pub(crate) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(crate) fn new() -> Self {
            // In memory where there is such a folder: the property tests make thousands of small files.
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            Self(folder.unwrap())
        }

        pub(crate) fn root(&self) -> Root {
            Root::at(self.0.path())
        }

        pub(crate) fn file(&self, path: &str, text: &str) {
            self.bytes(path, text.as_bytes());
        }

        pub(crate) fn bytes(&self, path: &str, bytes: &[u8]) {
            fs::write(self.place(path), bytes).unwrap();
        }

        pub(crate) fn symlink(&self, path: &str, target: &str) {
            std::os::unix::fs::symlink(target, self.place(path)).unwrap();
        }

        fn place(&self, path: &str) -> PathBuf {
            let place = self.root().path(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            place
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_stay_below_the_root() {
        let root = Root::at("/tmp/x");
        assert_eq!(root.path("/sys/a"), Path::new("/tmp/x/sys/a"));
        assert_eq!(root.path("sys/a"), Path::new("/tmp/x/sys/a"));
        assert!(Root::real().is_real());
        assert!(!root.is_real());
    }

    #[test]
    fn what_is_missing_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!(root.text("/nothing"), None);
        assert_eq!(root.number("/nothing"), None);
        assert!(root.names("/nothing").is_empty());
        assert!(root.write("/nothing", "1").is_err());
        std::fs::write(folder.path().join("n"), " 42\n").unwrap();
        assert_eq!(root.number("/n"), Some(42));
        std::fs::write(folder.path().join("n"), "-1\n").unwrap();
        assert_eq!(root.number("/n"), None);
    }

    proptest! {
        #[test]
        fn lists_read_back(cpus in proptest::collection::btree_set(0u32..300, 0..40)) {
            let mut text = String::new();
            let mut rest = cpus.iter().copied().peekable();
            while let Some(first) = rest.next() {
                let mut last = first;
                while rest.peek() == Some(&(last + 1)) {
                    last = rest.next().unwrap();
                }
                if !text.is_empty() {
                    text.push(',');
                }
                text += &if first == last { first.to_string() } else { format!("{first}-{last}") };
            }
            text.push('\n');
            let read = parse_list(&text).unwrap();
            prop_assert_eq!(read, cpus.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn other_lists_are_refused_without_panic(text in "[0-9,\\- a]{0,12}") {
            let _ = parse_list(&text);
        }
    }
}
