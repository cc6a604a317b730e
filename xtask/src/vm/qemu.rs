//! QEMU out of a private root, started with that root's own loader and libraries.
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::cache::{Cache, output, unavailable};
use super::packages::{Apt, Suites};

/// A QEMU of the cache.
#[derive(Debug)]
pub(crate) struct Qemu {
    root: PathBuf,
}

impl Qemu {
    /// QEMU 7.2 of Debian 12: small, enough for a software device in the guest.
    pub(crate) fn small(cache: &Cache) -> Result<Self> {
        Self::fetch(cache, "qemu-7.2", Suites::Bookworm)
    }

    /// QEMU 10.1 or newer: has `vfio-user-pci`, which attaches an emulated device of ours.
    pub(crate) fn with_vfio_user(cache: &Cache) -> Result<Self> {
        let qemu = Self::fetch(cache, "qemu-11", Suites::TrixieBackports)?;
        let mark = cache.path("qemu-11.checked");
        if !mark.exists() {
            let devices = output(qemu.command().args(["-device", "help"]))?;
            if !devices.contains("vfio-user-pci") {
                let why = "the QEMU of trixie-backports has no vfio-user-pci";
                return Err(unavailable(
                    "QEMU >= 10.1",
                    why,
                    "use a mirror with QEMU >= 10.1",
                ));
            }
            std::fs::write(mark, "")?;
        }
        Ok(qemu)
    }

    fn fetch(cache: &Cache, name: &str, suites: Suites) -> Result<Self> {
        let fresh = !cache.path(name).exists();
        if fresh {
            Apt::open(cache, suites)?.closure(name, &["qemu-system-x86"])?;
        }
        let qemu = Self {
            root: cache.path(name),
        };
        if fresh {
            let version = output(qemu.command().arg("--version"))
                .map_err(|e| unavailable("QEMU", &format!("{e:#}"), "cargo xtask vm clean"))?;
            let line = version.lines().next().unwrap_or_default();
            ensure!(
                line.starts_with("QEMU emulator"),
                "unexpected version line {line:?}"
            );
            println!("vm: {name} is {line}");
        }
        Ok(qemu)
    }

    /// The command without arguments of its machine.
    pub(crate) fn command(&self) -> Command {
        let lib = self.root.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(lib.join("ld-linux-x86-64.so.2"));
        command
            .arg("--library-path")
            .arg(format!("{0}:{0}/pulseaudio", lib.display()))
            .args(["--argv0", "qemu-system-x86_64"])
            .arg(self.root.join("usr/bin/qemu-system-x86_64"))
            .env("QEMU_MODULE_DIR", lib.join("qemu"))
            .env_remove("LD_LIBRARY_PATH");
        for data in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            command.arg("-L").arg(self.root.join(data));
        }
        command
    }
}
