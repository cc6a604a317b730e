//! Debian packages, fetched with the machine's own apt and unpacked privately.
//!
//! Nothing of this is installed: a private apt state with an empty list of installed packages
//! resolves whole closures, `dpkg-deb` unpacks them into a folder of the cache. (Installing QEMU
//! with apt would remove a `qemu-utils` of another version from the machine.)
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::cache::{Cache, have, output, remove_tree, unavailable};
use super::mirror::{Mirrors, keyring};
use super::step::step;

/// A set of suites as a private apt sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suites {
    /// Debian 12 with its security updates.
    Bookworm,
    /// Debian 13, with the newer packages of its backports preferred.
    TrixieBackports,
}

impl Suites {
    fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::TrixieBackports => "trixie-backports",
        }
    }

    fn list(self) -> &'static [&'static str] {
        match self {
            Self::Bookworm => &["bookworm", "bookworm-security"],
            Self::TrixieBackports => &["trixie", "trixie-backports"],
        }
    }
}

/// apt over some suites of Debian, with lists and state of its own.
#[derive(Debug)]
pub(crate) struct Apt<'a> {
    cache: &'a Cache,
    suites: Suites,
    conf: PathBuf,
}

impl<'a> Apt<'a> {
    /// Writes the private configuration and fetches the lists, once.
    pub(crate) fn open(cache: &'a Cache, suites: Suites) -> Result<Self> {
        for program in ["apt-get", "apt-cache", "dpkg-deb", "tar"] {
            if !have(program) {
                let way_out = "run on Debian (12 or newer), a container of it will do";
                return Err(unavailable(
                    "Debian packages",
                    &format!("no {program} here"),
                    way_out,
                ));
            }
        }
        let dir = cache.path(format!("apt/{}", suites.name()));
        let conf = dir.join("apt.conf");
        let apt = Self {
            cache,
            suites,
            conf,
        };
        if dir.join("ready").exists() {
            // Its paths are absolute, and a cache can be moved.
            apt.configure(&dir)?;
        } else {
            step(
                &format!("packages: read the lists of {}", suites.list().join(", ")),
                || apt.prepare(&dir),
            )?;
        }
        Ok(apt)
    }

    fn prepare(&self, dir: &Path) -> Result<()> {
        remove_tree(dir)?;
        for sub in ["lists/partial", "state", "cache"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        fs::write(dir.join("state/status"), "")?;
        let keyring = keyring()?;
        let mirrors = Mirrors::of_this_machine()?;
        let sources: Result<String> = self
            .suites
            .list()
            .iter()
            .map(|suite| {
                let uri = mirrors.of(suite)?;
                Ok(format!(
                    "deb [signed-by={}] {uri} {suite} main\n",
                    keyring.display()
                ))
            })
            .collect();
        fs::write(dir.join("sources.list"), sources?)?;
        self.configure(dir)?;
        let mut update = self.command("apt-get");
        let update = update.args(["-qq", "-o", "APT::Update::Error-Mode=any", "update"]);
        output(update).map_err(|error| self.refused(&error))?;
        fs::write(dir.join("ready"), "")?;
        Ok(())
    }

    fn configure(&self, dir: &Path) -> Result<()> {
        let mut conf = format!(
            "Dir::Etc::sourcelist \"{d}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::State \"{d}/state\";\nDir::State::Lists \"{d}/lists\";\n\
             Dir::State::status \"{d}/state/status\";\nDir::Cache \"{d}/cache\";\n\
             APT::Install-Recommends \"false\";\nAPT::Sandbox::User \"root\";\n\
             Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n",
            d = dir.display()
        );
        if self.suites.name().ends_with("-backports") {
            conf += &format!("APT::Default-Release \"{}\";\n", self.suites.name());
        }
        fs::write(&self.conf, conf)?;
        Ok(())
    }

    /// Packages with all that they depend on, unpacked in one folder of the cache.
    pub(crate) fn closure(&self, name: &str, packages: &[&str]) -> Result<PathBuf> {
        self.closure_and(name, packages, &[])
    }

    /// The same, with some packages more whose dependencies are left out.
    pub(crate) fn closure_and(
        &self,
        name: &str,
        packages: &[&str],
        alone: &[String],
    ) -> Result<PathBuf> {
        let what = format!(
            "packages: {} with dependencies ({})",
            packages.join(" "),
            name
        );
        self.cache.once(name, &what, |root| {
            let debs = self.archives(name)?;
            if !alone.is_empty() {
                self.download(&debs, alone)?;
            }
            let mut command = self.command("apt-get");
            command
                .arg("-o")
                .arg(format!("Dir::Cache::archives={}", debs.display()));
            command.args([
                "-qq",
                "-y",
                "--no-install-recommends",
                "--download-only",
                "install",
            ]);
            output(command.args(packages)).map_err(|error| self.refused(&error))?;
            unpack_all(&debs, root)
        })
    }

    /// Just these packages, unpacked in one folder of the cache.
    pub(crate) fn packages(&self, name: &str, packages: &[String]) -> Result<PathBuf> {
        let what = format!("packages: {} ({name})", packages.join(" "));
        self.cache.once(name, &what, |root| {
            let debs = self.archives(name)?;
            self.download(&debs, packages)?;
            unpack_all(&debs, root)
        })
    }

    fn download(&self, debs: &Path, packages: &[String]) -> Result<()> {
        let mut command = self.command("apt-get");
        command
            .current_dir(debs)
            .args(["-qq", "download"])
            .args(packages);
        output(&mut command)
            .map(drop)
            .map_err(|error| self.refused(&error))
    }

    /// The packages that `package` depends on directly.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let text = output(
            self.command("apt-cache")
                .args(["depends", "--important", package]),
        )
        .map_err(|error| self.refused(&error))?;
        Ok(parse_depends(&text))
    }

    /// The version that a fetch would take.
    pub(crate) fn version(&self, package: &str) -> Result<String> {
        let text = output(self.command("apt-cache").args(["policy", package]))?;
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("Candidate:"));
        let version = line.map(str::trim).filter(|version| *version != "(none)");
        version.map(str::to_owned).with_context(|| {
            format!(
                "no candidate for package {package} in {}",
                self.suites.list().join(", ")
            )
        })
    }

    fn archives(&self, name: &str) -> Result<PathBuf> {
        let debs = self.cache.path(format!("debs/{name}"));
        fs::create_dir_all(debs.join("partial"))?;
        Ok(debs)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.conf).env("LC_ALL", "C");
        command
    }

    fn refused(&self, error: &anyhow::Error) -> anyhow::Error {
        unavailable(
            &format!("packages of {}", self.suites.list().join(", ")),
            &format!("{error:#}"),
            "check the network and the machine's apt sources, then run again \
             (what has been fetched is kept)",
        )
    }
}

fn parse_depends(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_once("Depends: ").map(|pair| pair.1))
        .map(|name| name.trim().trim_matches(['<', '>']).to_owned())
        .collect()
}

/// Unpacks every package of a folder into one root with merged /usr.
fn unpack_all(debs: &Path, root: &Path) -> Result<()> {
    for dir in ["bin", "sbin", "lib", "lib64"] {
        fs::create_dir_all(root.join("usr").join(dir))?;
        if !root.join(dir).exists() {
            std::os::unix::fs::symlink(format!("usr/{dir}"), root.join(dir))?;
        }
    }
    for entry in fs::read_dir(debs)? {
        let deb = entry?.path();
        if deb.extension().is_some_and(|ext| ext == "deb") {
            unpack(&deb, root).with_context(|| format!("unpack {}", deb.display()))?;
        }
    }
    // The unpacked tree is what is used; the archives would double the size of the cache.
    remove_tree(debs)
}

fn unpack(deb: &Path, root: &Path) -> Result<()> {
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let tar = reader.stdout.take().context("dpkg-deb without output")?;
    // Links of the merged /usr are followed, not replaced by the folders in the archive.
    let unpacked = Command::new("tar")
        .args([
            "-x",
            "--no-same-owner",
            "--keep-directory-symlink",
            "--no-overwrite-dir",
            "-C",
        ])
        .arg(root)
        .args(["-f", "-"])
        .stdin(tar)
        .status()?;
    let read = reader.wait()?;
    if !read.success() || !unpacked.success() {
        bail!("dpkg-deb {read}, tar {unpacked}");
    }
    Ok(())
}

/// Build programs that a step needs on the machine itself: installed only where missing.
pub(crate) fn need_programs(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<_> = programs
        .iter()
        .filter(|(program, _)| !have(program))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    step(
        &format!("packages: install {} on this machine", names.join(" ")),
        || {
            let mut install = Command::new("apt-get");
            install
                .args(["-qq", "-y", "--no-install-recommends", "install"])
                .args(&names);
            output(install.env("DEBIAN_FRONTEND", "noninteractive")).map_err(|error| {
                let way_out = format!("as root: apt-get install {}", names.join(" "));
                unavailable(&names.join(", "), &format!("{error:#}"), &way_out)
            })
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depends_are_parsed() {
        let text = "linux-image-amd64\n  Depends: linux-image-6.1.0-1-amd64\n  PreDepends: <x>\n";
        assert_eq!(parse_depends(text), ["linux-image-6.1.0-1-amd64", "x"]);
    }
}
