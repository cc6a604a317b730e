//! What the harness keeps between runs: everything under `target/vm`, one run at a time.
use std::fmt;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::step::step;

/// Something this machine cannot give (a package, a program, a right): not a failed test.
#[derive(Debug)]
pub(crate) struct Unavailable {
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) way_out: String,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cannot be had: {}; way out: {}",
            self.what, self.why, self.way_out
        )
    }
}

impl std::error::Error for Unavailable {}

/// Shorthand for an [`Unavailable`] as an `anyhow` error.
pub(crate) fn unavailable(what: &str, why: &str, way_out: &str) -> anyhow::Error {
    Unavailable {
        what: what.into(),
        why: why.into(),
        way_out: way_out.into(),
    }
    .into()
}

/// The cache folder, locked against other runs as long as the value lives.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    _lock: File,
}

impl Cache {
    /// Opens `target/vm` (or `HUGEMR_VM_CACHE`), waiting for another run to end.
    pub(crate) fn open() -> Result<Self> {
        let root = match std::env::var_os("HUGEMR_VM_CACHE") {
            Some(path) => std::path::absolute(path)?,
            None => workspace()?.join("target/vm"),
        };
        fs::create_dir_all(&root).with_context(|| format!("create {}", root.display()))?;
        let lock_path = root.join("lock");
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .with_context(|| format!("open {}", lock_path.display()))?;
        if !flock(&lock, libc::LOCK_EX | libc::LOCK_NB)? {
            eprintln!(
                "vm: another run holds {}; waiting for it to end",
                lock_path.display()
            );
            flock(&lock, libc::LOCK_EX)?;
        }
        lock.set_len(0)?;
        writeln!(lock, "{}", std::process::id())?;
        Ok(Self { root, _lock: lock })
    }

    /// A path inside the cache.
    pub(crate) fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.root.join(relative)
    }

    /// A folder made once. It is built beside its place and renamed when complete, so that an
    /// interrupted step never looks done.
    pub(crate) fn once(
        &self,
        name: &str,
        what: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let done = self.path(name);
        if done.exists() {
            return Ok(done);
        }
        let part = self.path(format!("{name}.part"));
        step(what, || {
            remove_tree(&part)?;
            fs::create_dir_all(&part)?;
            make(&part)?;
            fs::rename(&part, &done)
                .with_context(|| format!("rename {} to {}", part.display(), done.display()))
        })?;
        Ok(done)
    }

    /// Removes everything but the lock.
    pub(crate) fn clean(&self) -> Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name != "lock") {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }
}

/// The workspace this task runner belongs to.
pub(crate) fn workspace() -> Result<PathBuf> {
    let member = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: start the harness as `cargo xtask vm`")?;
    let member = PathBuf::from(member);
    Ok(member
        .parent()
        .context("xtask has no parent folder")?
        .to_path_buf())
}

/// Runs a program to its end and gives its standard output; its last lines of error otherwise.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let run = command.stdin(Stdio::null()).output();
    let run = run.with_context(|| format!("start {shown}"))?;
    if !run.status.success() {
        let err = String::from_utf8_lossy(&run.stderr);
        let out = String::from_utf8_lossy(&run.stdout);
        bail!(
            "{shown} ended with {}: {}",
            run.status,
            tail(&format!("{out}{err}"), 12)
        );
    }
    Ok(String::from_utf8_lossy(&run.stdout).into_owned())
}

/// The last `lines` lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// `true` where a program of this name is in PATH.
pub(crate) fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Removes a tree, a missing one included.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let gone = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match gone {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// `Ok(false)`: somebody else holds the lock (only with `LOCK_NB`).
fn flock(file: &File, operation: libc::c_int) -> Result<bool> {
    // SAFETY: the descriptor is open for the length of the call; flock touches no memory.
    if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
        return Ok(true);
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EWOULDBLOCK) {
        return Ok(false);
    }
    Err(error).context("lock the cache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_keeps_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 5), "a");
        assert_eq!(tail("", 5), "");
    }

    #[test]
    fn unavailable_names_the_way_out() {
        let error = unavailable("QEMU", "no such package", "use Debian 12");
        assert_eq!(
            error.to_string(),
            "QEMU cannot be had: no such package; way out: use Debian 12"
        );
        assert!(error.downcast_ref::<Unavailable>().is_some());
    }
}
