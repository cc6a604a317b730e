//! The tests once more, by a user who may do nothing: no root, no capability, no network.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::groups::is_root;
use super::libtest::{self, Binary, Counts};
use super::{Ci, Outcome};
use crate::tree::{root, target_dir};

/// Arguments: folder to hide, folder to keep visible in it (both empty where not needed), then the command.
/// What hides a folder that the user may not enter lives in a mount namespace of this command alone.
const SCRIPT: &str = r#"
set -eu
hide=$1 keep=$2
shift 2
if [ -n "$hide" ]; then
    stage=$(mktemp -d)
    mount --bind "$keep" "$stage"
    mount -t tmpfs -o mode=0755 none "$hide"
    mkdir -p "$keep"
    mount --bind "$stage" "$keep"
    umount "$stage"
    rmdir "$stage"
    cd "$CARGO_MANIFEST_DIR"
fi
exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all \
    --no-new-privs env HOME=/nonexistent TMPDIR=/tmp "$@"
"#;

pub(super) fn step(ci: &mut Ci) -> Result<Outcome> {
    if !is_root() {
        return Ok(Outcome::Skipped(
            "this is no root: the step `test` was such a run".into(),
        ));
    }
    let binaries = libtest::binaries()?;
    open_scratch_folder()?;
    let jail = Jail::new()?;
    let (mut total, mut errors) = (Counts::default(), Vec::new());
    for binary in &binaries {
        let run = libtest::run(&mut jail.command(binary))?;
        total.skipped += run.counts.skipped;
        match ci.count(run, &binary.name) {
            Ok(counts) => total.passed += counts.passed,
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    if errors.is_empty() {
        let Counts {
            passed, skipped, ..
        } = total;
        let network = if jail.no_network {
            "without network"
        } else {
            "WITH network (unshare is refused)"
        };
        Ok(Outcome::Done(format!(
            "{passed} passed, {skipped} ignored (see groups), {network}"
        )))
    } else {
        bail!("{}", errors.join("; "))
    }
}

/// Cargo gives integration tests a folder to write to, which we built as root.
fn open_scratch_folder() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = target_dir().join("tmp");
    if folder.is_dir() {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o1777))?;
    }
    Ok(())
}

struct Jail {
    no_network: bool,
    hide: PathBuf,
    keep: PathBuf,
}

impl Jail {
    fn new() -> Result<Self> {
        let unshare = |kind: &str| quiet(Command::new("unshare").args([kind, "true"]));
        let mut jail = Self {
            no_network: unshare("--net"),
            hide: PathBuf::new(),
            keep: PathBuf::new(),
        };
        let root = root();
        if !jail.reaches(&root) {
            let Some(closed) = closed_folder(&root) else {
                bail!("user 65534 cannot read {}", root.display());
            };
            if !unshare("--mount") {
                bail!(
                    "user 65534 cannot enter {}, and unshare is refused",
                    closed.display()
                );
            }
            println!(
                "{} is closed to others: the tests see the workspace by a mount of their own",
                closed.display()
            );
            (jail.hide, jail.keep) = (closed.to_path_buf(), root.clone());
            if !jail.reaches(&root) {
                bail!("user 65534 cannot read {}", root.display());
            }
        }
        Ok(jail)
    }

    fn reaches(&self, root: &Path) -> bool {
        let file = root.join("Cargo.toml");
        quiet(&mut self.wrap(root, &["cat".as_ref(), file.as_ref()]))
    }

    fn command(&self, binary: &Binary) -> Command {
        self.wrap(&binary.package_dir, &[binary.path.as_ref()])
    }

    fn wrap(&self, folder: &Path, args: &[&std::ffi::OsStr]) -> Command {
        let hides = !self.hide.as_os_str().is_empty();
        let mut command = Command::new("env");
        if self.no_network || hides {
            command.arg("unshare");
            command
                .args(self.no_network.then_some("--net"))
                .args(hides.then_some("--mount"));
        }
        command
            .args(["sh", "-c", SCRIPT, "as-nobody"])
            .arg(&self.hide)
            .arg(&self.keep)
            .args(args);
        command
            .current_dir(folder)
            .env("CARGO_MANIFEST_DIR", folder);
        command
    }
}

/// The outermost folder on the way to `path` that others may not enter.
fn closed_folder(path: &Path) -> Option<&Path> {
    use std::os::unix::fs::PermissionsExt;
    let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
    ancestors.reverse();
    ancestors.into_iter().find(|folder| {
        folder
            .metadata()
            .is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0)
    })
}

fn quiet(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
