//! The commands, each of which builds its arguments only when it is the one that was typed: all of them together have hundreds of
//! arguments, and building them would take longer than a plan.

use clap::{ArgMatches, Args as _, FromArgMatches, Subcommand};

use super::{
    CompletionsCommand, DevicesCommand, DiagnoseCommand, DoctorCommand, InspectCommand,
    LearnCommand, ManCommand, PlanCommand, ProbeCommand, RegisterCommand, ReleaseCommand,
    ReplayCommand, ReserveCommand, UsageCommand,
};

/// Declares the commands: variant, arguments, name, and what the help says of it.
macro_rules! commands {
    ($($variant:ident($args:ident), $name:literal, $about:literal;)*) => {
        #[derive(Debug)]
        pub(crate) enum Command {
            $(#[doc = $about] $variant($args),)*
        }

        impl FromArgMatches for Command {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Self::from_arg_matches_mut(&mut matches.clone())
            }

            fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
                let (name, mut matches) = matches.remove_subcommand().ok_or_else(no_command)?;
                match name.as_str() {
                    $($name => $args::from_arg_matches_mut(&mut matches).map(Self::$variant),)*
                    _ => Err(no_command()),
                }
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        impl Subcommand for Command {
            fn augment_subcommands(command: clap::Command) -> clap::Command {
                command.subcommand_required(true).arg_required_else_help(true)
                    $(.subcommand(
                        clap::Command::new($name)
                            .about($about)
                            // What the struct of the arguments says of itself is not for the help.
                            .defer(|command| $args::augment_args(command).about($about).long_about(None)),
                    ))*
            }

            fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
                Self::augment_subcommands(command)
            }

            fn has_subcommand(name: &str) -> bool {
                [$($name),*].contains(&name)
            }
        }
    };
}

commands! {
    Plan(PlanCommand), "plan", "Say whether a size fits, as how many MRs on which pages, and what would have to change";
    Register(RegisterCommand), "register", "Map, populate and register memory, show the keys, and release it again";
    Reserve(ReserveCommand), "reserve", "Raise the pools of huge pages until so much is free, by exactly what is missing";
    Release(ReleaseCommand), "release", "Give back the huge pages that hugemr has added, and no others";
    Devices(DevicesCommand), "devices", "List RDMA devices, or say why there are none; --simulated lists the simulated ones";
    Diagnose(DiagnoseCommand), "diagnose", "Explain why a registration failed: an errno and what is known -> ranked causes";
    Doctor(DoctorCommand), "doctor", "Say what stands in the way on this host, in order of harm, and what mends it";
    Inspect(InspectCommand), "inspect", "Show the mappings of a process, what backs them, and what MRs over them would cost";
    Probe(ProbeCommand), "probe", "Find the limits of a device by trying: table entries, MRs, large pages; and save them";
    Learn(LearnCommand), "learn", "Narrow what is known of a device by a report: what was registered, and what was refused";
    Usage(UsageCommand), "usage", "Show who holds MRs, how many bytes are pinned, and what is left of the table";
    Replay(ReplayCommand), "replay", "More: run cases from a file (JSON Lines) through the code of the commands, and compare";
    Man(ManCommand), "man", "More: print a man page, or write all of them";
    Completions(CompletionsCommand), "completions", "More: print shell completions";
}

impl Command {
    /// The device that was named, by the flag or else by the config file.
    pub(crate) fn device(&self) -> Option<&str> {
        let device = match self {
            Self::Plan(command) => &command.what.device,
            Self::Register(command) => &command.what.device,
            Self::Doctor(command) => &command.device,
            Self::Probe(command) => &command.device,
            Self::Usage(command) => &command.device,
            Self::Learn(command) => &command.device,
            Self::Diagnose(command) => &command.device,
            _ => return None,
        };
        device.as_deref()
    }
}

fn no_command() -> clap::Error {
    let kind = clap::error::ErrorKind::MissingSubcommand;
    clap::Error::raw(kind, "a command is needed; see hugemr --help")
}
