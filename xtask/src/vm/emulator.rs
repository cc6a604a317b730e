//! The process that plays an eRDMA device for QEMU, and the log of what it saw.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::guest::OwnedChild;

/// The driver looks for a net device with the MAC that the device names.
pub(crate) const MAC: &str = "02:00:5e:10:00:01";

/// A running emulator, ended on drop.
#[derive(Debug)]
pub(crate) struct Emulator {
    child: OwnedChild,
    socket: PathBuf,
    control: PathBuf,
    events: PathBuf,
}

impl Emulator {
    /// Starts `program` and waits until it listens. Its logs are `dir/tag.events` and
    /// `dir/tag.emulator`.
    pub(crate) fn start(program: &Path, dir: &Path, tag: &str, arguments: &[&str]) -> Result<Self> {
        // Not in the cache: the path of a socket has 107 bytes at most.
        let of = |end: &str| {
            std::env::temp_dir().join(format!("hugemr-vm-{}.{end}", std::process::id()))
        };
        let (socket, control) = (of("sock"), of("control"));
        let events = dir.join(format!("{tag}.events"));
        fs::create_dir_all(dir)?;
        for old in [&socket, &control, &events] {
            super::cache::remove_tree(old)?;
        }
        let talk = dir.join(format!("{tag}.emulator"));
        let log = File::create(&talk).with_context(|| format!("create {}", talk.display()))?;
        let mut command = Command::new(program);
        command
            .arg("--socket")
            .arg(&socket)
            .arg("--control")
            .arg(&control)
            .args(["--mac", MAC])
            .args(arguments);
        command.arg("--events").arg(&events);
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut child = OwnedChild::spawn(&mut command)?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while !(socket.exists() && control.exists()) {
            if child.wait_until(Instant::now())? || Instant::now() > deadline {
                let said = fs::read_to_string(&talk).unwrap_or_default();
                bail!("{} does not listen: {}", program.display(), said.trim());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self {
            child,
            socket,
            control,
            events,
        })
    }

    /// What attaches the device to a guest, the net device beside it, and the device's control socket as the
    /// guest's second serial line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let socket = self.socket.display();
        let device =
            format!(r#"{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{socket}"}}}}"#);
        let control = format!("socket,id=control,path={}", self.control.display());
        let net = format!("virtio-net-pci,netdev=n0,mac={MAC},romfile=");
        [
            "-netdev",
            "user,id=n0,restrict=on",
            "-device",
            &net,
            "-device",
            &device,
            "-chardev",
            &control,
            "-serial",
            "chardev:control",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    /// Ends the emulator when its guest has gone, and reads what it saw.
    pub(crate) fn finish(mut self) -> Result<Vec<Event>> {
        if !self
            .child
            .wait_until(Instant::now() + Duration::from_secs(2))?
        {
            self.child.terminate();
            self.child
                .wait_until(Instant::now() + Duration::from_secs(5))?;
        }
        let text = fs::read_to_string(&self.events)
            .with_context(|| format!("read {}", self.events.display()))?;
        parse(&text)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // A missing socket file is what is wanted.
        for socket in [&self.socket, &self.control] {
            let _ = fs::remove_file(socket);
        }
    }
}

/// What the device saw, as far as the harness judges it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event {
    RegMr(RegMr),
    DeregMr(DeregMr),
    Reset {},
    #[serde(other)]
    Other,
}

/// A REG_MR as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct RegMr {
    /// The how manyth since the device started, refused ones included.
    pub(crate) n: u64,
    pub(crate) kind: String,
    pub(crate) key: u32,
    pub(crate) va: u64,
    pub(crate) len: u64,
    pub(crate) page_shift: u8,
    pub(crate) level: u8,
    pub(crate) entries: u64,
    pub(crate) used: u64,
    pub(crate) budget: u64,
    pub(crate) result: String,
    pub(crate) table_error: Option<String>,
    pub(crate) waiting: u64,
}

/// A DEREG_MR as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct DeregMr {
    pub(crate) key: u32,
    pub(crate) used: u64,
    pub(crate) result: String,
    pub(crate) waiting: u64,
}

fn parse(text: &str) -> Result<Vec<Event>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(n, line)| {
            serde_json::from_str(line).with_context(|| format!("event {}: {line}", n + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_and_unknown_ones_kept_as_such() {
        let text = r#"{"event":"start","schema":1}
{"event":"reg_mr","n":0,"key":256,"kind":"user","va":4096,"len":4096,"page_shift":12,"level":1,"entries":1,"used":1,"budget":9,"result":"ok","waiting":0}
{"event":"dereg_mr","key":256,"entries":1,"used":0,"budget":9,"result":"ok","waiting":0}
"#;
        let events = parse(text).expect("three lines");
        assert_eq!(events[0], Event::Other);
        let Event::RegMr(mr) = &events[1] else {
            panic!("{:?}", events[1])
        };
        assert_eq!(
            (mr.va, mr.entries, mr.table_error.as_deref()),
            (4096, 1, None)
        );
        assert!(parse("{").is_err());
    }
}
