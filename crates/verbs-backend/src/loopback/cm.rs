//! A connection by `rdma_cm`, the only way between QPs of iWARP devices (eRDMA among them).
//!
//! librdmacm opens its devices itself, so QPs of our own context cannot be given to it; it connects them by their
//! numbers. The kernel then brings both QPs to RTS.

use std::ffi::OsStr;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hugemr_core::errno::Errno;
use libc::{c_int, sockaddr, sockaddr_storage};

use crate::context::Context;
use crate::devices::array_text;
use crate::errno;
use crate::info::Guid;
use crate::load::Object;
use crate::sys::cm::*;
use crate::sys::consts::IBV_QPS_INIT;
use crate::sys::{Zeroed, ibv_qp_attr};
use crate::sysfs;

const SONAME: &str = "librdmacm.so.1";

/// For each step. In one machine each takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const PATIENCE_MS: c_int = 5000;

fn failed(verb: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("{verb}: {errno}")
}

fn load() -> Result<CmTable, String> {
    let object = Object::open(OsStr::new(SONAME))?;
    // SAFETY: a library of this name has the functions of rdma_cma.h at these versions; it is never unloaded.
    unsafe {
        CmTable::fill(|symbol| {
            object
                .versioned(symbol)
                .or_else(|| object.symbol(symbol.name))
        })
    }
    .map_err(|missing| format!("{SONAME} has no {}", missing.name.to_string_lossy()))
}

/// An address of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    ip: IpAddr,
    scope: u32,
}

#[expect(clippy::cast_possible_truncation, reason = "families are below 50")]
const fn family(family: c_int) -> libc::sa_family_t {
    family as libc::sa_family_t
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip.fmt(f)
    }
}

impl Address {
    fn with_port(self, port: u16) -> sockaddr_storage {
        // SAFETY: integers only.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        match self.ip {
            IpAddr::V4(ip) => {
                let to = (&raw mut storage).cast::<libc::sockaddr_in>();
                let value = libc::sockaddr_in {
                    sin_family: family(libc::AF_INET),
                    sin_port: port.to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: storage for an address of any family.
                unsafe { to.write(value) };
            }
            IpAddr::V6(ip) => {
                let to = (&raw mut storage).cast::<libc::sockaddr_in6>();
                let value = libc::sockaddr_in6 {
                    sin6_family: family(libc::AF_INET6),
                    sin6_port: port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    sin6_scope_id: self.scope,
                };
                // SAFETY: storage for an address of any family.
                unsafe { to.write(value) };
            }
        }
        storage
    }
}

/// The address in a sockaddr; `None` for another family.
///
/// # Safety
/// `address` is null or a sockaddr as long as its family says.
unsafe fn address_of(address: *const sockaddr) -> Option<Address> {
    // SAFETY: null, or at least a sockaddr.
    let family = unsafe { address.as_ref() }?.sa_family;
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family, so of this type.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Address {
                ip: IpAddr::V4(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes())),
                scope: 0,
            })
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so of this type.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Address {
                ip: IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)),
                scope: v6.sin6_scope_id,
            })
        }
        _ => None,
    }
}

/// The addresses of an interface, IPv4 first.
fn addresses_of(interface: &str) -> Vec<Address> {
    let mut first = std::ptr::null_mut();
    // SAFETY: writes the head of a list.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut addresses = Vec::new();
    let mut next: *const libc::ifaddrs = first;
    // SAFETY: null, or an element of the list.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: the name of an element is NUL-terminated.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
        if name.to_bytes() == interface.as_bytes() {
            // SAFETY: null, or an address as long as its family says.
            addresses.extend(unsafe { address_of(entry.ifa_addr) });
        }
        next = entry.ifa_next;
    }
    // SAFETY: from getifaddrs, used no more.
    unsafe { libc::freeifaddrs(first) };
    addresses.sort_by_key(|address| address.ip.is_ipv6());
    addresses
}

/// The addresses under which the device can be reached.
pub(super) fn addresses(context: &Context, sys: &Path) -> Result<Vec<Address>, String> {
    let attr = context.query().map_err(|error| error.to_string())?;
    let interface = sysfs::gid_netdev(sys, context.name(), 1, 0)
        .or_else(|| sysfs::netdev_of_mac(sys, Guid(attr.node_guid.to_ne_bytes()).mac()?));
    let Some(interface) = interface else {
        return Err("no network interface is known for it".to_owned());
    };
    let addresses = addresses_of(&interface);
    if addresses.is_empty() {
        return Err(format!(
            "its network interface {interface} has no IP address"
        ));
    }
    Ok(addresses)
}

#[derive(Debug)]
struct Channel {
    cm: Arc<CmTable>,
    channel: NonNull<rdma_event_channel>,
}

impl Channel {
    fn new(cm: &Arc<CmTable>) -> Result<Self, Errno> {
        errno::clear();
        // SAFETY: no precondition.
        let channel = unsafe { (cm.rdma_create_event_channel)() };
        let errno = errno::last();
        let cm = Arc::clone(cm);
        NonNull::new(channel)
            .map(|channel| Self { cm, channel })
            .ok_or(errno)
    }

    /// Waits until there is an event.
    fn wait(&self) -> Result<(), String> {
        // SAFETY: a live channel.
        let fd = unsafe { self.channel.as_ref() }.fd;
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now()).as_millis();
            // SAFETY: one element.
            match unsafe { libc::poll(&raw mut poll, 1, c_int::try_from(left).unwrap_or(0)) } {
                0 => return Err(format!("nothing within {} s", PATIENCE.as_secs())),
                1.. => return Ok(()),
                _ => match errno::last() {
                    Errno::EINTR => {}
                    errno => return Err(format!("poll: {errno}")),
                },
            }
        }
    }

    /// The next event, which must be this one. A connection request comes with the identifier of the new end.
    fn expect(&self, wanted: c_int) -> Result<Option<Id>, String> {
        let name = |event: c_int| {
            usize::try_from(event)
                .ok()
                .and_then(|event| EVENT_NAMES.get(event))
                .map_or_else(|| format!("event {event}"), ToString::to_string)
        };
        self.wait()
            .map_err(|why| format!("waiting for {}: {why}", name(wanted)))?;
        let mut event = std::ptr::null_mut();
        // SAFETY: a live channel.
        let status = unsafe { (self.cm.rdma_get_cm_event)(self.channel.as_ptr(), &raw mut event) };
        if let Some(errno) = errno::of_status(status) {
            return Err(failed("rdma_get_cm_event")(errno));
        }
        // SAFETY: a successful call gave an event; it is read before it is given back.
        let (seen, state, id) = unsafe {
            let rdma_cm_event {
                id, event, status, ..
            } = *event;
            (event, status, id)
        };
        let new = (seen == RDMA_CM_EVENT_CONNECT_REQUEST)
            .then(|| NonNull::new(id))
            .flatten()
            .map(|id| Id {
                cm: Arc::clone(&self.cm),
                id,
            });
        // SAFETY: given back once.
        let _ = unsafe { (self.cm.rdma_ack_cm_event)(event) };
        if seen == wanted && state == 0 {
            return Ok(new);
        }
        Err(format!(
            "waiting for {}: {} with status {state}",
            name(wanted),
            name(seen)
        ))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by us, ended once; its identifiers are gone, for they are declared before it.
        unsafe { (self.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

#[derive(Debug)]
struct Id {
    cm: Arc<CmTable>,
    id: NonNull<rdma_cm_id>,
}

impl Id {
    fn new(channel: &Channel) -> Result<Self, String> {
        let mut id = std::ptr::null_mut();
        // SAFETY: a live channel.
        let status = unsafe {
            (channel.cm.rdma_create_id)(
                channel.channel.as_ptr(),
                &raw mut id,
                std::ptr::null_mut(),
                RDMA_PS_TCP,
            )
        };
        match (errno::of_status(status), NonNull::new(id)) {
            (None, Some(id)) => Ok(Self {
                cm: Arc::clone(&channel.cm),
                id,
            }),
            (errno, _) => Err(failed("rdma_create_id")(errno.unwrap_or(Errno::ENOMEM))),
        }
    }

    /// The device that librdmacm chose.
    fn device(&self) -> Option<String> {
        // SAFETY: a live identifier.
        let context = unsafe { (*self.id.as_ptr()).verbs };
        if context.is_null() {
            return None;
        }
        // SAFETY: a context that librdmacm has open; its device never changes.
        let device = unsafe { (*context).device };
        // SAFETY: null, or the device of an open context.
        unsafe { device.as_ref() }.map(|device| array_text(&device.name))
    }

    /// What a QP needs before it is connected, and for which fields.
    pub(super) fn to_init(&self) -> Result<(ibv_qp_attr, u32), String> {
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        let mut mask = 0;
        // SAFETY: a live identifier and a whole structure.
        let status =
            unsafe { (self.cm.rdma_init_qp_attr)(self.id.as_ptr(), &raw mut attr, &raw mut mask) };
        match errno::of_status(status) {
            None => Ok((attr, mask.cast_unsigned())),
            Some(errno) => Err(failed("rdma_init_qp_attr")(errno)),
        }
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: made by us or given to us by a connection request, ended once; its events were given back.
        let status = unsafe { (self.cm.rdma_destroy_id)(self.id.as_ptr()) };
        if let Some(errno) = errno::of_status(status) {
            tracing::error!(%errno, "rdma_destroy_id failed");
        }
    }
}

fn parameters(qp: u32) -> rdma_conn_param {
    rdma_conn_param {
        private_data: std::ptr::null(),
        private_data_len: 0,
        responder_resources: 1,
        initiator_depth: 1,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: qp,
    }
}

/// Both ends of a connection, not made yet. Fields in the order of their end: the channel last.
#[derive(Debug)]
pub(super) struct Connection {
    near: Id,
    far: Option<Id>,
    _listener: Id,
    channel: Channel,
}

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Connection {}

impl Connection {
    /// Finds the way from the device to itself by this address.
    pub(super) fn resolve(context: &Context, address: Address) -> Result<Self, String> {
        let cm = Arc::new(load()?);
        let channel = Channel::new(&cm).map_err(|errno| {
            format!(
                "rdma_create_event_channel: {errno} (needs rdma_ucm and /dev/infiniband/rdma_cm)"
            )
        })?;
        let listener = Id::new(&channel)?;
        let check = |status, verb| {
            errno::of_status(status).map_or(Ok(()), |errno| Err(failed(verb)(errno)))
        };
        let mut here = address.with_port(0);
        // SAFETY: a live identifier and a whole address.
        let status = unsafe {
            (cm.rdma_bind_addr)(listener.id.as_ptr(), (&raw mut here).cast::<sockaddr>())
        };
        check(status, "rdma_bind_addr")?;
        // SAFETY: a live identifier.
        let status = unsafe { (cm.rdma_listen)(listener.id.as_ptr(), 1) };
        check(status, "rdma_listen")?;
        // SAFETY: a live identifier.
        let port = u16::from_be(unsafe { (cm.rdma_get_src_port)(listener.id.as_ptr()) });

        let near = Id::new(&channel)?;
        let mut there = address.with_port(port);
        let there = (&raw mut there).cast::<sockaddr>();
        let nowhere = std::ptr::null_mut();
        // SAFETY: a live identifier, no own address, a whole address.
        let status =
            unsafe { (cm.rdma_resolve_addr)(near.id.as_ptr(), nowhere, there, PATIENCE_MS) };
        check(status, "rdma_resolve_addr")?;
        channel.expect(RDMA_CM_EVENT_ADDR_RESOLVED)?;
        if near.device().as_deref() != Some(context.name()) {
            return Err(format!(
                "the address leads to {}",
                near.device().as_deref().unwrap_or("no RDMA device")
            ));
        }
        // SAFETY: a live identifier.
        let status = unsafe { (cm.rdma_resolve_route)(near.id.as_ptr(), PATIENCE_MS) };
        check(status, "rdma_resolve_route")?;
        channel.expect(RDMA_CM_EVENT_ROUTE_RESOLVED)?;
        Ok(Self {
            near,
            far: None,
            _listener: listener,
            channel,
        })
    }

    /// What both QPs need before they are connected.
    pub(super) fn to_init(&self) -> Result<(ibv_qp_attr, u32), String> {
        self.near.to_init()
    }

    /// Connects two QPs by their numbers.
    pub(super) fn connect(&mut self, near: u32, far: u32) -> Result<(), String> {
        let cm = &self.near.cm;
        let mut parameters_near = parameters(near);
        // SAFETY: a live identifier; the parameters are read during the call.
        let status = unsafe { (cm.rdma_connect)(self.near.id.as_ptr(), &raw mut parameters_near) };
        if let Some(errno) = errno::of_status(status) {
            return Err(failed("rdma_connect")(errno));
        }
        let end = self.channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST)?;
        let end = end.ok_or_else(|| "a request without an identifier".to_owned())?;
        let mut parameters_far = parameters(far);
        // SAFETY: a live identifier; the parameters are read during the call.
        let status = unsafe { (cm.rdma_accept)(end.id.as_ptr(), &raw mut parameters_far) };
        self.far = Some(end);
        if let Some(errno) = errno::of_status(status) {
            return Err(failed("rdma_accept")(errno));
        }
        for _ in 0..2 {
            self.channel.expect(RDMA_CM_EVENT_ESTABLISHED)?;
        }
        Ok(())
    }

    /// Before the QPs end.
    pub(super) fn disconnect(&self) {
        if self.far.is_some() {
            // SAFETY: a live identifier. A failure means that it is not connected any more.
            let _ = unsafe { (self.near.cm.rdma_disconnect)(self.near.id.as_ptr()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_goes_into_a_sockaddr_and_back() {
        for ip in ["10.77.0.1", "2001:db8::1"] {
            let address = Address {
                ip: ip.parse().unwrap(),
                scope: 0,
            };
            let storage = address.with_port(4791);
            // SAFETY: a whole address.
            let back = unsafe { address_of((&raw const storage).cast()) };
            assert_eq!(back, Some(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { address_of(std::ptr::null()) }, None);
    }

    #[test]
    fn the_addresses_of_the_machine_are_found_by_interface() {
        assert!(addresses_of("no-such-interface").is_empty());
        if Path::new("/sys/class/net/lo").exists() {
            for address in addresses_of("lo") {
                assert!(address.ip.is_loopback() || address.ip.is_ipv6());
            }
        }
    }
}
