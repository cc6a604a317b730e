//! Kernel modules built out of tree: the unmodified `erdma` driver, which Debian's kernels leave
//! out, and a test module of our own.
//!
//! Sources, headers and compiler are Debian packages of the kernel's own release. The build runs in
//! a root of its own, so that this machine needs no compiler of that age and none is installed.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::cache::{Cache, output, remove_tree, unavailable, workspace};
use super::kernel::{Kernel, Version};
use super::packages::Apt;
use super::step::step;
use super::userland::{fingerprint, list_mark};

/// What a kernel build calls besides the compiler.
const TOOLS: &[&str] = &[
    "bash",
    "binutils",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "grep",
    "make",
    "mawk",
    "perl-base",
    "sed",
];
const ERDMA: &str = "drivers/infiniband/hw/erdma";
const SUMS: &str = "SHA256SUMS";
/// Our own module: read when it is built, because its licence is not that of this program.
const OLD_RULE_DIR: &str = "xtask/kmod";
const OLD_RULE: &[&str] = &["Kbuild", "hugemr_old_rule.c"];

/// The compiler, headers and sources for one kernel.
#[derive(Debug)]
pub(crate) struct Toolchain<'a> {
    cache: &'a Cache,
    version: Version,
    release: String,
    root: PathBuf,
    sources: PathBuf,
}

impl<'a> Toolchain<'a> {
    pub(crate) fn fetch(cache: &'a Cache, version: Version, kernel: &Kernel) -> Result<Self> {
        let release = kernel.release.clone();
        let label = version.label();
        let name = format!("build-{label}-{}", list_mark(TOOLS));
        let root = if cache.path(&name).exists() {
            cache.path(&name)
        } else {
            fetch_root(cache, version, &name, &release)?
        };
        let sources = format!("erdma-source-{label}");
        let sources = if cache.path(&sources).exists() {
            cache.path(&sources)
        } else {
            fetch_sources(cache, version, &sources, &release)?
        };
        Ok(Self {
            cache,
            version,
            release,
            root,
            sources,
        })
    }

    /// `erdma.ko`, from sources that the build has left as they came.
    pub(crate) fn erdma(&self) -> Result<PathBuf> {
        let name = format!("erdma-{}", self.release);
        let what = format!("module: build the unmodified erdma for {}", self.release);
        let dir = self.cache.once(&name, &what, |dir| {
            let work = self.work("erdma")?;
            let copied = Command::new("cp")
                .arg("-a")
                .arg(self.sources.join("erdma"))
                .arg(&work)
                .status();
            ensure!(
                copied.is_ok_and(|status| status.success()),
                "copy the sources of erdma"
            );
            self.make("erdma", &["CONFIG_INFINIBAND_ERDMA=m"])?;
            self.compare(&work)?;
            fs::copy(work.join("erdma.ko"), dir.join("erdma.ko"))?;
            Ok(())
        })?;
        Ok(dir.join("erdma.ko"))
    }

    /// Our module that puts the page-size rule of older kernels back (see `xtask/kmod`).
    pub(crate) fn old_rule(&self) -> Result<PathBuf> {
        let dir = workspace()?.join(OLD_RULE_DIR);
        let read = |file: &&str| fs::read(dir.join(file)).with_context(|| format!("read {file}"));
        let texts: Vec<Vec<u8>> = OLD_RULE.iter().map(read).collect::<Result<_>>()?;
        let parts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let name = format!("old-rule-{}-{:016x}", self.release, fingerprint(&parts));
        let what = format!("module: build hugemr_old_rule for {}", self.release);
        let dir = self.cache.once(&name, &what, |dir| {
            let work = self.work("old-rule")?;
            fs::create_dir_all(&work)?;
            for (file, text) in OLD_RULE.iter().zip(&texts) {
                fs::write(work.join(file), text)?;
            }
            self.make("old-rule", &[])?;
            fs::copy(
                work.join("hugemr_old_rule.ko"),
                dir.join("hugemr_old_rule.ko"),
            )?;
            Ok(())
        })?;
        Ok(dir.join("hugemr_old_rule.ko"))
    }

    /// One line for the reader: what the driver under test is made of.
    pub(crate) fn provenance(&self) -> Result<String> {
        let files = fs::read_to_string(self.sources.join(SUMS))?.lines().count();
        let release = &self.release;
        Ok(format!(
            "erdma for {release}: {files} source files as Debian ships them (sha256 equal)"
        ))
    }

    fn work(&self, name: &str) -> Result<PathBuf> {
        let work = self.root.join("build").join(name);
        remove_tree(&work)?;
        fs::create_dir_all(self.root.join("build"))?;
        Ok(work)
    }

    /// `make` in the root, with a /proc (objtool reads it) and the machine's /dev.
    fn make(&self, name: &str, more: &[&str]) -> Result<()> {
        // SAFETY: geteuid has no preconditions and cannot fail.
        let root_user = unsafe { libc::geteuid() } == 0;
        let mut command = Command::new("unshare");
        if !root_user {
            command.arg("--map-root-user");
        }
        let script = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
                      root=$0 && exec chroot \"$root\" /usr/bin/make \"$@\"";
        command
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                script,
            ])
            .arg(&self.root)
            .args([
                "-s",
                "-j2",
                "-C",
                &format!("/usr/src/linux-headers-{}", self.release),
            ])
            .arg(format!("M=/build/{name}"))
            .args(more)
            .arg("modules")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        output(&mut command).map(drop).map_err(|error| {
            let text = format!("{error:#}");
            if text.contains("unshare failed") || text.contains("mount:") {
                let way_out = "run as root, or allow user namespaces";
                return unavailable("a root to build kernel modules in", &text, way_out);
            }
            error
        })
    }

    fn compare(&self, work: &Path) -> Result<()> {
        let sums = self.sources.join(SUMS);
        let mut check = Command::new("sha256sum");
        output(
            check
                .current_dir(work)
                .args(["--check", "--strict", "--quiet"])
                .arg(&sums),
        )
        .with_context(|| format!("the build changed the sources for {}", self.version.label()))
        .map(drop)
    }
}

fn fetch_root(cache: &Cache, version: Version, name: &str, release: &str) -> Result<PathBuf> {
    let apt = Apt::open(cache, version.suites())?;
    let headers = version.newest(&apt, "headers")?;
    ensure!(
        headers == format!("linux-headers-{release}"),
        "the cached kernel is {release}, its suite has {headers} now: cargo xtask vm clean"
    );
    let depends = apt.depends(&headers)?;
    // Compiler and kbuild with all they need; the headers without: some name the whole kernel.
    let mut packages: Vec<&str> = TOOLS.to_vec();
    packages.extend(depends.iter().map(String::as_str).filter(|package| {
        package.starts_with("gcc-")
            || package.starts_with("linux-kbuild-")
            || package.starts_with("linux-compiler-")
    }));
    let mut alone: Vec<String> = depends
        .iter()
        .filter(|package| package.ends_with("-common"))
        .cloned()
        .collect();
    alone.push(headers.clone());
    let root = apt.closure_and(name, &packages, &alone)?;
    prepare_root(&root, release)?;
    Ok(root)
}

/// What packages do when they are installed, as far as a build needs it.
fn prepare_root(root: &Path, release: &str) -> Result<()> {
    for (link, target) in [("sh", "dash"), ("awk", "mawk")] {
        let link = root.join("usr/bin").join(link);
        if link.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(target, link)?;
        }
    }
    for dir in ["proc", "dev", "tmp", "build"] {
        fs::create_dir_all(root.join(dir))?;
    }
    // With a vmlinux beside the headers the build wants to write BTF, which needs one more program.
    let vmlinux = root.join(format!("usr/src/linux-headers-{release}/vmlinux"));
    remove_tree(&vmlinux)
}

fn fetch_sources(cache: &Cache, version: Version, name: &str, release: &str) -> Result<PathBuf> {
    let apt = Apt::open(cache, version.suites())?;
    let package = format!("linux-source-{}", version.label());
    let seen = apt.version(&package)?;
    let headers = apt.version(&format!("linux-headers-{release}"))?;
    ensure!(
        seen == headers,
        "{package} is {seen}, the headers are {headers}"
    );
    let packed = apt.packages(&format!("{package}-packed"), std::slice::from_ref(&package))?;
    let what = format!("module: take {ERDMA} out of {package} {seen}, with checksums");
    let sources = cache.once(name, &what, |dir| {
        let tar = packed.join(format!("usr/src/{package}.tar.xz"));
        let mut unpack = Command::new("tar");
        unpack
            .arg("-C")
            .arg(dir)
            .args(["--strip-components=4", "-xJf"])
            .arg(tar);
        output(unpack.arg(format!("{package}/{ERDMA}")))?;
        let sums = "find . -type f | LC_ALL=C sort | xargs sha256sum";
        let mut sum = Command::new("sh");
        let sums = output(sum.current_dir(dir.join("erdma")).args(["-c", sums]))?;
        ensure!(sums.lines().count() > 5, "{package} has no {ERDMA}");
        fs::write(dir.join(SUMS), sums)?;
        Ok(())
    })?;
    step("module: remove the packed kernel source", || {
        remove_tree(&packed)
    })?;
    Ok(sources)
}
