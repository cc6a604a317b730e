//! The whole root of a guest as one archive in memory: busybox, the verbs stack, modules, ours.
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::cpio::Cpio;
use super::modules::Module;
use super::userland::Userland;

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A guest root being put together.
#[derive(Debug)]
pub(crate) struct Initramfs<'a> {
    userland: &'a Userland,
    cpio: Cpio,
}

impl<'a> Initramfs<'a> {
    /// busybox, the loader, `init`, and the verbs stack with the providers of our devices.
    pub(crate) fn new(userland: &'a Userland, init: &str) -> Result<Self> {
        let mut this = Self {
            userland,
            cpio: Cpio::default(),
        };
        for dir in ["dev", "proc", "sys", "tmp", "run", "root", LIBRARIES] {
            this.cpio.directory(dir);
        }
        this.cpio.symlink("lib", "usr/lib");
        this.cpio.file("init", 0o755, init.as_bytes());
        this.cpio.file(
            "etc/passwd",
            0o644,
            b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:\n",
        );
        this.cpio
            .file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
        this.copy("lib64/ld-linux-x86-64.so.2", &userland.loader())?;
        this.copy("bin/busybox", &userland.program("busybox")?)?;
        this.cpio.symlink("bin/sh", "busybox");
        // pthread_exit loads it at run time; no program names it.
        this.library(&userland.libraries().join("libgcc_s.so.1"))?;
        for program in ["ibv_devinfo", "rdma", "ip", "setpriv", "prlimit", "unshare"] {
            this.program(program, &userland.program(program)?)?;
        }
        for provider in ["rxe", "erdma"] {
            this.provider(provider)?;
        }
        Ok(this)
    }

    /// A program under /usr/local/bin with the libraries it needs.
    pub(crate) fn program(&mut self, name: &str, path: &Path) -> Result<()> {
        self.copy(&format!("usr/local/bin/{name}"), path)?;
        for library in self.userland.needed(path)? {
            self.library(&library)?;
        }
        Ok(())
    }

    /// Modules under /modules, with the load order of those that `init` loads.
    pub(crate) fn modules(&mut self, early: &[Module], late: &[Module]) {
        for module in early.iter().chain(late) {
            self.cpio
                .file(&format!("modules/{}.ko", module.name), 0o644, &module.image);
        }
        let order: String = early
            .iter()
            .map(|module| format!("{}\n", module.name))
            .collect();
        self.cpio.file("modules/order", 0o644, order.as_bytes());
    }

    /// A file of text under /t, where scripts and their input live.
    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.cpio.file(&format!("t/{name}"), 0o755, text.as_bytes());
    }

    /// Writes the archive, uncompressed: unpacking costs the emulated CPU more than reading.
    pub(crate) fn write(self, path: &Path) -> Result<()> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(path, self.cpio.finish()).with_context(|| format!("write {}", path.display()))
    }

    fn provider(&mut self, name: &str) -> Result<()> {
        let dir = self.userland.libraries().join("libibverbs");
        let prefix = format!("lib{name}-rdmav");
        let entries = fs::read_dir(&dir).with_context(|| format!("read {}", dir.display()))?;
        let paths: Vec<PathBuf> = entries.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
        let library = paths.into_iter().find(|path| {
            path.file_name()
                .is_some_and(|file| file.to_string_lossy().starts_with(&prefix))
        });
        let library = library.with_context(|| format!("no provider {name} in libibverbs"))?;
        let file = library
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        self.copy(&format!("{LIBRARIES}/libibverbs/{file}"), &library)?;
        for needed in self.userland.needed(&library)? {
            self.library(&needed)?;
        }
        let driver = format!("etc/libibverbs.d/{name}.driver");
        self.copy(&driver, &self.userland.root.join(&driver))
    }

    fn library(&mut self, path: &Path) -> Result<()> {
        let name = path
            .file_name()
            .context("a library without a name")?
            .to_string_lossy();
        self.copy(&format!("{LIBRARIES}/{name}"), path)
    }

    fn copy(&mut self, name: &str, path: &Path) -> Result<()> {
        if !self.cpio.contains(name) {
            let data = fs::read(path).with_context(|| format!("read {}", path.display()))?;
            self.cpio.file(name, 0o755, &data);
        }
        Ok(())
    }
}
