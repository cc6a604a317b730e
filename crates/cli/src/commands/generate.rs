//! Man pages and completions, from the arguments themselves.

use std::path::Path;

use clap::CommandFactory as _;
use clap_mangen::Man;
use hugemr_core::size::Count;

use crate::args::{Cli, ManCommand};
use crate::exit::{Ended, Exit, Failure};

pub(crate) fn man(command: &ManCommand) -> Ended {
    let pages = pages();
    if let Some(folder) = &command.to {
        return write(&pages, folder);
    }
    let wanted = command.command.as_deref().unwrap_or(NAME);
    let is_it = |name: &str| name == wanted || name.strip_prefix("hugemr-") == Some(wanted);
    let Some((_, page)) = pages.iter().find(|(name, _)| is_it(name)) else {
        let names = pages
            .iter()
            .filter_map(|(name, _)| name.strip_prefix("hugemr-"));
        let failure = Failure::usage(format_args!("{wanted:?} is no command of hugemr"));
        return Err(failure.with(format!(
            "commands: {}",
            names.collect::<Vec<_>>().join(", ")
        )));
    };
    super::say(String::from_utf8_lossy(&rendered(page)?).trim_end())?;
    Ok(Exit::Yes)
}

const NAME: &str = "hugemr";

/// The page of hugemr and those of all commands, by the names under which man(1) finds them.
fn pages() -> Vec<(String, Man)> {
    let mut all = Cli::command().disable_help_subcommand(true);
    all.build();
    let page = |name: String, command: &clap::Command| {
        let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
        let page = Man::new(command.clone()).title(name.clone()).source(source);
        (name, page)
    };
    let own = std::iter::once(page(NAME.to_owned(), &all));
    let commands = all.get_subcommands();
    own.chain(commands.map(|command| page(format!("{NAME}-{}", command.get_name()), command)))
        .collect()
}

fn rendered(page: &Man) -> Result<Vec<u8>, std::io::Error> {
    let mut text = Vec::new();
    page.render(&mut text)?;
    Ok(text)
}

/// All pages as files, as a package installs them.
fn write(pages: &[(String, Man)], folder: &Path) -> Ended {
    let failed = |path: &Path, error: std::io::Error| {
        Failure::system(format_args!("cannot write {}: {error}", path.display()))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, page) in pages {
        let path = folder.join(format!("{name}.1"));
        let written = rendered(page).and_then(|text| std::fs::write(&path, text));
        written.map_err(|error| failed(&path, error))?;
    }
    super::say(&format!(
        "{} written to {}",
        Count(pages.len() as u64, "page"),
        folder.display()
    ))?;
    Ok(Exit::Yes)
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    super::say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Yes)
}
