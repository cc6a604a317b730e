//! What a run tells while it works: a line for each step, with its time.
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};

/// The step whose line is open: begun, without its time. Of steps that run side by side only the last can have one.
static OPEN: Mutex<Option<u64>> = Mutex::new(None);

/// Says in one line what a step does and how long it took; in two where another step spoke between.
pub(crate) fn step<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let number = begin(what)?;
    let result = work();
    let failed = if result.is_err() { "failed after " } else { "" };
    let took = format!("{failed}{:.1} s", start.elapsed().as_secs_f64());
    end(number, what, &took);
    result.with_context(|| what.to_owned())
}

/// Does both at the same time, `aside` in a thread of its own. Either failing fails both, when both have ended.
pub(crate) fn together<A: Send, B>(
    aside: impl FnOnce() -> Result<A> + Send,
    here: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let aside = scope.spawn(aside);
        let here = here();
        let aside = aside
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((aside?, here?))
    })
}

fn begin(what: &str) -> Result<u64> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if open.replace(number).is_some() {
        println!();
    }
    print!("vm: {what} ...");
    std::io::stdout().flush()?;
    Ok(number)
}

fn end(number: u64, what: &str, took: &str) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    match *open {
        Some(other) if other == number => {
            *open = None;
            println!(" {took}");
        }
        Some(_) => {
            *open = None;
            println!("\nvm: {what}: {took}");
        }
        None => println!("vm: {what}: {took}"),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn both_are_done_at_the_same_time() {
        let both = std::sync::Barrier::new(2);
        let meet = |value| {
            both.wait();
            Ok(value)
        };
        assert_eq!(together(|| meet(1), || meet(2)).expect("met"), (1, 2));
    }

    #[test]
    fn a_failure_of_either_is_told() {
        let fails = || -> Result<()> { bail!("no") };
        assert!(together(fails, || Ok(())).is_err());
        assert!(together(|| Ok(()), fails).is_err());
        let error = step("try it", fails).expect_err("it fails");
        assert_eq!(format!("{error:#}"), "try it: no");
    }
}
