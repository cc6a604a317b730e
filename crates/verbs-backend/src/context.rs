//! An opened device and its protection domain, each owned by its child: MR -> PD -> context -> library.

use std::ptr::NonNull;
use std::sync::Arc;

use hugemr_core::errno::Errno;

use crate::availability::Unavailable;
use crate::devices::{
    DeviceList, OpenOptions, array_text, device_name, refused, transport, uverbs_name,
};
use crate::errno;
use crate::info::{DeviceInfo, ForkSafety, Guid, Port};
use crate::load::Library;
use crate::sys::consts::*;
use crate::sys::{Zeroed, ibv_context, ibv_device, ibv_device_attr, ibv_pd, ibv_port_attr};
use crate::sysfs;

/// An opened device.
#[derive(Debug)]
pub(crate) struct Context {
    library: Library,
    context: NonNull<ibv_context>,
    name: String,
    /// False: the user's own, never closed by us.
    ours: bool,
}

// SAFETY: verbs may be called from any thread (ibv_open_device(3), libibverbs is thread-safe).
unsafe impl Send for Context {}
// SAFETY: as above: concurrent verbs on one context are allowed; the fields are never changed.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn open(
        library: &Library,
        name: &str,
        options: &OpenOptions,
    ) -> Result<Self, Unavailable> {
        let devices = DeviceList::get(library, options)?;
        let device = devices.find(name, options)?;
        errno::clear();
        // SAFETY: a device of the list, which is still alive.
        let context = unsafe { (library.table().ibv_open_device)(device.as_ptr()) };
        let errno = errno::last();
        let Some(context) = NonNull::new(context) else {
            // SAFETY: as above.
            let uverbs = uverbs_name(unsafe { device.as_ref() });
            return Err(open_error(name, uverbs.as_deref(), errno, options));
        };
        tracing::debug!(device = name, "opened");
        Ok(Self {
            library: library.clone(),
            context,
            name: name.to_owned(),
            ours: true,
        })
    }

    /// # Safety
    /// `context` is an opened device of `library` and stays open for as long as the value lives.
    pub(crate) unsafe fn borrowed(library: Library, context: NonNull<ibv_context>) -> Self {
        // SAFETY: an opened context, says the caller; its device never changes.
        let device = unsafe { (*context.as_ptr()).device };
        let name = if device.is_null() {
            String::new()
        } else {
            device_name(&library, device)
        };
        Self {
            library,
            context,
            name,
            ours: false,
        }
    }

    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn ibv_device(&self) -> Option<&ibv_device> {
        // SAFETY: an opened context, alive as long as `self`; its device never changes.
        let device = unsafe { (*self.as_ptr()).device };
        // SAFETY: null, or the context's device, which lives as long as it.
        unsafe { device.as_ref() }
    }

    fn failed(&self, verb: &'static str, errno: Errno) -> Unavailable {
        Unavailable::Verb {
            verb,
            device: Some(self.name.clone()),
            errno,
        }
    }

    pub(crate) fn query(&self) -> Result<ibv_device_attr, Unavailable> {
        let mut attr = ibv_device_attr::zeroed();
        // SAFETY: an open context and a structure of the size that the symbol's version fills.
        let status =
            unsafe { (self.library.table().ibv_query_device)(self.as_ptr(), &raw mut attr) };
        match errno::of_status(status) {
            None => Ok(attr),
            Some(errno) => Err(self.failed("ibv_query_device", errno)),
        }
    }

    pub(crate) fn query_port(&self, port: u8) -> Result<ibv_port_attr, Errno> {
        let mut attr = ibv_port_attr::zeroed();
        // SAFETY: an open context; the symbol fills the first fields of a zeroed structure.
        let status =
            unsafe { (self.library.table().ibv_query_port)(self.as_ptr(), port, &raw mut attr) };
        errno::of_status(status).map_or(Ok(attr), Err)
    }

    fn fork_safety(&self) -> ForkSafety {
        let Some(ask) = self.library.table().ibv_is_fork_initialized else {
            return ForkSafety::NotReported;
        };
        // SAFETY: no precondition.
        match unsafe { ask() } {
            IBV_FORK_DISABLED => ForkSafety::Disabled,
            IBV_FORK_ENABLED => ForkSafety::Enabled,
            IBV_FORK_UNNEEDED => ForkSafety::Unneeded,
            _ => ForkSafety::NotReported,
        }
    }

    pub(crate) fn info(&self, attr: &ibv_device_attr, options: &OpenOptions) -> DeviceInfo {
        let node_guid = Guid(attr.node_guid.to_ne_bytes());
        let ports = (1..=attr.phys_port_cnt)
            .filter_map(|number| {
                let port = self.query_port(number).ok()?;
                Some(Port {
                    number,
                    active: port.state == IBV_PORT_ACTIVE,
                    ethernet: port.link_layer == IBV_LINK_LAYER_ETHERNET,
                })
            })
            .collect();
        let device = self.ibv_device();
        DeviceInfo {
            name: self.name.clone(),
            uverbs: device.and_then(uverbs_name),
            fw_ver: array_text(&attr.fw_ver),
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            hw_ver: attr.hw_ver,
            node_guid,
            transport: device.map_or(
                crate::info::Transport::Other(IBV_TRANSPORT_UNKNOWN),
                transport,
            ),
            ports,
            netdev: node_guid
                .mac()
                .and_then(|mac| sysfs::netdev_of_mac(&options.sys, mac)),
            pci: sysfs::pci_of(&options.sys, &self.name, node_guid),
            fork: self.fork_safety(),
            library: self.library.path().map(ToOwned::to_owned),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        // SAFETY: opened by us, closed once; PD and MRs are gone, for they hold an Arc of this value.
        let status = unsafe { (self.library.table().ibv_close_device)(self.as_ptr()) };
        if let Some(errno) = errno::of_status(status) {
            tracing::error!(device = self.name, %errno, "ibv_close_device failed");
        }
    }
}

fn open_error(
    name: &str,
    uverbs: Option<&str>,
    errno: Errno,
    options: &OpenOptions,
) -> Unavailable {
    let path = options.char_device(uverbs.unwrap_or("uverbs?"));
    // libibverbs looks for the file elsewhere after EACCES, and then says ENOENT.
    if let Some(refused) = refused(name, &path) {
        return refused;
    }
    let device = name.to_owned();
    match errno {
        Errno::EACCES | Errno::EPERM => Unavailable::NoPermission {
            device,
            path,
            errno,
        },
        Errno::ENOENT | Errno::ENXIO if !path.exists() => {
            Unavailable::NoCharDevice { device, path }
        }
        errno => Unavailable::Verb {
            verb: "ibv_open_device",
            device: Some(device),
            errno,
        },
    }
}

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    context: Arc<Context>,
    pd: NonNull<ibv_pd>,
    ours: bool,
}

// SAFETY: verbs on one PD may be called from any thread.
unsafe impl Send for Pd {}
// SAFETY: as above: concurrently too; the fields are never changed.
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn alloc(context: &Arc<Context>) -> Result<Self, Unavailable> {
        errno::clear();
        // SAFETY: an open context.
        let pd = unsafe { (context.library().table().ibv_alloc_pd)(context.as_ptr()) };
        let errno = errno::last();
        NonNull::new(pd)
            .map(|pd| Self {
                context: Arc::clone(context),
                pd,
                ours: true,
            })
            .ok_or_else(|| context.failed("ibv_alloc_pd", errno))
    }

    /// # Safety
    /// `pd` belongs to `context` and stays allocated for as long as the value lives.
    pub(crate) const unsafe fn borrowed(context: Arc<Context>, pd: NonNull<ibv_pd>) -> Self {
        Self {
            context,
            pd,
            ours: false,
        }
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.pd.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        // SAFETY: allocated by us, freed once; MRs and QPs are gone, for they hold an Arc of this value.
        let status = unsafe { (self.context.library().table().ibv_dealloc_pd)(self.as_ptr()) };
        if let Some(errno) = errno::of_status(status) {
            // Closing the context releases it all the same.
            tracing::error!(device = self.context.name(), %errno, "ibv_dealloc_pd failed");
        }
    }
}
