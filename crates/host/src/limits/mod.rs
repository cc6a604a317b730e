//! The limits file: what was measured of the devices of this host, `limits.toml`.
//!
//! Small, versioned and for people to read. Here is what it says of a device; how it is written is in `text`, and how it is
//! read, locked and replaced in `file`.

mod file;
mod text;

use std::mem::take;

use hugemr_core::limits::{Confidence, Identity, Record};

pub use file::{LimitsError, Waiting, check, read, update};
pub use text::VERSION;

/// What a limits file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// One record a device and software.
    pub records: Vec<Record>,
    /// Keys of the file, and of each record, that this version does not know.
    rest: toml::Table,
    rests: Vec<toml::Table>,
}

impl Limits {
    /// The record of a device under the same software, else the latest of the same name.
    #[must_use]
    pub fn of(&self, now: &Identity) -> Option<&Record> {
        let place = self.place(now).or_else(|| {
            let named = self
                .records
                .iter()
                .enumerate()
                .filter(|(_, r)| r.identity.device == now.device);
            named
                .max_by_key(|(_, record)| record.seconds)
                .map(|(place, _)| place)
        });
        self.records.get(place?)
    }

    /// The record of this device under this software, made if there is none.
    pub fn entry(&mut self, now: &Identity, confidence: Confidence, seconds: u64) -> &mut Record {
        let place = self.place(now).unwrap_or_else(|| {
            self.records
                .push(Record::new(now.clone(), confidence, seconds));
            self.rests.push(toml::Table::new());
            self.records.len() - 1
        });
        let record = &mut self.records[place];
        // What was not known when the record was made may be known now.
        record.identity.fill(now);
        record
    }

    /// Gives what is recorded of a device under former names its name of now. Records of the same software become one.
    pub fn rename(&mut self, former: &[String], device: &str) {
        self.rests.resize(self.records.len(), toml::Table::new());
        let (records, rests) = (take(&mut self.records), take(&mut self.rests));
        let is_former = |record: &Record| former.contains(&record.identity.device);
        let (moved, stay): (Vec<_>, Vec<_>) = records
            .into_iter()
            .zip(rests)
            .partition(|(record, _)| is_former(record));
        (self.records, self.rests) = stay.into_iter().unzip();
        for (mut record, rest) in moved {
            device.clone_into(&mut record.identity.device);
            match self.place(&record.identity) {
                Some(place) => {
                    self.records[place] = self.records[place].clone().joined(record);
                    for (key, value) in rest {
                        self.rests[place].entry(key).or_insert(value);
                    }
                }
                None => {
                    self.records.push(record);
                    self.rests.push(rest);
                }
            }
        }
    }

    /// The latest record that fits.
    fn place(&self, now: &Identity) -> Option<usize> {
        let fits = |record: &Record| {
            record.identity.device == now.device && record.identity.changes(now).is_empty()
        };
        let all = self.records.iter().enumerate();
        all.filter(|(_, record)| fits(record))
            .max_by_key(|(_, record)| record.seconds)
            .map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests;
