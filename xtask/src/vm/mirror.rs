//! Where Debian comes from: the archives that this machine's own apt uses, and their keys.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::cache::{output, unavailable};

/// Where the machine's own apt gets Debian from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mirrors {
    debian: String,
    security: Option<String>,
}

impl Mirrors {
    pub(crate) fn of_this_machine() -> Result<Self> {
        let text = output(Command::new("apt-get").env("LC_ALL", "C").args([
            "indextargets",
            "--format",
            "$(REPO_URI) $(LABEL)",
            "Created-By: Packages",
        ]))?;
        Self::parse(&text).ok_or_else(|| {
            let why = "this machine's apt knows no Debian archive (or its lists were never read)";
            unavailable(
                "Debian packages",
                why,
                "run `apt-get update` on Debian 12 or newer",
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let of = |label: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
            pairs
                .find(|pair| pair.1.trim() == label)
                .map(|pair| pair.0.to_owned())
        };
        Some(Self {
            debian: of("Debian")?,
            security: of("Debian-Security"),
        })
    }

    /// The archive that holds a suite.
    pub(crate) fn of(&self, suite: &str) -> Result<&str> {
        if !suite.ends_with("-security") {
            return Ok(&self.debian);
        }
        self.security
            .as_deref()
            .context("this machine's apt has no Debian security archive")
    }
}

/// The keys that Debian's archives are signed with.
pub(crate) fn keyring() -> Result<PathBuf> {
    let candidates = ["debian-archive-keyring.gpg", "debian-archive-keyring.pgp"];
    let mut paths = candidates
        .iter()
        .map(|name| Path::new("/usr/share/keyrings").join(name));
    paths.find(|path| path.exists()).ok_or_else(|| {
        let why = "no Debian archive keyring in /usr/share/keyrings";
        unavailable(
            "Debian packages",
            why,
            "apt-get install debian-archive-keyring",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_are_found_by_label() {
        let text = "http://mirror.test/other/ Other\nhttp://mirror.test/debian/ Debian\n\
                    http://mirror.test/security/ Debian-Security\n";
        let mirrors = Mirrors::parse(text).expect("has Debian");
        assert_eq!(
            mirrors.of("trixie-backports").expect("main"),
            "http://mirror.test/debian/"
        );
        assert_eq!(
            mirrors.of("bookworm-security").expect("sec"),
            "http://mirror.test/security/"
        );
        assert_eq!(Mirrors::parse("http://mirror.test/u/ Ubuntu\n"), None);
    }
}
