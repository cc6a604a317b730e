//! The source tree: where it is, and the text files in it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tidy::Source;

/// Folders that hold what was built, fetched or found, not what was written.
const NOT_SOURCE: &[&str] = &[".git", "target", "corpus", "artifacts", "coverage"];

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    own.parent().map_or(own.clone(), Path::to_path_buf)
}

/// Where cargo puts what it builds for this workspace.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that started us.
pub(crate) fn cargo() -> std::process::Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(program);
    command.current_dir(root());
    command
}

/// All text files, by path from the root with `/` between folders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
    /// The Rust files among them, taken apart when first asked for.
    sources: OnceCell<BTreeMap<String, Source>>,
}

impl Tree {
    /// Reads the tree below `root`. Files that are not UTF-8 are left out.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, root)?;
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) -> Result<()> {
        for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            // In a linked worktree `.git` is a file.
            if NOT_SOURCE.iter().any(|skip| entry.file_name() == *skip) {
                continue;
            }
            if kind.is_dir() {
                self.read_folder(root, &path)?;
            } else if kind.is_file() {
                let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
                if let (Ok(text), Ok(below)) = (String::from_utf8(bytes), path.strip_prefix(root)) {
                    self.files
                        .insert(below.to_string_lossy().into_owned(), text);
                }
            }
        }
        Ok(())
    }

    /// Path and text of every file, in order of paths.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Path and source of every Rust file.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, &Source)> {
        let take_apart = || {
            let rust = self.files.iter().filter(|(path, _)| path.ends_with(".rs"));
            rust.map(|(path, text)| (path.clone(), Source::new(text)))
                .collect()
        };
        let sources: &BTreeMap<String, Source> = self.sources.get_or_init(take_apart);
        sources.iter().map(|(path, source)| (path.as_str(), source))
    }

    /// The text of one file.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }
}

#[cfg(test)]
impl<const N: usize> From<[(&str, &str); N]> for Tree {
    fn from(files: [(&str, &str); N]) -> Self {
        let own = |(path, text): (&str, &str)| (path.to_owned(), text.to_owned());
        Self {
            files: files.into_iter().map(own).collect(),
            ..Self::default()
        }
    }
}
