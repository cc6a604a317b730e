//! Debian's kernels: fetched, unpacked, and made bootable without a boot loader.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::cache::{Cache, unavailable};
use super::packages::{Apt, Suites, need_programs};

/// The kernels that guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V6_1,
    V6_12,
    V7_3,
}

impl Version {
    pub(crate) const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::V7_3];

    /// As written on the command line.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_3 => "7.3",
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let found = Self::ALL
            .into_iter()
            .find(|version| version.label() == text);
        found.with_context(|| format!("kernel {text:?} is not one of 6.1, 6.12, 7.3"))
    }

    /// The suite whose newest kernel has this version.
    pub(crate) fn suites(self) -> Suites {
        match self {
            Self::V6_1 | Self::V6_12 => Suites::Bookworm,
            Self::V7_3 => Suites::TrixieBackports,
        }
    }

    /// The newest package `linux-KIND-*` of this version, whose name ends with the release.
    pub(crate) fn newest(self, apt: &Apt<'_>, kind: &str) -> Result<String> {
        let meta = match self {
            Self::V6_12 => format!("linux-{kind}-6.12-amd64"),
            Self::V6_1 | Self::V7_3 => format!("linux-{kind}-amd64"),
        };
        let prefix = format!("linux-{kind}-");
        let found = apt
            .depends(&meta)?
            .into_iter()
            .find(|name| name.starts_with(&prefix));
        let package = found.with_context(|| format!("{meta} names no {prefix}*"))?;
        let release = &package[prefix.len()..];
        if !release.starts_with(&format!("{}.", self.label())) {
            let what = format!("kernel {}", self.label());
            let why = format!("its suite has {release} now");
            let way_out = "keep the cache of an earlier run, or move the harness to that version";
            return Err(unavailable(&what, &why, way_out));
        }
        Ok(package)
    }
}

/// An unpacked kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// For example `6.1.0-57-amd64`.
    pub(crate) release: String,
    /// The uncompressed ELF image: booted by PVH it saves 5 s of decompression in emulation.
    pub(crate) vmlinux: PathBuf,
    /// `lib/modules/RELEASE`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    pub(crate) fn fetch(cache: &Cache, version: Version) -> Result<Self> {
        let label = version.label();
        let name = format!("kernel-{label}");
        let root = if cache.path(&name).exists() {
            cache.path(&name)
        } else {
            let apt = Apt::open(cache, version.suites())?;
            apt.packages(&name, &image_packages(&apt, version)?)?
        };
        let all = root.join("usr/lib/modules");
        let release = only_entry(&all)?;
        let modules = all.join(&release);
        let boot = cache.once(
            &format!("vmlinux-{label}"),
            &format!("kernel {release}: extract the uncompressed image"),
            |dir| {
                let image = [
                    root.join(format!("boot/vmlinuz-{release}")),
                    modules.join("vmlinuz"),
                ];
                let image = image.iter().find(|path| path.exists());
                let image = image.with_context(|| format!("no vmlinuz in {name}"))?;
                extract_vmlinux(image, dir)
            },
        )?;
        Ok(Self {
            release,
            vmlinux: boot.join("vmlinux"),
            modules,
        })
    }
}

/// The image package and, where the image is split over several packages, all of its parts.
fn image_packages(apt: &Apt<'_>, version: Version) -> Result<Vec<String>> {
    let image = version.newest(apt, "image")?;
    let release = &image["linux-image-".len()..];
    let parts = apt
        .depends(&image)?
        .into_iter()
        .filter(|name| name.ends_with(release));
    let mut packages: Vec<String> = parts.collect();
    packages.push(image.clone());
    packages.sort();
    packages.dedup();
    Ok(packages)
}

pub(crate) fn only_entry(dir: &Path) -> Result<String> {
    let entries = fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))?;
    let names: Vec<_> = entries.map(|e| Ok(e?.file_name())).collect::<Result<_>>()?;
    let [name] = names.as_slice() else {
        bail!("{} entries in {}", names.len(), dir.display())
    };
    Ok(name.to_string_lossy().into_owned())
}

/// Where the compressed kernel lies in a bzImage (the x86 boot protocol, header fields
/// `setup_sects`, `payload_offset`, `payload_length`).
fn payload(image: &[u8]) -> Result<&[u8]> {
    ensure!(image.get(0x202..0x206) == Some(b"HdrS"), "not a bzImage");
    let field = |at: usize| -> Result<usize> {
        let bytes = image.get(at..at + 4).context("a bzImage without header")?;
        Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    let sectors = match image[0x1f1] {
        0 => 4,
        n => usize::from(n),
    };
    let start = (sectors + 1) * 512 + field(0x248)?;
    let length = field(0x24c)?;
    image
        .get(start..start + length)
        .context("the payload lies outside the bzImage")
}

fn extract_vmlinux(image: &Path, dir: &Path) -> Result<()> {
    let image = fs::read(image).with_context(|| format!("read {}", image.display()))?;
    let payload = payload(&image)?;
    let (program, args): (&str, &[&str]) = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => ("xz", &["-dc", "--single-stream"]),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", &["-dc"]),
        [0x1f, 0x8b, ..] => ("gzip", &["-dc"]),
        [0x02, 0x21, ..] => ("lz4", &["-dc"]),
        other => bail!("unknown compression {:02x?}", &other[..other.len().min(8)]),
    };
    let package = if program == "xz" { "xz-utils" } else { program };
    need_programs(&[(program, package)])?;
    let packed = dir.join("payload");
    fs::write(&packed, payload)?;
    let vmlinux = dir.join("vmlinux");
    // The payload ends with the plain size in 4 bytes. The programs complain about them after
    // all has been written, so the size is the judge and not the exit status.
    Command::new(program)
        .args(args)
        .stdin(File::open(&packed)?)
        .stdout(File::create(&vmlinux)?)
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("start {program}"))?;
    fs::remove_file(&packed)?;
    let plain = payload.last_chunk::<4>().context("an empty payload")?;
    let (seen, wanted) = (
        fs::metadata(&vmlinux)?.len(),
        u64::from(u32::from_le_bytes(*plain)),
    );
    ensure!(
        seen == wanted,
        "{program} gave {seen} bytes of the kernel instead of {wanted}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse_as_they_print() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.label()).expect("own label"), version);
        }
        assert!(Version::parse("6.8").is_err());
    }

    #[test]
    fn payload_is_found_and_bounded() {
        let mut image = vec![0_u8; 4096];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&8_u32.to_le_bytes());
        image[1040..1048].copy_from_slice(b"payload!");
        assert_eq!(payload(&image).expect("in range"), b"payload!");
        image[0x24c..0x250].copy_from_slice(&8000_u32.to_le_bytes());
        assert!(payload(&image).is_err());
        assert!(payload(&[0; 100]).is_err());
    }
}
