//! The loop: one thread, which waits for the virtual machine, for commands on the control socket, for a signal
//! and for the next late answer.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::inbox::{Inbox, ReceiveError, Received};
use super::session::Session;
use super::socket::Listener;
use crate::control::{self, Then};
use crate::device::Device;
use crate::events::{Event, EventLog, Totals};

/// Messages handled before the other sockets get their turn.
const MESSAGES_A_TURN: usize = 256;
/// Most peers on the control socket at once.
const MAX_CONTROL: usize = 16;
/// How long a peer may keep us from writing.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The virtual machine went.
    Disconnected,
    /// A signal, or `quit` on the control socket.
    Stopped,
}

/// Why the loop could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The peer does not speak the protocol, or its socket failed.
    #[error("lost the virtual machine")]
    Peer(#[from] ReceiveError),
    /// A reply could not be written.
    #[error("cannot write to the virtual machine")]
    Reply(#[source] io::Error),
    /// The system refused.
    #[error("cannot wait for sockets")]
    Wait(#[source] io::Error),
    /// The events could not be written.
    #[error("cannot write the events")]
    Events(#[source] io::Error),
}

struct Peer {
    stream: UnixStream,
    inbox: Inbox,
    /// It has sent a whole message: it is a machine, and its end is ours. Before that it may be anybody, such
    /// as another emulator that looks whether the socket is alive.
    known: bool,
}

struct ControlPeer {
    stream: UnixStream,
    line: Vec<u8>,
}

/// An emulator that serves one virtual machine.
pub struct Server {
    listener: Listener,
    control: Option<Listener>,
    session: Session,
    log: EventLog,
    started: Instant,
    peer: Option<Peer>,
    control_peers: Vec<ControlPeer>,
    quit: bool,
}

impl Server {
    /// A server around a device.
    #[must_use]
    pub fn new(
        listener: Listener,
        control: Option<Listener>,
        device: Device,
        log: EventLog,
    ) -> Self {
        Self {
            listener,
            control,
            session: Session::new(device),
            log,
            started: Instant::now(),
            peer: None,
            control_peers: Vec::new(),
            quit: false,
        }
    }

    /// Serves until the virtual machine goes, `stop` becomes readable, or somebody says `quit`. Writes the
    /// totals in any case, and removes the socket files.
    ///
    /// # Errors
    /// When the peer breaks the protocol, the system refuses, or an event could not be written.
    pub fn run(mut self, stop: impl AsFd) -> Result<(Ending, Totals), ServeError> {
        self.flush_events();
        let ending = self.serve(stop.as_fd());
        if self.peer.take().is_some_and(|peer| peer.known) {
            let reason = match &ending {
                Ok(Ending::Disconnected) => "closed".into(),
                Ok(Ending::Stopped) => "stopped".into(),
                Err(error) => error.to_string(),
            };
            self.session.disconnect();
            self.flush_events();
            self.log
                .write(self.started.elapsed(), &Event::Disconnect { reason });
        }
        let totals = self.session.device().0.totals();
        self.log
            .write(self.started.elapsed(), &Event::Totals(totals.clone()));
        self.log.finish().map_err(ServeError::Events)?;
        ending.map(|ending| (ending, totals))
    }

    fn serve(&mut self, stop: impl AsFd) -> Result<Ending, ServeError> {
        loop {
            let ready = self.wait(&stop)?;
            self.session.advance(self.started.elapsed());
            if ready.stop {
                return Ok(Ending::Stopped);
            }
            if ready.peer && self.serve_peer()? {
                self.flush_events();
                return Ok(Ending::Disconnected);
            }
            self.serve_control(&ready.control);
            if ready.listener {
                self.accept_peer()?;
            }
            if ready.control_listener {
                self.accept_control()?;
            }
            self.flush_events();
            if self.quit {
                return Ok(Ending::Stopped);
            }
        }
    }

    fn wait(&mut self, stop: &impl AsFd) -> Result<Ready, ServeError> {
        let now = self.started.elapsed();
        let due = self.session.device().0.next_due();
        // A millisecond more than needed, so that the wait is never too short by a rounding.
        let timeout = due.map(|due| due.saturating_sub(now) + Duration::from_millis(1));
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![readable(stop.as_fd()), readable(self.listener.as_fd())];
        fds.extend(self.peer.iter().map(|p| readable(p.stream.as_fd())));
        let control_at = fds.len();
        fds.extend(self.control.iter().map(|l| readable(l.as_fd())));
        fds.extend(
            self.control_peers
                .iter()
                .map(|p| readable(p.stream.as_fd())),
        );
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(ServeError::Wait(error.into())),
        }
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let has_control = usize::from(self.control.is_some());
        Ok(Ready {
            stop: is_ready(0),
            listener: is_ready(1),
            peer: self.peer.is_some() && is_ready(2),
            control_listener: has_control == 1 && is_ready(control_at),
            control: (control_at + has_control..fds.len())
                .map(is_ready)
                .collect(),
        })
    }

    fn accept_peer(&mut self) -> Result<(), ServeError> {
        let Some(stream) = self.listener.accept().map_err(ServeError::Wait)? else {
            return Ok(());
        };
        // One machine at a time: another is hung up on, and sees it at once.
        if self.peer.is_none() {
            stream
                .set_write_timeout(Some(SEND_TIMEOUT))
                .map_err(ServeError::Wait)?;
            self.peer = Some(Peer {
                stream,
                inbox: Inbox::default(),
                known: false,
            });
        }
        Ok(())
    }

    /// Handles what the machine has sent; true when it is gone.
    fn serve_peer(&mut self) -> Result<bool, ServeError> {
        for _ in 0..MESSAGES_A_TURN {
            let Some(peer) = &mut self.peer else {
                return Ok(false);
            };
            match peer.inbox.receive(&peer.stream) {
                Ok(Received::Closed) | Err(_) if !peer.known => {
                    self.peer = None;
                    return Ok(false);
                }
                Ok(Received::Closed) => return Ok(true),
                Ok(Received::Pending) if readable_now(&peer.stream) => {}
                Ok(Received::Pending) => return Ok(false),
                Ok(Received::Message(message)) => {
                    if !peer.known {
                        peer.known = true;
                        self.log.write(self.started.elapsed(), &Event::Connect);
                    }
                    if let Some(bytes) = self.session.handle(message) {
                        match (&peer.stream).write_all(&bytes) {
                            Ok(()) => {}
                            Err(e) if is_gone(&e) => return Ok(true),
                            Err(e) => return Err(ServeError::Reply(e)),
                        }
                    }
                    self.flush_events();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    fn accept_control(&mut self) -> Result<(), ServeError> {
        let Some(listener) = &self.control else {
            return Ok(());
        };
        let Some(stream) = listener.accept().map_err(ServeError::Wait)? else {
            return Ok(());
        };
        let usable = stream.set_nonblocking(true).is_ok();
        if usable && self.control_peers.len() < MAX_CONTROL {
            self.control_peers.push(ControlPeer {
                stream,
                line: Vec::new(),
            });
        }
        Ok(())
    }

    fn serve_control(&mut self, ready: &[bool]) {
        let peers = std::mem::take(&mut self.control_peers);
        for (i, mut peer) in peers.into_iter().enumerate() {
            let keep = !ready.get(i).copied().unwrap_or(false) || self.hear(&mut peer);
            if keep {
                self.control_peers.push(peer);
            }
        }
    }

    /// Reads from a control peer and obeys whole lines; false when it is done with.
    fn hear(&mut self, peer: &mut ControlPeer) -> bool {
        let mut buf = [0; 1024];
        match peer.stream.read(&mut buf) {
            Ok(0) => return false,
            Ok(n) => peer.line.extend(buf.iter().take(n)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
        while let Some(end) = peer.line.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = peer.line.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let (device, memory) = self.session.device();
            let answer = control::obey(&line, device, memory);
            match answer.then {
                Then::Serve => {}
                Then::Quit => self.quit = true,
                // For tests of what a machine does without its device: nothing of ours may run any more.
                Then::Abort => std::process::abort(),
            }
            let mut text = answer.reply.to_string();
            text.push('\n');
            // A peer that does not read its answers loses them.
            if peer.stream.write_all(text.as_bytes()).is_err() {
                return false;
            }
        }
        peer.line.len() <= control::MAX_LINE
    }

    fn flush_events(&mut self) {
        let now = self.started.elapsed();
        for event in self.session.device().0.take_events() {
            self.log.write(now, &event);
        }
    }
}

#[derive(Default)]
struct Ready {
    stop: bool,
    listener: bool,
    peer: bool,
    control_listener: bool,
    control: Vec<bool>,
}

fn readable_now(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(n) if n > 0)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
