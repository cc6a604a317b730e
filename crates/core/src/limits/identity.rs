//! A device and the software that drives it, and what of them has changed.

/// A device and the software that drives it. `None`: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the device: `erdma_0`.
    pub device: String,
    /// Node GUID, which tells two devices of one name apart.
    pub guid: Option<String>,
    /// The running kernel, as `uname -r` prints it.
    pub kernel: Option<String>,
    /// Driver of the device.
    pub driver: Option<String>,
    /// Firmware of the device.
    pub firmware: Option<String>,
    /// Type of the instance (virtual machine).
    pub instance: Option<String>,
}

/// Something that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// `kernel`, `driver`, `firmware`, `instance` or `guid`.
    pub what: &'static str,
    /// As recorded.
    pub then: String,
    /// As it is.
    pub now: String,
}

impl Identity {
    /// What differs between the record and now, of what both know. With another GUID it is another device of the same
    /// name.
    #[must_use]
    pub fn changes(&self, now: &Self) -> Vec<Change> {
        let pairs = [
            ("guid", &self.guid, &now.guid),
            ("instance", &self.instance, &now.instance),
            ("kernel", &self.kernel, &now.kernel),
            ("driver", &self.driver, &now.driver),
            ("firmware", &self.firmware, &now.firmware),
        ];
        let differ = |(what, then, now): (&'static str, &Option<String>, &Option<String>)| {
            let (then, now) = (then.clone()?, now.clone()?);
            (then != now).then_some(Change { what, then, now })
        };
        pairs.into_iter().filter_map(differ).collect()
    }

    /// Takes over what was not known. The device stays.
    pub fn fill(&mut self, from: &Self) {
        for (to, from) in [
            (&mut self.guid, &from.guid),
            (&mut self.kernel, &from.kernel),
            (&mut self.driver, &from.driver),
            (&mut self.firmware, &from.firmware),
            (&mut self.instance, &from.instance),
        ] {
            if to.is_none() {
                to.clone_from(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named_where_both_sides_are_known() {
        let then = Identity {
            kernel: Some("6.1".into()),
            firmware: Some("1".into()),
            ..Identity::default()
        };
        let now = Identity {
            kernel: Some("6.8".into()),
            driver: Some("x".into()),
            ..then.clone()
        };
        let changes = then.changes(&now);
        assert_eq!(changes.len(), 1);
        assert_eq!(
            (changes[0].what, changes[0].now.as_str()),
            ("kernel", "6.8")
        );
        assert!(then.changes(&then).is_empty());
    }
}
