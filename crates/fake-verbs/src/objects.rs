//! The objects behind the pointers: each begins with the structure that verbs.h shows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hugemr_core::backend::{Access, MrHandle, RegBackend};
use hugemr_core::device::Family;
use hugemr_sim::SimDevice;

use crate::config::{Config, DEFAULT, DeviceConfig, Transport};
use crate::types::*;

/// How many objects of each kind are alive: a test sees whether everything was given back.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub lists: usize,
    pub contexts: usize,
    pub pds: usize,
    pub mrs: usize,
    pub cqs: usize,
    pub qps: usize,
}

/// The counters behind [`Counts`].
#[derive(Default)]
pub(crate) struct Counters {
    pub lists: AtomicUsize,
    pub contexts: AtomicUsize,
    pub pds: AtomicUsize,
    pub mrs: AtomicUsize,
    pub cqs: AtomicUsize,
    pub qps: AtomicUsize,
}

/// One more.
pub(crate) fn up(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::SeqCst);
}

/// One less.
pub(crate) fn down(counter: &AtomicUsize) {
    counter.fetch_sub(1, Ordering::SeqCst);
}

/// A lock whose content is consistent at every point where a panic is possible.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One registered range.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// Where it is in this process.
    pub addr: u64,
    pub iova: u64,
    pub len: u64,
    pub access: Access,
    /// Address of its PD.
    pub pd: usize,
}

impl Range {
    /// The address in this process of `len` bytes at `iova`; `None` where they are not inside.
    pub(crate) fn translate(&self, iova: u64, len: u64) -> Option<u64> {
        let offset = iova.checked_sub(self.iova)?;
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| self.addr + offset)
    }
}

/// A connection end, by its number.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub pd: usize,
    pub state: u32,
    pub peer: u32,
    pub access: u32,
}

#[repr(C)]
pub(crate) struct Device {
    pub ibv: ibv_device,
    pub config: DeviceConfig,
    pub sim: SimDevice,
    pub ranges: Mutex<HashMap<u32, Range>>,
    pub ends: Mutex<HashMap<u32, End>>,
    pub next_qp: AtomicU32,
    /// Work requests so far.
    pub works: AtomicU64,
}

// SAFETY: the visible structure is never changed; the null pointers in it lead nowhere.
unsafe impl Send for Device {}
// SAFETY: as above; the rest locks.
unsafe impl Sync for Device {}

#[repr(C)]
pub(crate) struct Context {
    pub ibv: ibv_context,
    pub device: &'static Device,
    /// MRs that the kernel would take back when the file is closed.
    pub mrs: Mutex<HashSet<MrHandle>>,
}

#[repr(C)]
pub(crate) struct Pd {
    pub ibv: ibv_pd,
    /// MRs and QPs.
    pub users: AtomicUsize,
}

#[repr(C)]
pub(crate) struct Mr {
    pub ibv: ibv_mr,
    pub handle: MrHandle,
}

/// The object of ours that begins with an object of the C interface.
///
/// # Safety
/// `object` came from this library as an `O` and is alive.
pub(crate) unsafe fn ours<'a, O, U>(object: *mut U) -> &'a O {
    // SAFETY: says the caller.
    unsafe { &*object.cast::<O>() }
}

impl Pd {
    pub(crate) fn context(&self) -> &Context {
        // SAFETY: a context of ours; verbs.h wants its PDs to go first.
        unsafe { ours(self.ibv.context) }
    }

    /// What tells it from other PDs.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Mr {
    pub(crate) fn pd(&self) -> &Pd {
        // SAFETY: a PD of ours, which cannot go before its MRs.
        unsafe { ours(self.ibv.pd) }
    }
}

impl Qp {
    pub(crate) fn pd(&self) -> &Pd {
        // SAFETY: a PD of ours, which cannot go before its QPs.
        unsafe { ours(self.ibv.pd) }
    }

    /// Where what it sends ends, and what it receives.
    pub(crate) fn cqs(&self) -> [&Cq; 2] {
        // SAFETY: CQs of ours, which cannot go before their QPs.
        [self.ibv.send_cq, self.ibv.recv_cq].map(|cq| unsafe { ours(cq) })
    }
}

pub(crate) fn mutex() -> libc::pthread_mutex_t {
    libc::PTHREAD_MUTEX_INITIALIZER
}

#[repr(C)]
pub(crate) struct Cq {
    pub ibv: ibv_cq,
    pub done: Mutex<VecDeque<ibv_wc>>,
    pub users: AtomicUsize,
}

#[repr(C)]
pub(crate) struct Qp {
    pub ibv: ibv_qp,
}

/// The whole library.
pub(crate) struct World {
    pub config: Config,
    pub devices: Vec<Device>,
    pub count: Counters,
}

/// The one of this copy of the library.
pub(crate) fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let text = std::env::var("FAKE_VERBS")
            .ok()
            .or_else(|| std::fs::read_to_string(own_path()? + ".conf").ok())
            .unwrap_or_else(|| DEFAULT.to_owned());
        // A test with a slip in its text must not go on with something else. There is no caller to tell.
        let config = Config::parse(&text).unwrap_or_else(|why| panic!("fake-verbs: {why}"));
        let devices = config.devices.iter().map(device).collect();
        World {
            config,
            devices,
            count: Counters::default(),
        }
    })
}

/// The file that this copy of the library was loaded from.
fn own_path() -> Option<String> {
    let here: fn() -> &'static World = world;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr only compares the address with loaded objects, and writes to `info`.
    let found = unsafe { libc::dladdr(here as *const libc::c_void, info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: zeroed before, filled by a successful dladdr.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: not null; the name of the object that this code is in.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(name.to_str().ok()?.to_owned())
}

fn put(array: &mut [c_char], text: &str) {
    let room = array.len() - 1;
    for (to, from) in array.iter_mut().zip(text.bytes().take(room)) {
        *to = from.cast_signed();
    }
}

fn device(config: &DeviceConfig) -> Device {
    let sim = hugemr_sim::open(&config.sim, &config.overrides)
        .unwrap_or_else(|why| panic!("fake-verbs: {}: {why}", config.name));
    let mut ibv = ibv_device {
        _ops: [std::ptr::null_mut(); 2],
        node_type: 1,
        transport_type: 0,
        name: [0; IBV_SYSFS_NAME_MAX],
        dev_name: [0; IBV_SYSFS_NAME_MAX],
        dev_path: [0; IBV_SYSFS_PATH_MAX],
        ibdev_path: [0; IBV_SYSFS_PATH_MAX],
    };
    if config.transport == Transport::Iwarp {
        (ibv.node_type, ibv.transport_type) = (4, 1);
    }
    let uverbs = format!("uverbs{}", config.guid);
    put(&mut ibv.name, &config.name);
    put(&mut ibv.dev_name, &uverbs);
    put(
        &mut ibv.dev_path,
        &format!("/sys/class/infiniband_verbs/{uverbs}"),
    );
    put(
        &mut ibv.ibdev_path,
        &format!("/sys/class/infiniband/{}", config.name),
    );
    Device {
        ibv,
        config: config.clone(),
        sim,
        ranges: Mutex::default(),
        ends: Mutex::default(),
        next_qp: AtomicU32::new(16),
        works: AtomicU64::new(0),
    }
}

/// Vendor and device of the PCI function.
const fn pci(family: Family) -> (u32, u32) {
    match family {
        Family::Erdma => (0x1ded, 0x107f),
        Family::Efa => (0x1d0f, 0xefa1),
        Family::Ionic => (0x1dd8, 0x1002),
        Family::Mlx4 => (0x15b3, 0x1003),
        Family::Ascend => (0x19e5, 0xa222),
        _ => (0xffff, 0),
    }
}

impl Device {
    /// The node GUID, in the order in which it is written: EUI-64 of 00:16:3e:12:34:xx.
    pub(crate) fn guid(&self) -> [u8; 8] {
        [0x02, 0x16, 0x3e, 0xff, 0xfe, 0x12, 0x34, self.config.guid]
    }

    /// What `ibv_query_device` says.
    pub(crate) fn attr(&self) -> ibv_device_attr {
        let device = self.sim.device();
        let mut attr = ibv_device_attr::zeroed();
        put(&mut attr.fw_ver, "0.2.34");
        attr.node_guid = u64::from_ne_bytes(self.guid());
        attr.sys_image_guid = attr.node_guid;
        attr.max_mr_size = device.max_mr_size.at_most().unwrap_or(u64::MAX);
        attr.page_size_cap = device.page_size_cap.0;
        (attr.vendor_id, attr.vendor_part_id) = pci(device.family);
        attr.hw_ver = 1;
        attr.max_qp = 1024;
        attr.max_qp_wr = 8192;
        attr.max_sge = 1;
        attr.max_cq = 1024;
        attr.max_cqe = 4096;
        let count = device.max_mr.at_most().unwrap_or(0x7_ffff);
        attr.max_mr = i32::try_from(count).unwrap_or(i32::MAX);
        attr.max_pd = 1024;
        attr.max_qp_rd_atom = 16;
        attr.phys_port_cnt = 1;
        attr
    }

    /// What `ibv_query_port` says of the only port.
    pub(crate) fn port(&self) -> ibv_port_attr {
        let mut attr = ibv_port_attr::zeroed();
        attr.state = if self.config.port_active { 4 } else { 1 };
        attr.max_mtu = 5;
        attr.active_mtu = 3;
        attr.gid_tbl_len = 4;
        attr.max_msg_sz = 1 << 30;
        attr.pkey_tbl_len = 1;
        attr.lid = if self.config.infiniband { 7 } else { 0 };
        attr.link_layer = if self.config.infiniband { 1 } else { 2 };
        attr
    }

    /// The GID table: link-local, an empty entry, an IPv4 address, an empty entry.
    pub(crate) fn gid(&self, index: i32) -> Option<ibv_gid> {
        let mut raw = [0; 16];
        match index {
            0 => {
                raw[..2].copy_from_slice(&[0xfe, 0x80]);
                raw[8..].copy_from_slice(&self.guid());
            }
            1 | 3 => {}
            2 => raw[10..].copy_from_slice(&[0xff, 0xff, 10, 77, 0, self.config.guid + 1]),
            _ => return None,
        }
        Some(ibv_gid { raw })
    }
}
