//! One virtual machine's view of the device: each message answered, without any waiting.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use rustix::io::Errno;

use super::inbox::Message;
use super::windows::{Access, AddressSpace};
use super::wire::{Body, MAX_DATA, command, words};
use crate::device::{Device, Interrupts, VECTORS};
use crate::pci::{BAR2_SIZE, CONFIG_SIZE, ConfigSpace};
use crate::regs::BAR0_SIZE;

const REGIONS: u32 = 9;
const REGION_BAR0: u32 = 0;
const REGION_BAR2: u32 = 2;
const REGION_CONFIG: u32 = 7;
const REGION_READ_WRITE: u32 = 0b11;

const IRQS: u32 = 5;
const IRQ_MSIX: u32 = 2;
/// Error reports: none ever come, but QEMU complains when there is no such interrupt.
const IRQ_ERR: u32 = 3;
const IRQ_EVENTFD_NORESIZE: u32 = 0b1001;

const SET_DATA_NONE: u32 = 1 << 0;
const SET_DATA_BOOL: u32 = 1 << 1;
const SET_DATA_EVENTFD: u32 = 1 << 2;
const SET_ACTION_TRIGGER: u32 = 1 << 5;

/// Interrupts as event descriptors, given by the virtual machine.
struct Vectors {
    msix: Vec<Option<File>>,
}

impl Interrupts for Vectors {
    fn raise(&mut self, vector: u16) {
        // A vector that nobody listens to is as good as masked.
        if let Some(Some(file)) = self.msix.get(usize::from(vector)) {
            let mut file = file;
            let _ = file.write(&1u64.to_ne_bytes());
        }
    }
}

/// The device as one virtual machine sees it.
pub struct Session {
    device: Device,
    config: ConfigSpace,
    memory: AddressSpace,
    vectors: Vectors,
}

impl Session {
    /// Around a device.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self {
            device,
            config: ConfigSpace::new(),
            memory: AddressSpace::new(),
            vectors: Vectors {
                msix: (0..VECTORS).map(|_| None).collect(),
            },
        }
    }

    /// The device, and the memory that it reaches.
    pub const fn device(&mut self) -> (&mut Device, &AddressSpace) {
        (&mut self.device, &self.memory)
    }

    /// Tells the time; answers that are due are given.
    pub fn advance(&mut self, now: Duration) {
        self.device.advance(now, &self.memory, &mut self.vectors);
    }

    /// The machine is gone: its memory and interrupts go too.
    pub fn disconnect(&mut self) {
        self.memory.clear();
        self.vectors.msix.fill_with(|| None);
    }

    /// Answers a message; nothing for one that wants no answer.
    pub fn handle(&mut self, message: Message) -> Option<Vec<u8>> {
        let header = message.header;
        let reply = self.dispatch(message);
        header
            .wants_reply()
            .then(|| header.reply(reply.as_deref().map_err(|e| *e)))
    }

    fn dispatch(&mut self, message: Message) -> Result<Vec<u8>, Errno> {
        let Message { header, body, fds } = message;
        let files: Vec<File> = fds.into_iter().map(File::from).collect();
        let fields = Body(&body);
        match header.command {
            command::VERSION => version(fields),
            command::DMA_MAP => self.dma_map(fields, &files),
            command::DMA_UNMAP => self.dma_unmap(fields, &body),
            command::DEVICE_GET_INFO => {
                const RESET_AND_PCI: u32 = 0b11;
                Ok(words(&[16, RESET_AND_PCI, REGIONS, IRQS]))
            }
            command::DEVICE_GET_REGION_INFO => region_info(fields),
            command::DEVICE_GET_IRQ_INFO => irq_info(fields),
            command::DEVICE_SET_IRQS => self.set_irqs(fields, files),
            command::REGION_READ => self.region_read(fields),
            command::REGION_WRITE => self.region_write(fields),
            command::DEVICE_RESET => {
                self.device.reset("bus");
                self.config = ConfigSpace::new();
                Ok(Vec::new())
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn dma_map(&mut self, mut fields: Body<'_>, files: &[File]) -> Result<Vec<u8>, Errno> {
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        let (offset, addr, size) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let access = Access {
            read: flags & 1 != 0,
            write: flags & 2 != 0,
        };
        let file = match files {
            [] => None,
            [file] => Some((file, offset)),
            _ => return Err(Errno::INVAL),
        };
        self.memory.map(addr, size, access, file)?;
        Ok(Vec::new())
    }

    fn dma_unmap(&mut self, mut fields: Body<'_>, body: &[u8]) -> Result<Vec<u8>, Errno> {
        const DIRTY_PAGES: u32 = 1 << 0;
        const ALL: u32 = 1 << 1;
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        let (addr, size) = (fields.u64()?, fields.u64()?);
        match flags {
            0 => self.memory.unmap(addr, size)?,
            ALL if addr == 0 && size == 0 => self.memory.clear(),
            _ if flags & DIRTY_PAGES != 0 => return Err(Errno::OPNOTSUPP),
            _ => return Err(Errno::INVAL),
        }
        Ok(body.to_vec())
    }

    fn set_irqs(&mut self, mut fields: Body<'_>, files: Vec<File>) -> Result<Vec<u8>, Errno> {
        let (_argsz, flags) = (fields.u32()?, fields.u32()?);
        let (index, start, count) = (fields.u32()?, fields.u32()?, fields.u32()?);
        if index >= IRQS {
            return Err(Errno::INVAL);
        }
        if flags & SET_DATA_BOOL != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if index != IRQ_MSIX || flags & SET_ACTION_TRIGGER == 0 {
            // Masks, and interrupts that never come: accepted.
            return Ok(Vec::new());
        }
        let first = usize::try_from(start).map_err(|_| Errno::INVAL)?;
        let last = usize::try_from(count)
            .ok()
            .and_then(|n| first.checked_add(n));
        let slots = last
            .and_then(|last| self.vectors.msix.get_mut(first..last))
            .ok_or(Errno::INVAL)?;
        match (flags & (SET_DATA_NONE | SET_DATA_EVENTFD), files.len()) {
            (SET_DATA_NONE, 0) if count == 0 => self.vectors.msix.fill_with(|| None),
            (SET_DATA_NONE, 0) => {} // a trigger for a test, which the device has no use for
            (SET_DATA_EVENTFD, 0) => slots.fill_with(|| None),
            (SET_DATA_EVENTFD, n) if n == slots.len() => {
                for (slot, file) in slots.iter_mut().zip(files) {
                    *slot = Some(file);
                }
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(Vec::new())
    }

    fn region_read(&self, mut fields: Body<'_>) -> Result<Vec<u8>, Errno> {
        let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let len = access_len(region, count)?;
        let mut reply = access_reply(offset, region, count);
        let head = reply.len();
        reply.resize(head + len, 0);
        let data = reply.get_mut(head..).unwrap_or_default();
        match region {
            REGION_BAR0 => self.device.read(offset, data),
            REGION_CONFIG => self.config.read(offset, data),
            _ => {} // QEMU keeps the MSI-X table of BAR 2 itself
        }
        Ok(reply)
    }

    fn region_write(&mut self, mut fields: Body<'_>) -> Result<Vec<u8>, Errno> {
        let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let data = fields.rest();
        if access_len(region, count)? != data.len() {
            return Err(Errno::INVAL);
        }
        match region {
            REGION_BAR0 => self
                .device
                .write(offset, data, &self.memory, &mut self.vectors),
            REGION_CONFIG => self.config.write(offset, data),
            _ => {}
        }
        Ok(access_reply(offset, region, count))
    }
}

fn version(mut fields: Body<'_>) -> Result<Vec<u8>, Errno> {
    // major 0, any minor: the answer's minor 0 is the lowest there is. QEMU refuses a higher one.
    if fields.u32()? & 0xffff != 0 {
        return Err(Errno::INVAL);
    }
    let capabilities = format!(
        concat!(
            r#"{{"capabilities":{{"max_msg_fds":{},"max_data_xfer_size":{},"#,
            r#""migration":{{"pgsize":4096}}}}}}"#
        ),
        8, MAX_DATA
    );
    let mut reply = words(&[0]);
    reply.extend(capabilities.as_bytes());
    reply.push(0);
    Ok(reply)
}

fn region_info(mut fields: Body<'_>) -> Result<Vec<u8>, Errno> {
    let (_argsz, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let size = match index {
        REGION_BAR0 => BAR0_SIZE,
        REGION_BAR2 => BAR2_SIZE,
        REGION_CONFIG => CONFIG_SIZE as u64,
        _ if index < REGIONS => 0,
        _ => return Err(Errno::INVAL),
    };
    let flags = if size == 0 { 0 } else { REGION_READ_WRITE };
    let mut reply = words(&[32, flags, index, 0]);
    reply.extend(size.to_le_bytes());
    reply.extend(0u64.to_le_bytes());
    Ok(reply)
}

fn irq_info(mut fields: Body<'_>) -> Result<Vec<u8>, Errno> {
    let (_argsz, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let count = match index {
        IRQ_MSIX => VECTORS.into(),
        IRQ_ERR => 1,
        _ if index < IRQS => 0,
        _ => return Err(Errno::INVAL),
    };
    let flags = if count == 0 { 0 } else { IRQ_EVENTFD_NORESIZE };
    Ok(words(&[16, flags, index, count]))
}

fn access_len(region: u32, count: u32) -> Result<usize, Errno> {
    let len = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    if region >= REGIONS || len > MAX_DATA {
        return Err(Errno::INVAL);
    }
    Ok(len)
}

fn access_reply(offset: u64, region: u32, count: u32) -> Vec<u8> {
    let mut reply = offset.to_le_bytes().to_vec();
    reply.extend(words(&[region, count]));
    reply
}
