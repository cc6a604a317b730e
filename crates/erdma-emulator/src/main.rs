//! `erdma-emu`: an emulated eRDMA device that waits on a socket for QEMU.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use erdma_emulator::config::{Config, Mac};
use erdma_emulator::device::Device;
use erdma_emulator::events::EventLog;
use erdma_emulator::faults::Fault;
use erdma_emulator::vfio::server::Server;
use erdma_emulator::vfio::socket::Listener;

/// An emulated eRDMA PCI device for QEMU 10.1 and later (vfio-user).
///
/// Serves one virtual machine, then ends. Exit status: 0 when the machine went or a signal came, 1 when
/// something failed meanwhile, 2 for bad usage, 3 when the socket or a file could not be had.
#[derive(Parser)]
#[command(version, name = "erdma-emu")]
struct Args {
    /// Socket for QEMU: -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":PATH}}'.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Configuration (TOML); flags win over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// MAC address of the virtual machine's net device.
    #[arg(long)]
    mac: Option<Mac>,
    /// Page-table entries of all regions together.
    #[arg(long, value_name = "N")]
    entries: Option<u64>,
    /// log2 of the largest region.
    #[arg(long, value_name = "S")]
    mr_shift: Option<u8>,
    /// Blocks of 1024 queue pairs; the driver allows 2048 regions for each.
    #[arg(long, value_name = "N")]
    qp_blocks: Option<u16>,
    /// Capability flags, hexadecimal: 20 tables in levels, 08 doorbells on demand, 80 atomics.
    #[arg(long, value_name = "HEX", value_parser = hex8)]
    flags: Option<u8>,
    /// Firmware version, hexadecimal: 222 is 0.2.34.
    #[arg(long, value_name = "HEX", value_parser = hex32)]
    fw_version: Option<u32>,
    /// Check stamps after each registration.
    #[arg(long)]
    stamp: bool,
    /// Distance of stamped blocks in bytes.
    #[arg(long, value_name = "BYTES")]
    stamp_stride: Option<u64>,
    /// Most blocks checked of one region; of more, an even sample.
    #[arg(long, value_name = "N")]
    stamp_limit: Option<u64>,
    /// Stamps may be off by multiples of this (memory mapped again and again).
    #[arg(long, value_name = "BYTES")]
    stamp_period: Option<u64>,
    /// Refuse a registration whose length disagrees with its count of entries.
    #[arg(long)]
    refuse_wrong_length: bool,
    /// Something that goes wrong, such as refuse@3, drop@2..4, late=20s@1, budget=1000@5, refuse@1/dereg_mr.
    #[arg(long = "fault", value_name = "SPEC")]
    faults: Vec<Fault>,
    /// What the device saw: one line of JSON each, appended.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Socket for commands: status, budget N, fault SPEC, clear-faults, stamp KEY, quit, abort.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

fn hex8(text: &str) -> Result<u8, String> {
    hex32(text).and_then(|v| u8::try_from(v).map_err(|_| "more than 8 bits".into()))
}

fn hex32(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).map_err(|_| "no hexadecimal number".into())
}

impl Args {
    fn device(&self) -> anyhow::Result<Config> {
        let mut config = match &self.config {
            Some(path) => Config::from_file(path)?,
            None => Config::default(),
        };
        macro_rules! take {
            ($($flag:ident => $($field:ident).+),* $(,)?) => {
                $(if let Some(value) = self.$flag { config.$($field).+ = value; })*
            };
        }
        take!(
            mac => mac, entries => entries, mr_shift => mr_shift, qp_blocks => qp_blocks,
            flags => flags, fw_version => fw_version, stamp_stride => stamps.stride,
            stamp_limit => stamps.limit, stamp_period => stamps.period,
        );
        config.stamp |= self.stamp;
        config.refuse_wrong_length |= self.refuse_wrong_length;
        config.faults.extend(&self.faults);
        config.validate()?;
        Ok(config)
    }
}

struct Ready {
    server: Server,
    stop: UnixStream,
}

fn prepare(args: &Args, device: Device) -> anyhow::Result<Ready> {
    let (stop, signalled) = UnixStream::pair().context("cannot make a pipe for signals")?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let pipe = signalled
            .try_clone()
            .context("cannot make a pipe for signals")?;
        signal_hook::low_level::pipe::register(signal, pipe).context("cannot watch signals")?;
    }
    let log = match &args.events {
        None => EventLog::none(),
        Some(path) => {
            let file = File::options().create(true).append(true).open(path);
            EventLog::new(Box::new(
                file.with_context(|| format!("cannot open {}", path.display()))?,
            ))
        }
    };
    let control = args.control.as_deref().map(Listener::bind).transpose()?;
    let listener = Listener::bind(&args.socket)?;
    Ok(Ready {
        server: Server::new(listener, control, device, log),
        stop,
    })
}

fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "erdma-emu: {error:#}");
    ExitCode::from(code)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let config = match args.device() {
        Ok(config) => config,
        Err(error) => return fail(&error, 2),
    };
    let ready = match prepare(&args, Device::new(config)) {
        Ok(ready) => ready,
        Err(error) => return fail(&error, 3),
    };
    // Who started us waits for this line; if nobody reads it, the device serves all the same.
    let _ = writeln!(
        std::io::stdout(),
        "erdma-emu: listening on {}",
        args.socket.display()
    );
    let _ = std::io::stdout().flush();
    match ready.server.run(&ready.stop) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&error.into(), 1),
    }
}
