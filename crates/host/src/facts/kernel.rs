//! The kernel's and the driver's versions.

use hugemr_core::host::Driver;
use hugemr_core::version::KernelVersion;

use crate::root::Root;

/// The running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// As `uname -r` prints it; empty where not readable.
    pub release: String,
    /// As `uname -v` prints it; empty where not readable.
    pub build: String,
    /// `/proc/version_signature` (Ubuntu).
    pub signature: Option<String>,
    /// The upstream version behind it; `None` where a distribution hides it.
    pub upstream: Option<KernelVersion>,
}

impl Kernel {
    pub(super) fn read(root: &Root) -> Self {
        let text = |path| root.text(path).unwrap_or_default();
        let release = text("/proc/sys/kernel/osrelease");
        let build = text("/proc/sys/kernel/version");
        let signature = root.text("/proc/version_signature");
        let upstream = KernelVersion::upstream(&release, &build, signature.as_deref());
        Self {
            release,
            build,
            signature,
            upstream,
        }
    }
}

/// A text that may say which version of the driver is installed. None of them is the number in which the vendor
/// announces its fixes (that of the installer bundle), which can be read nowhere: shown raw, never believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionCandidate {
    /// Where it was found, for example `dpkg status`.
    pub source: &'static str,
    /// What is written there.
    pub text: String,
}

/// The eRDMA driver, as far as files tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverFacts {
    /// Whether the module is loaded (or built in with parameters).
    pub loaded: bool,
    /// In-tree or vendor's: the vendor's has the module parameter `compat_mode`, the in-tree one no parameter at all.
    /// The bundle version is never filled in here.
    pub kind: Driver,
    /// `compat_mode` of the vendor driver: `Some(true)` makes every MR remotely writable, whatever flags it has.
    pub compat_mode: Option<bool>,
    /// Whether the device has scattered tables (MTT_VA), from the vendor driver's debugfs.
    pub mtt_va: Option<bool>,
    /// Raw version texts.
    pub candidates: Vec<VersionCandidate>,
}

const MODULE: &str = "/sys/module/erdma";

impl DriverFacts {
    pub(super) fn read(root: &Root) -> Self {
        let loaded = root.exists(MODULE);
        let compat_mode = root.text(&format!("{MODULE}/parameters/compat_mode"));
        let parameters = root.names(&format!("{MODULE}/parameters"));
        let kind = if compat_mode.is_some() || parameters.iter().any(|p| p == "compat_mode") {
            Driver::Vendor(None)
        } else if loaded && parameters.is_empty() {
            Driver::InTree
        } else {
            Driver::Unknown
        };
        Self {
            loaded,
            kind,
            compat_mode: compat_mode.and_then(|text| match text.as_str() {
                "Y" | "y" | "1" => Some(true),
                "N" | "n" | "0" => Some(false),
                _ => None,
            }),
            mtt_va: mtt_va(root),
            candidates: candidates(root),
        }
    }
}

/// Bit 0x20 of the `ext_cap` line of `/sys/kernel/debug/erdma/BDF/cap` (vendor driver). `None` where no device shows
/// it, or where two devices differ.
fn mtt_va(root: &Root) -> Option<bool> {
    const DIR: &str = "/sys/kernel/debug/erdma";
    let mut seen = root.names(DIR).into_iter().filter_map(|bdf| {
        let text = root.text(&format!("{DIR}/{bdf}/cap"))?;
        let word = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("ext_cap"))?;
        let hex = word.trim_start_matches([':', ' ', '\t']).trim();
        let bits = u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok()?;
        Some(bits & 0x20 != 0)
    });
    let first = seen.next()?;
    seen.all(|other| other == first).then_some(first)
}

fn candidates(root: &Root) -> Vec<VersionCandidate> {
    let mut found = Vec::new();
    let mut add = |source, text: Option<String>| {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            found.push(VersionCandidate { source, text });
        }
    };
    add("module version", root.text(&format!("{MODULE}/version")));
    add(
        "module srcversion",
        root.text(&format!("{MODULE}/srcversion")),
    );
    add("dpkg status", dpkg_version(root, "erdma"));
    for version in root.names("/var/lib/dkms/erdma") {
        if version.starts_with(|c: char| c.is_ascii_digit()) {
            add("dkms", Some(version));
        }
    }
    found
}

/// Version of an installed package in `/var/lib/dpkg/status`.
fn dpkg_version(root: &Root, package: &str) -> Option<String> {
    let status = root.read("/var/lib/dpkg/status").ok()?;
    let entry = status.split("\n\n").find(|entry| {
        let mut lines = entry.lines();
        lines.next().and_then(|line| line.strip_prefix("Package: ")) == Some(package)
    })?;
    let installed = super::field(entry, "Status")?.ends_with(" installed");
    let version = super::field(entry, "Version")?;
    installed.then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    #[test]
    fn the_vendor_driver_is_known_by_its_parameter() {
        let tree = Tree::new();
        tree.file("/sys/module/erdma/parameters/compat_mode", "Y\n");
        tree.file("/sys/module/erdma/srcversion", "ABCDEF\n");
        tree.file("/var/lib/dkms/erdma/1.2.0/x", "");
        tree.file("/var/lib/dkms/erdma/original_module/x", "");
        tree.file(
            "/var/lib/dpkg/status",
            "Package: erdma-dev\nStatus: install ok installed\nVersion: 9\n\n\
             Package: erdma\nStatus: install ok installed\nVersion: 1.2.0-2\n\nPackage: z\n",
        );
        let driver = DriverFacts::read(&tree.root());
        assert_eq!(driver.kind, Driver::Vendor(None));
        assert_eq!(driver.compat_mode, Some(true));
        let texts: Vec<(&str, &str)> = driver
            .candidates
            .iter()
            .map(|c| (c.source, c.text.as_str()))
            .collect();
        assert_eq!(
            texts,
            [
                ("module srcversion", "ABCDEF"),
                ("dpkg status", "1.2.0-2"),
                ("dkms", "1.2.0")
            ]
        );
    }

    #[test]
    fn the_in_tree_driver_has_no_parameters() {
        let tree = Tree::new();
        tree.file("/sys/module/erdma/refcnt", "0");
        let driver = DriverFacts::read(&tree.root());
        assert_eq!((driver.kind, driver.loaded), (Driver::InTree, true));
        assert_eq!(driver.compat_mode, None);
        assert_eq!(DriverFacts::read(&Tree::new().root()).kind, Driver::Unknown);
    }

    #[test]
    fn mtt_va_is_believed_where_all_devices_agree() {
        let tree = Tree::new();
        let cap = "/sys/kernel/debug/erdma/0000:00:07.0/cap";
        tree.file(cap, "cap 0x1\next_cap 0x21\n");
        assert_eq!(mtt_va(&tree.root()), Some(true));
        tree.file("/sys/kernel/debug/erdma/0000:00:08.0/cap", "ext_cap 0x1\n");
        assert_eq!(mtt_va(&tree.root()), None);
        tree.file(cap, "ext_cap 0x0");
        assert_eq!(mtt_va(&tree.root()), Some(false));
    }

    #[test]
    fn debian_hides_the_version_in_the_build_line() {
        let tree = Tree::new();
        tree.file("/proc/sys/kernel/osrelease", "6.1.0-57-amd64\n");
        tree.file(
            "/proc/sys/kernel/version",
            "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-10-01)\n",
        );
        let kernel = Kernel::read(&tree.root());
        assert_eq!(kernel.upstream, Some(KernelVersion::new(6, 1, 192)));
    }
}
