//! The config file: defaults for flags that would otherwise be typed each time.
//!
//! A flag stands above the file, `[devices.NAME]` above `[facts]`; NAME is any name of the device. Values are read by the same
//! code as those of the flags, and a key that does not exist is an error: a misspelt limit would otherwise be no limit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hugemr_core::host::Driver;
use hugemr_input::InputError;
use serde::{Deserialize, Deserializer};

use crate::args::{
    Budget, Command, FactArgs, LimitsArgs, MaybeKernel, Memlock, Size, parse_budget, parse_count,
    parse_device, parse_driver, parse_kernel, parse_length, parse_memlock,
};
use crate::device;
use crate::exit::Failure;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Config {
    device: Option<Name>,
    limits: Option<Name>,
    facts: Keys,
    devices: BTreeMap<Name, Keys>,
}

/// The name of a device or a file: no empty one, as a flag takes none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(String);

impl Name {
    fn device(&self) -> String {
        parse_device(&self.0).unwrap_or_else(|never| match never {})
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name.is_empty() {
            let why = "the name is empty (to name none, leave the line out)";
            return Err(serde::de::Error::custom(why));
        }
        Ok(Self(name))
    }
}

/// The keys of a table of facts.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    #[serde(deserialize_with = "size")]
    max_mr_size: Option<Size>,
    #[serde(deserialize_with = "count")]
    max_mr: Option<u64>,
    #[serde(deserialize_with = "budget")]
    budget: Option<Budget>,
    #[serde(deserialize_with = "kernel")]
    kernel: Option<MaybeKernel>,
    #[serde(deserialize_with = "driver")]
    driver: Option<Driver>,
    #[serde(deserialize_with = "memlock")]
    memlock: Option<Memlock>,
}

/// A text, or a number as its text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "it is neither a number nor a text")]
enum Word {
    Number(u64),
    Text(String),
}

fn word<'de, D: Deserializer<'de>, T>(
    from: D,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = match Word::deserialize(from)? {
        Word::Number(n) => n.to_string(),
        Word::Text(text) => text,
    };
    parse(&text).map(Some).map_err(serde::de::Error::custom)
}

macro_rules! readers {
    ($($name:ident: $kind:ty = $parse:expr;)*) => {$(
        fn $name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<$kind>, D::Error> {
            word(from, $parse)
        }
    )*};
}

readers! {
    size: Size = parse_length;
    count: u64 = parse_count;
    budget: Budget = parse_budget;
    kernel: MaybeKernel = parse_kernel;
    driver: Driver = parse_driver;
    memlock: Memlock = parse_memlock;
}

/// Whether a command takes anything of the file. One that does not works whatever is in it, above all one that gives something
/// back.
const fn takes_defaults(command: &Command) -> bool {
    match command {
        Command::Plan(_)
        | Command::Register(_)
        | Command::Doctor(_)
        | Command::Probe(_)
        | Command::Usage(_)
        | Command::Learn(_)
        | Command::Diagnose(_) => true,
        Command::Reserve(_)
        | Command::Release(_)
        | Command::Devices(_)
        | Command::Inspect(_)
        | Command::Replay(_)
        | Command::Man(_)
        | Command::Completions(_) => false,
    }
}

/// Reads the file, if there is one, and puts what it says under the flags, and the environment between them.
pub(crate) fn apply(named: Option<&Path>, command: &mut Command) -> Result<(), Failure> {
    if let Some(limits) = limits(command) {
        limits.or_environment();
    }
    if !takes_defaults(command) {
        return Ok(());
    }
    let Some((path, text)) = find(named)? else {
        return Ok(());
    };
    let config: Config = toml::from_str(&text).map_err(|error| {
        let place = hugemr_input::Place::of(&text, error.span());
        let line = text.lines().nth(place.line - 1).map(str::trim);
        let failure = Failure::usage(format_args!(
            "{}, {place}: {}",
            path.display(),
            hugemr_input::plain(error.message())
        ));
        match line {
            Some(line) => failure.with(line),
            None => failure,
        }
    })?;
    if let Some(limits) = limits(command) {
        place(limits, &config);
    }
    // Facts of another host are not about the devices of this one.
    let is_here = !matches!(command, Command::Doctor(c) if c.facts_file.is_some());
    let (device, facts) = match command {
        Command::Plan(c) => (&mut c.what.device, Some(&mut c.what.facts)),
        Command::Register(c) => (&mut c.what.device, Some(&mut c.what.facts)),
        Command::Doctor(c) => (&mut c.device, Some(&mut c.facts)),
        Command::Probe(c) => (&mut c.device, Some(&mut c.facts)),
        Command::Usage(c) => (&mut c.device, None),
        Command::Learn(c) => (&mut c.device, None),
        Command::Diagnose(c) => (&mut c.device, None),
        _ => return Ok(()),
    };
    if device.is_none() {
        *device = config.device.as_ref().map(Name::device);
    }
    if let Some(facts) = facts {
        facts.config = path;
        let only = || is_here.then(device::only).flatten();
        if let Some(keys) = of_device(&config, (device.as_deref(), &only), &facts.config)? {
            fill(facts, keys);
        }
        fill(facts, &config.facts);
    }
    Ok(())
}

/// The table of the device that counts, whether it has the device's name as it was typed, another one, or its key. Without a
/// name it is the `only` one.
fn of_device<'a>(
    config: &'a Config,
    (named, only): (Option<&str>, &dyn Fn() -> Option<String>),
    file: &Path,
) -> Result<Option<&'a Keys>, Failure> {
    // What is not needed is not looked for: that opens files and libraries.
    if config.devices.is_empty() {
        return Ok(None);
    }
    let Some(name) = named.map(str::to_owned).or_else(only) else {
        return Ok(None);
    };
    let key = device::key(&name);
    // A real device has one name, and no key of a simulated one.
    let is_mine = |table: &Name| {
        table.0 == name || (name.starts_with("sim:") && device::key(&table.device()) == key)
    };
    let mut tables = config.devices.iter().filter(|(table, _)| is_mine(table));
    let first = tables.next();
    if let (Some((first, _)), Some((second, _))) = (first, tables.next()) {
        return Err(Failure::usage(format_args!(
            "{}: [devices.{:?}] and [devices.{:?}] are the same device, {key}",
            file.display(),
            first.0,
            second.0
        ))
        .with("way out    keep one of them, with all that is known of it"));
    }
    Ok(first.map(|(_, keys)| keys))
}

/// Where a command takes the limits file.
fn limits(command: &mut Command) -> Option<&mut LimitsArgs> {
    Some(match command {
        Command::Plan(c) => &mut c.what.facts.limits,
        Command::Register(c) => &mut c.what.facts.limits,
        Command::Doctor(c) => &mut c.facts.limits,
        Command::Probe(c) => &mut c.facts.limits,
        Command::Usage(c) => &mut c.limits,
        Command::Learn(c) => &mut c.limits,
        Command::Diagnose(c) => &mut c.limits,
        _ => return None,
    })
}

fn place(limits: &mut LimitsArgs, config: &Config) {
    if limits.limits.is_none() {
        limits.limits = config.limits.as_ref().map(|name| PathBuf::from(&name.0));
    }
}

fn fill(facts: &mut FactArgs, keys: &Keys) {
    let configured = &mut facts.configured;
    let mut put = |flag, filled: bool| {
        if filled {
            configured.push(flag);
        }
    };
    put(
        "--max-mr-size",
        under(&mut facts.max_mr_size, keys.max_mr_size.as_ref()),
    );
    put("--max-mr", under(&mut facts.max_mr, keys.max_mr.as_ref()));
    put("--budget", under(&mut facts.budget, keys.budget.as_ref()));
    put("--kernel", under(&mut facts.kernel, keys.kernel.as_ref()));
    put("--driver", under(&mut facts.driver, keys.driver.as_ref()));
    put(
        "--memlock",
        under(&mut facts.memlock, keys.memlock.as_ref()),
    );
}

/// Puts a value where there is none, and says whether it did.
fn under<T: Clone>(to: &mut Option<T>, value: Option<&T>) -> bool {
    let empty = to.is_none() && value.is_some();
    if empty {
        *to = value.cloned();
    }
    empty
}

/// The file that counts, with its text. One that was named must be there.
fn find(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, Failure> {
    let mut places = vec!["/etc/hugemr/config.toml".into()];
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    if let Some(folder) = folder {
        places.insert(0, folder.join("hugemr/config.toml"));
    }
    if let Some(path) = named {
        places = vec![path.to_owned()];
    }
    for path in places {
        match hugemr_input::text(&path, hugemr_input::SETTINGS) {
            Ok(text) => return Ok(Some((path, text))),
            Err(error) if error.is_not_found() && named.is_none() => {}
            // The home of somebody else (`sudo -u`, setpriv): nobody has named it, and what it says is not for this user.
            Err(InputError::System(error))
                if named.is_none() && error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                crate::commands::remark(&format!(
                    "note: the config file {} cannot be read and is not used: {error}",
                    path.display()
                ));
            }
            Err(error) => {
                return Err(Failure::usage(format_args!(
                    "the config file {} cannot be read: {error}",
                    path.display()
                )));
            }
        }
    }
    Ok(None)
}
