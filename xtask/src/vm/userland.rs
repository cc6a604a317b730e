//! What runs in a guest besides the kernel: Debian's programs, unpacked privately, and our own.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::cache::{Cache, output, unavailable};
use super::packages::{Apt, Suites, need_programs};

const PACKAGES: &[&str] = &[
    "busybox-static",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libgcc-s1",
    "libibverbs-dev",
    "librdmacm1",
    "util-linux",
];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// An unpacked root with programs and libraries for guests.
#[derive(Debug)]
pub(crate) struct Userland {
    pub(crate) root: PathBuf,
}

impl Userland {
    /// From the oldest release whose C library is not older than this machine's: programs built
    /// here must run there.
    pub(crate) fn fetch(cache: &Cache) -> Result<Self> {
        let (suites, name) = match host_glibc()? {
            (2, ..=36) => (Suites::Bookworm, "userland-12"),
            (2, ..=41) => (Suites::TrixieBackports, "userland-13"),
            (major, minor) => {
                let why = format!("this machine's C library {major}.{minor} is newer than its own");
                return Err(unavailable(
                    "a guest userland",
                    &why,
                    "run on Debian 12 or 13",
                ));
            }
        };
        let name = format!("{name}-{}", list_mark(PACKAGES));
        let root = if cache.path(&name).exists() {
            cache.path(&name)
        } else {
            Apt::open(cache, suites)?.closure(&name, PACKAGES)?
        };
        Ok(Self { root })
    }

    /// A program of the userland by name.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let candidates = ["usr/bin", "usr/sbin"].map(|dir| self.root.join(dir).join(name));
        let found = candidates.into_iter().find(|path| path.exists());
        found.with_context(|| format!("no program {name} in {}", self.root.display()))
    }

    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join(LIBRARIES)
    }

    pub(crate) fn loader(&self) -> PathBuf {
        self.libraries().join(LOADER)
    }

    /// The shared libraries that a program or library needs, found in this userland.
    pub(crate) fn needed(&self, file: &Path) -> Result<Vec<PathBuf>> {
        if is_static(file)? {
            return Ok(Vec::new());
        }
        let mut list = Command::new(self.loader());
        list.arg("--library-path")
            .arg(self.libraries())
            .arg("--list")
            .arg(file);
        let text = output(list.env_remove("LD_LIBRARY_PATH"))?;
        parse_list(&text).with_context(|| format!("libraries of {}", file.display()))
    }

    /// Compiles one C file against this userland's libibverbs.
    pub(crate) fn compile(&self, cache: &Cache, name: &str, source: &str) -> Result<PathBuf> {
        need_programs(&[("cc", "gcc")])?;
        let stamp = format!("bin/{name}-{:016x}", fingerprint(&[source.as_bytes()]));
        let dir = cache.once(&stamp, &format!("userland: compile {name}"), |dir| {
            let file = dir.join(format!("{name}.c"));
            fs::write(&file, source)?;
            let mut cc = Command::new("cc");
            cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(dir.join(name))
                .arg(&file);
            cc.arg("-I")
                .arg(self.root.join("usr/include"))
                .arg("-L")
                .arg(self.libraries());
            cc.arg(format!("-Wl,-rpath-link,{}", self.libraries().display()))
                .arg("-libverbs");
            output(&mut cc).map(drop)
        })?;
        Ok(dir.join(name))
    }
}

/// Not a cryptographic hash: only tells whether a cached result belongs to these bytes.
pub(crate) fn fingerprint(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.iter().flat_map(|part| part.iter().chain(&[0])) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// A short mark of a list of packages: a changed list makes a new folder in the cache.
pub(crate) fn list_mark(packages: &[&str]) -> String {
    let parts: Vec<&[u8]> = packages.iter().map(|package| package.as_bytes()).collect();
    format!("{:08x}", fingerprint(&parts) >> 32)
}

fn is_static(file: &Path) -> Result<bool> {
    let image = fs::read(file).with_context(|| format!("read {}", file.display()))?;
    if !image.starts_with(b"\x7fELF") {
        return Ok(true); // a script
    }
    // A dynamic program names its loader; a library has none but is named *.so*.
    let library = file
        .file_name()
        .is_some_and(|name| name.to_string_lossy().contains(".so"));
    let names_loader = image
        .windows(LOADER.len())
        .any(|window| window == LOADER.as_bytes());
    Ok(!library && !names_loader)
}

fn parse_list(text: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some((name, path)) = line.trim().split_once(" => ") {
            let path = path.split(" (").next().unwrap_or_default().trim();
            if path == "not found" {
                bail!("{name} not found");
            }
            // "ld-linux... => ..." is the loader itself, which every guest has.
            if !path.ends_with(LOADER) {
                found.push(PathBuf::from(path));
            }
        }
    }
    Ok(found)
}

fn host_glibc() -> Result<(u32, u32)> {
    let text = output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let version = text
        .trim()
        .strip_prefix("glibc ")
        .and_then(|v| v.split_once('.'));
    let (major, minor) = version.with_context(|| format!("C library version {text:?}"))?;
    Ok((major.parse()?, minor.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_output_is_parsed() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /r/lib/libc.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 => /r/lib/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            parse_list(text).expect("all found"),
            [PathBuf::from("/r/lib/libc.so.6")]
        );
        assert!(parse_list("\tlibx.so => not found\n").is_err());
    }

    #[test]
    fn fingerprints_tell_parts_apart() {
        assert_ne!(fingerprint(&[b"ab", b"c"]), fingerprint(&[b"a", b"bc"]));
        assert_eq!(fingerprint(&[b"ab"]), fingerprint(&[b"ab"]));
    }
}
