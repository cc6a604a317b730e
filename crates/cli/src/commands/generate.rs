//! Man page and completions, from the arguments themselves.

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::exit::{Ended, Exit};

pub(crate) fn man() -> Ended {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    super::say(String::from_utf8_lossy(&page).trim_end())?;
    Ok(Exit::Yes)
}

pub(crate) fn completions(shell: clap_complete::Shell) -> Ended {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "hugemr", &mut script);
    super::say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Yes)
}
