//! What the library pretends, from a few lines of text.
//!
//! ```text
//! list = ENOSYS                     # or another errno, or `empty`
//! fork = 2                          # what ibv_is_fork_initialized answers
//! device erdma_0 sim=ecs.r8a.32xlarge entries=1000 open=EACCES reg.3=EIO
//! ```
//! Lines end at a newline or `;`, `#` begins a comment. The text is that of `$FAKE_VERBS`, else that of the file
//! `<this library>.conf` (so that copies of the library in one process differ), else one device of the main profile.

use std::time::Duration;

use hugemr_core::backend::Verb;
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::size::PageSize;
use hugemr_sim::{DefaultLayout, Faults, Overrides};

/// Where nothing is said.
pub const DEFAULT: &str = "device erdma_0 sim=ecs.r8a.32xlarge";

/// What the list answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListAnswer {
    /// The devices.
    #[default]
    Devices,
    /// No device, no error.
    Empty,
    /// Null, with this errno.
    Fails(Errno),
}

/// How packets would travel, which decides how a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand or `RoCE`.
    Ib,
    /// iWARP: no connection without `rdma_cm`.
    Iwarp,
}

/// What happens to data on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// It arrives.
    #[default]
    Good,
    /// QPs cannot be connected (`ibv_modify_qp` to RTR: EINVAL).
    Refuses,
    /// Connections are made, and nothing arrives (`IBV_WC_RETRY_EXC_ERR`).
    Silent,
    /// The first byte of everything that is written remotely arrives with one bit changed.
    Flips,
    /// A write completes and changes nothing.
    Loses,
    /// It arrives, and the far end reports failures of its own on the same queue.
    Noisy,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    pub name: String,
    pub sim: String,
    pub overrides: Overrides,
    pub transport: Transport,
    /// InfiniBand link layer rather than Ethernet.
    pub infiniband: bool,
    pub port_active: bool,
    pub wire: Wire,
    pub open: Option<Errno>,
    pub query: Option<Errno>,
    pub pd: Option<Errno>,
    pub close: Option<Errno>,
    pub cq: Option<Errno>,
    pub qp: Option<Errno>,
    /// The work request (from 1, since the library was loaded) that ends with `IBV_WC_RETRY_EXC_ERR`, undone.
    pub break_at: Option<u64>,
    /// Last byte of the node GUID.
    pub guid: u8,
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub list: ListAnswer,
    pub fork: Option<u32>,
    pub devices: Vec<DeviceConfig>,
}

impl Config {
    /// Reads the text.
    ///
    /// # Errors
    /// What is wrong, with the line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for line in text.split(['\n', ';']) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            config
                .line(line)
                .map_err(|why| format!("{line:?}: {why}"))?;
        }
        Ok(config)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(device) = line.strip_prefix("device ") {
            let number = u8::try_from(self.devices.len()).map_err(|_| "too many devices")?;
            self.devices.push(DeviceConfig::parse(device, number)?);
            return Ok(());
        }
        let (key, value) = line
            .split_once('=')
            .ok_or("neither device nor key = value")?;
        let value = value.trim();
        match key.trim() {
            "list" if value == "empty" => self.list = ListAnswer::Empty,
            "list" => self.list = ListAnswer::Fails(errno(value)?),
            "fork" => self.fork = Some(number(value)?),
            other => return Err(format!("{other:?} is not known")),
        }
        Ok(())
    }
}

impl DeviceConfig {
    fn parse(text: &str, guid: u8) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut device = Self {
            name: words.next().ok_or("a device needs a name")?.to_owned(),
            sim: "verbs".to_owned(),
            overrides: Overrides::default(),
            transport: Transport::Ib,
            infiniband: false,
            port_active: true,
            wire: Wire::default(),
            open: None,
            query: None,
            pd: None,
            close: None,
            cq: None,
            qp: None,
            break_at: None,
            guid,
        };
        let mut faults = Faults::default();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?}"))?;
            device
                .set(key, value, &mut faults)
                .map_err(|why| format!("{word}: {why}"))?;
        }
        device.overrides.faults = Some(faults);
        Ok(device)
    }

    fn set(&mut self, key: &str, value: &str, faults: &mut Faults) -> Result<(), String> {
        let given = |value| Limit::exact(value, Source::new(Kind::Given, "fake-verbs"));
        match key {
            "sim" => self.sim = value.to_owned(),
            "entries" => self.overrides.entries = Some(given(number(value)?)),
            "max_mr" => self.overrides.max_mr = Some(given(number(value)?)),
            "max_mr_size" => self.overrides.max_mr_size = Some(given(number(value)?)),
            "memlock" => self.overrides.memlock = Some(number(value)?),
            "page" => {
                let page = PageSize::new(number(value)?).map_err(|error| error.to_string())?;
                self.overrides.memory = Some(DefaultLayout::scattered(page));
            }
            "transport" => {
                self.transport = match value {
                    "ib" => Transport::Ib,
                    "iwarp" => Transport::Iwarp,
                    _ => return Err("ib or iwarp".to_owned()),
                }
            }
            "link" => self.infiniband = value == "infiniband",
            "port" => self.port_active = value != "down",
            "wire" => {
                self.wire = match value {
                    "good" => Wire::Good,
                    "refuses" => Wire::Refuses,
                    "silent" => Wire::Silent,
                    "flips" => Wire::Flips,
                    "loses" => Wire::Loses,
                    "noisy" => Wire::Noisy,
                    _ => return Err("good, refuses, silent, flips, loses or noisy".to_owned()),
                }
            }
            "open" => self.open = Some(errno(value)?),
            "query" => self.query = Some(errno(value)?),
            "pd" => self.pd = Some(errno(value)?),
            "close" => self.close = Some(errno(value)?),
            "cq" => self.cq = Some(errno(value)?),
            "qp" => self.qp = Some(errno(value)?),
            "break_at" => self.break_at = Some(number(value)?),
            "reg_us" => {
                let delay = Duration::from_micros(number(value)?);
                *faults = std::mem::take(faults).reg_delay(delay);
            }
            _ => {
                let (verb, calls) = key.split_once('.').ok_or("not known")?;
                let verb = match verb {
                    "reg" => Verb::RegMr,
                    "dereg" => Verb::DeregMr,
                    _ => return Err("not known".to_owned()),
                };
                let old = std::mem::take(faults);
                *faults = match calls.strip_suffix('+') {
                    Some(first) => old.fail_from(verb, number(first)?, errno(value)?),
                    None => old.fail(verb, number(calls)?, errno(value)?),
                };
            }
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn errno(text: &str) -> Result<Errno, String> {
    Errno::parse(text).ok_or_else(|| format!("{text:?} is no errno"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read() {
        let text = "list = ENOSYS # why not\nfork=1; device a sim=efa entries=7 open=EACCES wire=flips\n\
                    device b transport=iwarp reg.3=EIO dereg.1+=EBUSY";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.list, ListAnswer::Fails(Errno::ENOSYS));
        assert_eq!(config.fork, Some(1));
        let [a, b] = config.devices.as_slice() else {
            panic!("{config:?}")
        };
        assert_eq!((a.name.as_str(), a.sim.as_str()), ("a", "efa"));
        assert_eq!(a.open, Some(Errno::EACCES));
        assert_eq!(a.wire, Wire::Flips);
        assert_eq!(b.transport, Transport::Iwarp);
        let faults = Faults::default()
            .fail(Verb::RegMr, 3, Errno::EIO)
            .fail_from(Verb::DeregMr, 1, Errno::EBUSY);
        assert_eq!(b.overrides.faults, Some(faults));
    }

    #[test]
    fn a_slip_is_refused_with_its_line() {
        for text in [
            "what",
            "list=EWHAT",
            "device",
            "device a b",
            "device a x=1",
            "device a reg.x=EIO",
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(
                error.contains(text.split('=').next().unwrap().trim()),
                "{error}"
            );
        }
    }

    #[test]
    fn the_default_is_one_device() {
        assert_eq!(Config::parse(DEFAULT).unwrap().devices.len(), 1);
    }
}
