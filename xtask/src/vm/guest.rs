//! One run of a guest: QEMU, serial log, time limit, exit status.
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::kernel::Kernel;
use super::qemu::Qemu;

/// What makes a boot in emulation quick: each of these was measured.
/// * `clearcpuid=rep_good` and, on the CPU, no erms/fsrm: TCG runs `rep stosb` byte by byte;
/// * `init_on_alloc=0`: reserving huge pages would clear them twice;
/// * the rest skips self tests and waits.
const APPEND: &str = "console=ttyS0 quiet loglevel=1 panic=-1 nokaslr mitigations=off \
    init_on_alloc=0 clearcpuid=rep_good cryptomgr.notests random.trust_cpu=on \
    initcall_blacklist=crypto_kdf108_init,load_system_certificate_list";
/// Saves the making of all trace events, and leaves `kprobe_events` out.
const NO_KPROBE_EVENTS: &str = ",init_kprobe_trace";
/// A word of a guest's command line: it needs them. (The kernel leaves words with a dot to a module.)
const KPROBE_EVENTS: &str = "guest.kprobes";
const CPU: &str = "max,erms=off,fsrm=off";

/// A guest to run.
#[derive(Debug)]
pub(crate) struct Guest<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) kernel: &'a Kernel,
    pub(crate) initramfs: &'a Path,
    pub(crate) memory_mib: u32,
    /// RAM in a shared memfd, which a device process can map.
    pub(crate) shared_memory: bool,
    pub(crate) append: &'a str,
    pub(crate) arguments: &'a [String],
    pub(crate) log: PathBuf,
    pub(crate) limit: Duration,
}

/// How a guest ended.
#[derive(Debug)]
pub(crate) struct End {
    /// The serial console, without carriage returns.
    pub(crate) log: String,
    /// What the guest's script returned; `None` where it never came to its end.
    pub(crate) status: Option<i32>,
    pub(crate) timed_out: bool,
    pub(crate) seconds: f64,
}

impl Guest<'_> {
    /// Boots the guest and waits for its end.
    pub(crate) fn run(&self) -> Result<End> {
        let start = Instant::now();
        let log = File::create(&self.log)
            .with_context(|| format!("create the guest log {}", self.log.display()))?;
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut child = OwnedChild::spawn(&mut command)?;
        let timed_out = !child.wait_until(start + self.limit)?;
        drop(child);
        let text = fs::read(&self.log)?;
        let text = String::from_utf8_lossy(&text).replace('\r', "");
        let status = exit_status(&text);
        Ok(End {
            log: text,
            status,
            timed_out,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn command(&self) -> Command {
        let needs_probes = self.append.split(' ').any(|word| word == KPROBE_EVENTS);
        let probes = if needs_probes { "" } else { NO_KPROBE_EVENTS };
        let mut command = self.qemu.command();
        if self.shared_memory {
            let size = self.memory_mib;
            command.args(["-M", "q35,memory-backend=ram", "-object"]);
            command.arg(format!("memory-backend-memfd,id=ram,size={size}M,share=on"));
        } else {
            command.args(["-M", "q35"]);
        }
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", CPU, "-smp", "1"])
            .args([
                "-m",
                &self.memory_mib.to_string(),
                "-nodefaults",
                "-no-user-config",
            ])
            .args([
                "-no-reboot",
                "-display",
                "none",
                "-serial",
                "stdio",
                "-kernel",
            ])
            .arg(&self.kernel.vmlinux)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", &format!("{APPEND}{probes} {}", self.append)])
            .args(self.arguments);
        command
    }
}

impl End {
    /// One line for the reader: how long, and how it ended.
    pub(crate) fn summary(&self) -> String {
        let end = match (self.timed_out, self.status) {
            (true, _) => "killed at the time limit".to_owned(),
            (_, Some(status)) => format!("script ended with {status}"),
            (_, None) => "ended before its script did".to_owned(),
        };
        format!("guest ran {:.1} s, {end}", self.seconds)
    }
}

/// The last `VMRC=N` of the log, printed by the guest's init.
fn exit_status(log: &str) -> Option<i32> {
    log.lines()
        .filter_map(|line| line.strip_prefix("VMRC=")?.trim().parse().ok())
        .next_back()
}

/// A child that never outlives the harness: killed on drop, and by the kernel should we be killed.
#[derive(Debug)]
pub(crate) struct OwnedChild(Child);

impl OwnedChild {
    pub(crate) fn spawn(command: &mut Command) -> Result<Self> {
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        unsafe {
            command.pre_exec(
                || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                },
            );
        }
        let child = command
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self(child))
    }

    /// `false` where it still runs at `deadline`.
    pub(crate) fn wait_until(&mut self, deadline: Instant) -> Result<bool> {
        while self.0.try_wait()?.is_none() {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(true)
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        if let Ok(id) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: the child is ours and has not been waited for, so the number is still its own.
            unsafe { libc::kill(id, libc::SIGTERM) };
        }
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // Both fail only for a child that has ended and been waited for, which is the aim.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_status_is_the_last_one() {
        assert_eq!(exit_status("x\nVMRC=1\nVMRC=0\n"), Some(0));
        assert_eq!(exit_status("| VMRC=0\nKernel panic\n"), None);
    }

    #[test]
    fn a_child_is_killed_at_its_deadline() {
        let mut child = OwnedChild::spawn(Command::new("sleep").arg("60")).expect("sleep starts");
        let start = Instant::now();
        assert!(
            !child
                .wait_until(start + Duration::from_millis(50))
                .expect("waits")
        );
        drop(child);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
