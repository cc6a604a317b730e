//! Which kernel modules a guest needs, and the order in which they load.
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// A module as it goes into the guest.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: String,
    pub(crate) image: Vec<u8>,
}

/// The modules of one unpacked kernel, and those built for it out of tree.
#[derive(Debug)]
pub(crate) struct Modules {
    files: HashMap<String, PathBuf>,
    builtin: HashSet<String>,
}

impl Modules {
    /// `dir` is `lib/modules/RELEASE`.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let mut files = HashMap::new();
        collect(&dir.join("kernel"), &mut files)?;
        let list = fs::read_to_string(dir.join("modules.builtin"))
            .with_context(|| format!("read modules.builtin of {}", dir.display()))?;
        let builtin = list
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self { files, builtin })
    }

    /// Adds a module built out of tree.
    pub(crate) fn add(&mut self, file: &Path) -> Result<()> {
        let name = module_name(file).with_context(|| format!("{} is no module", file.display()))?;
        self.files.insert(name, file.to_path_buf());
        Ok(())
    }

    /// The wanted modules and all that they depend on, in load order. A name with `?` in front
    /// may be missing: kernels differ in what they split off or build in.
    pub(crate) fn load_order(&self, wanted: &[&str]) -> Result<Vec<Module>> {
        let mut images = HashMap::new();
        let mut names = Vec::new();
        for want in wanted {
            let name = want.trim_start_matches('?');
            let known = self.files.contains_key(name);
            if known {
                names.push(name.to_owned());
            } else if !self.builtin.contains(name) && !want.starts_with('?') {
                bail!("this kernel has no module {name}");
            }
        }
        let order = order(&names, &mut |name| {
            if self.builtin.contains(name) && !self.files.contains_key(name) {
                return Ok(None);
            }
            let file = self
                .files
                .get(name)
                .with_context(|| format!("no module {name}"))?;
            let image = read_module(file)?;
            let depends = depends(&image);
            images.insert(name.to_owned(), image);
            Ok(Some(depends))
        })?;
        let with_image = order.into_iter().map(|name| {
            let image = images.remove(&name).context("an ordered module was read")?;
            Ok(Module { name, image })
        });
        with_image.collect()
    }
}

/// Depth first, each module after what it depends on. `depends` gives `None` for a built-in one.
fn order(
    wanted: &[String],
    depends: &mut dyn FnMut(&str) -> Result<Option<Vec<String>>>,
) -> Result<Vec<String>> {
    fn visit(
        name: &str,
        depends: &mut dyn FnMut(&str) -> Result<Option<Vec<String>>>,
        open: &mut Vec<String>,
        seen: &mut HashSet<String>,
        order: &mut Vec<String>,
    ) -> Result<()> {
        if open.iter().any(|module| module == name) {
            bail!(
                "modules depend on each other: {} -> {name}",
                open.join(" -> ")
            );
        }
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let Some(needs) = depends(name)? else {
            return Ok(());
        };
        open.push(name.to_owned());
        for need in &needs {
            visit(need, depends, open, seen, order).with_context(|| format!("load {name}"))?;
        }
        open.pop();
        order.push(name.to_owned());
        Ok(())
    }
    let (mut open, mut seen, mut done) = (Vec::new(), HashSet::new(), Vec::new());
    for name in wanted {
        visit(name, depends, &mut open, &mut seen, &mut done)?;
    }
    Ok(done)
}

fn collect(dir: &Path, files: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// `x/ib-core.ko.xz` -> `ib_core`: file names and dependency lists mix `-` and `_`.
fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let stem = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"]
        .iter()
        .find_map(|e| file.strip_suffix(e))?;
    Some(stem.replace('-', "_"))
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|ext| ext.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).with_context(|| format!("read {}", path.display())),
    };
    let run = Command::new(program).arg("-dc").arg(path).output();
    let run = run.with_context(|| format!("start {program}"))?;
    if !run.status.success() {
        bail!("{program} cannot read {}: {}", path.display(), run.status);
    }
    Ok(run.stdout)
}

/// The `depends=` entry of `.modinfo`: strings that end with 0, one after the other.
fn depends(image: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = image.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = image[at + KEY.len()..]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names
        .split(',')
        .filter(|n| !n.is_empty())
        .map(|n| n.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(graph: &[(&str, &[&str])], wanted: &[&str], expected: &[&str]) {
        let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let order = order(&wanted, &mut |name| {
            let found = graph
                .iter()
                .find(|node| node.0 == name)
                .context("unknown")?;
            Ok(Some(
                found.1.iter().map(|need| (*need).to_owned()).collect(),
            ))
        });
        assert_eq!(order.expect("no cycle"), expected);
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let graph: &[(&str, &[&str])] = &[
            ("rxe", &["uverbs", "core"]),
            ("uverbs", &["core"]),
            ("core", &[]),
            ("dummy", &[]),
        ];
        check(
            graph,
            &["dummy", "rxe", "core"],
            &["dummy", "core", "uverbs", "rxe"],
        );
    }

    #[test]
    fn built_in_modules_are_left_out() {
        let order = order(&["a".into()], &mut |name| {
            Ok((name == "a").then(|| vec!["built_in".to_owned()]))
        });
        assert_eq!(order.expect("no cycle"), ["a"]);
    }

    #[test]
    fn a_cycle_is_an_error() {
        let error = order(&["a".into()], &mut |name| {
            Ok(Some(vec![if name == "a" {
                "b".into()
            } else {
                "a".into()
            }]))
        });
        let error = error.expect_err("a cycle");
        assert!(format!("{error:#}").contains("a -> b -> a"), "{error:#}");
    }

    #[test]
    fn names_and_depends() {
        assert_eq!(
            module_name(Path::new("a/ib-core.ko.xz")).as_deref(),
            Some("ib_core")
        );
        assert_eq!(
            module_name(Path::new("kernel/erdma.ko")).as_deref(),
            Some("erdma")
        );
        assert_eq!(module_name(Path::new("README")), None);
        assert_eq!(
            depends(b"license=GPL\0depends=ib-core,x\0name=y\0"),
            ["ib_core", "x"]
        );
        assert_eq!(depends(b"license=GPL\0depends=\0"), Vec::<String>::new());
        assert_eq!(depends(b""), Vec::<String>::new());
    }
}
