//! 2 MiB pages for tests: taken for a while, given back to the page.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Pages added to the pool by us. What goes back is their number, never a former value of the pool, so that
/// what others do meanwhile stays.
#[derive(Debug)]
pub(super) struct HugePages {
    pool: PathBuf,
    added: u64,
}

impl HugePages {
    /// Sees to it that `count` pages are free, adding what is missing; gives nothing where that fails.
    pub(super) fn take(count: u64) -> Result<Self> {
        Self::take_from(Path::new(POOL), count)
    }

    fn take_from(pool: &Path, count: u64) -> Result<Self> {
        let free = read(&pool.join("free_hugepages"))?;
        let reserved = read(&pool.join("resv_hugepages"))?;
        let missing = count.saturating_sub(free.saturating_sub(reserved));
        if missing == 0 {
            return Ok(Self {
                pool: pool.to_owned(),
                added: 0,
            });
        }
        let total = pool.join("nr_hugepages");
        let before = read(&total)?;
        write(&total, before + missing).context("adding 2 MiB pages to the pool")?;
        let added = read(&total)?.saturating_sub(before);
        // From here on they go back, whatever happens.
        let taken = Self {
            pool: pool.to_owned(),
            added,
        };
        if added < missing {
            bail!("only {added} of {missing} missing 2 MiB pages could be had");
        }
        Ok(taken)
    }

    pub(super) fn added(&self) -> u64 {
        self.added
    }

    /// Gives back what was added, and says whether the pool shrank by as much.
    pub(super) fn give_back(mut self) -> Result<()> {
        self.subtract()
    }

    fn subtract(&mut self) -> Result<()> {
        let added = std::mem::take(&mut self.added);
        if added == 0 {
            return Ok(());
        }
        let total = self.pool.join("nr_hugepages");
        let before = read(&total)?;
        write(&total, before.saturating_sub(added)).context("giving 2 MiB pages back")?;
        let after = read(&total)?;
        if before.saturating_sub(after) < added {
            bail!("{added} pages had to go back, the pool went from {before} to {after}");
        }
        Ok(())
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = self.subtract() {
            eprintln!("{error:#}");
        }
    }
}

fn read(file: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    text.trim()
        .parse()
        .with_context(|| file.display().to_string())
}

fn write(file: &Path, value: u64) -> Result<()> {
    std::fs::write(file, value.to_string()).with_context(|| file.display().to_string())
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C ends the running test, not us: the pages must go back first.
pub(crate) fn survive_interrupts() {
    extern "C" fn note(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::SeqCst);
    }
    let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler does nothing but store to an atomic, which is allowed at any time. A program that
        // is started later does not inherit it.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Whether Ctrl-C was pressed since.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pool(PathBuf);

    impl Pool {
        fn new(name: &str, total: u64, free: u64, reserved: u64) -> Self {
            let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let pool = Self(folder);
            pool.set("nr_hugepages", total);
            pool.set("free_hugepages", free);
            pool.set("resv_hugepages", reserved);
            pool
        }
        fn set(&self, file: &str, value: u64) {
            write(&self.0.join(file), value).unwrap();
        }
        fn total(&self) -> u64 {
            read(&self.0.join("nr_hugepages")).unwrap()
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_added_goes_back_and_nothing_else() {
        let pool = Pool::new("xtask-pool-a", 10, 8, 3);
        let taken = HugePages::take_from(&pool.0, 20).unwrap();
        // 5 were free and not reserved: 15 more.
        assert_eq!((taken.added(), pool.total()), (15, 25));
        // Somebody else adds 100 meanwhile.
        pool.set("nr_hugepages", 125);
        taken.give_back().unwrap();
        assert_eq!(pool.total(), 110);
    }

    #[test]
    fn a_pool_that_is_large_enough_stays_as_it_is() {
        let pool = Pool::new("xtask-pool-b", 30, 30, 0);
        drop(HugePages::take_from(&pool.0, 20).unwrap());
        assert_eq!(pool.total(), 30);
        assert!(HugePages::take_from(Path::new("/nonexistent"), 1).is_err());
    }
}
