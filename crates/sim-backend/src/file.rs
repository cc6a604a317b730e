//! Simulated devices in files.

use std::path::Path;

use crate::error::SimError;
use crate::profile::Profile;

impl Profile {
    /// Reads a device file.
    ///
    /// # Errors
    /// Not readable, or not a device file.
    pub fn read(path: &Path) -> Result<Self, SimError> {
        Err(SimError::Unreadable {
            path: path.display().to_string(),
            source: std::io::Error::from(std::io::ErrorKind::Unsupported),
        })
    }
}
