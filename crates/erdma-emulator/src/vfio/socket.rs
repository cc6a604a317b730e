//! Socket files: made, replaced when stale, removed at the end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there.
    #[error("{0} is in use: another process listens on it")]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{0} exists and is no socket")]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot listen on {path}")]
    System {
        /// The socket file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A listening socket that takes its file with it when it goes.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    id: Option<(u64, u64)>,
}

fn id(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path)
        .ok()
        .map(|m| (m.dev(), m.ino()))
}

impl Listener {
    /// Listens on `path`. A socket file on which nobody listens is replaced.
    ///
    /// # Errors
    /// When somebody listens there, something else is there, or the system refuses.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let system = |source| BindError::System {
            path: path.into(),
            source,
        };
        if let Ok(meta) = std::fs::symlink_metadata(path) {
            if !meta.file_type().is_socket() {
                return Err(BindError::NotASocket(path.into()));
            }
            match UnixStream::connect(path) {
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                    std::fs::remove_file(path).map_err(system)?;
                }
                Ok(_) => return Err(BindError::InUse(path.into())),
                Err(e) => return Err(system(e)),
            }
        }
        let socket = UnixListener::bind(path).map_err(system)?;
        socket.set_nonblocking(true).map_err(system)?;
        Ok(Self {
            socket,
            path: path.into(),
            id: id(path),
        })
    }

    /// Takes one connection, if one waits.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.socket.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionAborted
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Not if another has put its own there meanwhile.
        if self.id.is_some() && id(&self.path) == self.id {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_files_are_replaced_and_live_ones_are_not() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).expect("bind"));
        assert!(path.exists(), "a stale file");
        let listener = Listener::bind(&path).expect("replaced");
        assert!(matches!(Listener::bind(&path), Err(BindError::InUse(_))));
        assert!(path.exists(), "and the live one still stands");
        // the probe of the second is a connection that has ended
        assert!(listener.accept().expect("accept").is_some());
        assert!(listener.accept().expect("accept").is_none());
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "x").expect("write");
        assert!(matches!(
            Listener::bind(&path),
            Err(BindError::NotASocket(_))
        ));
        assert!(matches!(
            Listener::bind(&dir.path().join("no/such")),
            Err(BindError::System { .. })
        ));
    }

    #[test]
    fn a_file_of_another_is_left_alone() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("s");
        let listener = Listener::bind(&path).expect("bind");
        std::fs::remove_file(&path).expect("remove");
        let other = UnixListener::bind(&path).expect("bind");
        drop(listener);
        assert!(path.exists());
        drop(other);
    }
}
