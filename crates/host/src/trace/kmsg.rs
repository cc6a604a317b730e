//! The kernel's log, as it grows (`/dev/kmsg`).
//!
//! A read returns one record: `PRIORITY,NUMBER,TIME,FLAGS;TEXT`, then lines that begin with a blank. EPIPE says that records
//! were overwritten before they were read. Linux `Documentation/ABI/testing/dev-kmsg`.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::TraceError;
use crate::root::Root;

const PATH: &str = "/dev/kmsg";
/// Longer than any record (8 KiB, `CONSOLE_EXT_LOG_MAX`).
const RECORD: usize = 16 << 10;

/// The log from now on.
#[derive(Debug)]
pub(super) struct Log(File);

impl Log {
    pub(super) fn open(root: &Root) -> Result<Self, TraceError> {
        let mut file = root.open_stream(PATH).map_err(TraceError::refused(PATH))?;
        file.seek(SeekFrom::End(0))
            .map_err(TraceError::refused(PATH))?;
        Ok(Self(file))
    }

    /// What was written since the last call, and how often records were lost.
    pub(super) fn read(&mut self) -> io::Result<(Vec<String>, u64)> {
        let mut bytes = vec![0u8; RECORD];
        let (mut lines, mut lost) = (Vec::new(), 0);
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return Ok((lines, lost)),
                Ok(n) => {
                    let text = String::from_utf8_lossy(&bytes[..n]);
                    let records = text.lines().filter(|line| !line.starts_with(' '));
                    lines.extend(
                        records.filter_map(|line| Some(line.split_once(';')?.1.to_owned())),
                    );
                }
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => lost += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((lines, lost));
                }
                Err(error) => return Err(error),
            }
        }
    }
}
