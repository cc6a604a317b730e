//! Memory regions of the whole host, as the kernel lists them: the rdma netlink family (`rdma resource show mr`).
//!
//! Source: Linux `include/uapi/rdma/rdma_netlink.h` (commands and attributes of NLDEV), `include/uapi/linux/netlink.h`.

mod message;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use message::{Attributes, Reply};

use crate::sys;

/// One memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Its process; `None` for one of the kernel, or of a process that this PID namespace does not see.
    pub pid: Option<u32>,
    /// Who in the kernel owns it.
    pub kernel: Option<String>,
    /// Length, bytes.
    pub len: u64,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number by which the kernel knows it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its firmware, as text; `None` where the driver says none.
    pub firmware: Option<String>,
    /// Its node GUID.
    pub guid: Option<u64>,
}

const GET: u16 = 1;
const RES_MR_GET: u16 = 13;

/// The RDMA devices of this network namespace.
///
/// # Errors
/// That of the system: a kernel without RDMA has no such netlink family.
pub fn devices() -> io::Result<Vec<Device>> {
    let mut devices = Vec::new();
    dump(GET, None, |attributes| devices.extend(device(attributes)))?;
    Ok(devices)
}

/// All memory regions of a device, of all processes.
///
/// # Errors
/// That of the system; ENODEV where there is no such device.
pub fn mrs(name: &str) -> io::Result<Vec<Mr>> {
    let none = || io::Error::from_raw_os_error(libc::ENODEV);
    let device = devices()?
        .into_iter()
        .find(|device| device.name == name)
        .ok_or_else(none)?;
    let mut mrs = Vec::new();
    dump(RES_MR_GET, Some(device.index), |attributes| {
        mrs.extend(regions(attributes))
    })?;
    Ok(mrs)
}

fn device(attributes: Attributes<'_>) -> Option<Device> {
    Some(Device {
        index: attributes.u32(message::DEV_INDEX)?,
        name: attributes.text(message::DEV_NAME)?,
        firmware: attributes
            .text(message::FW_VERSION)
            .filter(|text| !text.is_empty()),
        guid: attributes.u64(message::NODE_GUID),
    })
}

/// The regions of one message.
fn regions(attributes: Attributes<'_>) -> Vec<Mr> {
    let list = attributes.nested(message::RES_MR);
    let entries = list
        .into_iter()
        .flat_map(|list| list.all(message::RES_MR_ENTRY));
    entries
        .filter_map(|entry| {
            Some(Mr {
                pid: entry.u32(message::RES_PID),
                kernel: entry.text(message::RES_KERN_NAME),
                len: entry.u64(message::RES_MRLEN)?,
            })
        })
        .collect()
}

/// Asks for a list and hands each message of it on.
fn dump(command: u16, index: Option<u32>, mut each: impl FnMut(Attributes<'_>)) -> io::Result<()> {
    let failed = |errno: hugemr_core::errno::Errno| io::Error::from_raw_os_error(errno.0);
    let socket: OwnedFd = sys::netlink(libc::NETLINK_RDMA).map_err(failed)?;
    sys::send(socket.as_fd(), &message::request(command, index)).map_err(failed)?;
    // The kernel fills no more than 32 KiB at once (NLMSG_GOODSIZE and what a reader has shown to take).
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        let len = sys::receive(socket.as_fd(), &mut buffer).map_err(failed)?;
        let bytes = buffer.get(..len).unwrap_or_default();
        for reply in message::replies(bytes) {
            match reply {
                Reply::Data(attributes) => each(attributes),
                Reply::Done => return Ok(()),
                Reply::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
        if len == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use message::test::{attribute, message as reply};

    #[test]
    fn regions_of_processes_and_of_the_kernel() {
        let entry = |parts: &[(u16, Vec<u8>)]| {
            let bytes: Vec<u8> = parts
                .iter()
                .flat_map(|(kind, value)| attribute(*kind, value))
                .collect();
            attribute(message::RES_MR_ENTRY | 0x8000, &bytes)
        };
        let len = |n: u64| (message::RES_MRLEN, n.to_ne_bytes().to_vec());
        let first = entry(&[
            len(1 << 30),
            (message::RES_PID, 4121u32.to_ne_bytes().to_vec()),
        ]);
        let second = entry(&[(message::RES_KERN_NAME, b"ib_core\0".to_vec()), len(4096)]);
        let broken = entry(&[(message::RES_PID, vec![1, 2])]);
        let list = attribute(message::RES_MR | 0x8000, &[first, second, broken].concat());
        let index = attribute(message::DEV_INDEX, &0u32.to_ne_bytes());
        let bytes = reply(0, &[index, list].concat());
        let replies: Vec<_> = message::replies(&bytes).collect();
        let [Reply::Data(attributes)] = replies.as_slice() else {
            panic!("{replies:?}")
        };
        let found = regions(*attributes);
        let mr = |pid, kernel: Option<&str>, len| Mr {
            pid,
            kernel: kernel.map(str::to_owned),
            len,
        };
        assert_eq!(
            found,
            [
                mr(Some(4121), None, 1 << 30),
                mr(None, Some("ib_core"), 4096)
            ]
        );
    }

    #[test]
    fn a_device_needs_a_name() {
        let name = attribute(message::DEV_NAME, b"rxe0\0");
        let index = attribute(message::DEV_INDEX, &3u32.to_ne_bytes());
        let firmware = attribute(message::FW_VERSION, b"\0");
        let bytes = [name, index.clone(), firmware].concat();
        let found = device(Attributes::new(&bytes));
        let want = Device {
            index: 3,
            name: "rxe0".into(),
            firmware: None,
            guid: None,
        };
        assert_eq!(found, Some(want));
        assert_eq!(device(Attributes::new(&index)), None);
    }

    /// Whatever this machine has, the call ends.
    #[test]
    fn this_kernel_answers_or_refuses() {
        let _ = devices();
        assert!(mrs("no such device").is_err());
    }
}
