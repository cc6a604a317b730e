//! The largest resident memory of a process.
//!
//! `ru_maxrss` cannot tell it of a small process: exec(2) leaves in it what the program that started it had by then
//! (`exec_mmap` of the kernel), so that everything looks as large as this one. The process is held at its end instead
//! (ptrace(2), PTRACE_O_TRACEEXIT), where its memory is still there to be asked about.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Runs the command to its end, whatever it ends with; KiB.
pub(crate) fn largest(command: &mut Command) -> Result<u64> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: one system call between fork and exec, which touches no memory.
    unsafe { command.pre_exec(|| trace(libc::PTRACE_TRACEME, 0, 0)) };
    let child = command
        .spawn()
        .with_context(|| format!("starting {command:?}"))?;
    let pid = child.id().cast_signed();
    let mut begun = false;
    loop {
        let status = wait(pid)?;
        if !libc::WIFSTOPPED(status) {
            bail!("{command:?} ended before it could be asked for its memory");
        }
        // The first stop is that of exec; a later SIGTRAP carries an event above the signal.
        let signal = match (begun, status >> 16, libc::WSTOPSIG(status)) {
            (false, _, _) => {
                let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL;
                trace(libc::PTRACE_SETOPTIONS, pid, options)?;
                begun = true;
                0
            }
            (true, libc::PTRACE_EVENT_EXIT, _) => {
                let file = format!("/proc/{pid}/status");
                let status = std::fs::read_to_string(&file).context(file)?;
                trace(libc::PTRACE_CONT, pid, 0)?;
                wait(pid)?;
                return high_water(&status).context("no VmHWM: the process had no memory left");
            }
            (true, _, signal) => signal,
        };
        trace(libc::PTRACE_CONT, pid, signal)?;
    }
}

/// `VmHWM:      1234 kB`
fn high_water(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

fn trace(request: libc::c_uint, pid: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take numbers; none reads or writes memory of this process.
    let code = unsafe { libc::ptrace(request, pid, nowhere, libc::c_long::from(data)) };
    if code == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn wait(pid: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    // SAFETY: the place is ours.
    let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    if got != pid {
        return Err(io::Error::last_os_error());
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_kernel_is_read() {
        assert_eq!(high_water("Name:\tx\nVmHWM:\t    1234 kB\n"), Some(1234));
        assert_eq!(high_water("Name:\tx\n"), None);
    }

    /// What this process has at the time does not count; what the other takes does.
    #[test]
    fn the_memory_of_another_program_is_its_own() {
        let ballast = vec![1u8; 64 << 20];
        let small = largest(Command::new("true").env_clear()).expect("true");
        assert!(small < 32 << 10, "{small} KiB");
        let script = "x=$(head -c 40000000 /dev/zero | tr '\\0' x); : \"$x\"";
        let large = largest(Command::new("sh").args(["-c", script])).expect("sh");
        assert!(large > 32 << 10, "{large} KiB");
        drop(std::hint::black_box(ballast));
    }
}
