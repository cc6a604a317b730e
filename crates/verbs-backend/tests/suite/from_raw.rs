//! A program's own device and protection domain, wrapped: usable beside the wrapper, and after it.

use std::ffi::CStr;
use std::path::Path;
use std::ptr::NonNull;

use hugemr_core::backend::RegBackend;
use hugemr_verbs::sys::table::VerbsTable;
use hugemr_verbs::sys::{Zeroed, ibv_context, ibv_device_attr, ibv_pd};
use hugemr_verbs::{Library, LibrarySource, VerbsBackend};

use crate::device::name_of_the_real_one;
use crate::fake::{Counts, Fake, table};
use crate::memory::Memory;

/// What a program has that speaks verbs itself.
struct Program {
    verbs: VerbsTable,
    context: NonNull<ibv_context>,
    pd: NonNull<ibv_pd>,
}

impl Program {
    /// Opens the device of that name and makes a PD in it, by the functions of verbs.h alone.
    fn open(library: &Path, name: &str) -> Self {
        let verbs = table(library);
        let mut count = 0;
        // SAFETY: as verbs.h says.
        let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        let devices = (0..usize::try_from(count).unwrap()).map(|index| {
            // SAFETY: inside the list, which has `count` elements.
            let place = unsafe { list.add(index) };
            // SAFETY: as above.
            unsafe { place.read() }
        });
        let is_it = |device: &_| {
            // SAFETY: a device of the list.
            let found = unsafe { (verbs.ibv_get_device_name)(*device) };
            // SAFETY: a NUL-terminated name, which lives as long as the list.
            unsafe { CStr::from_ptr(found) }.to_str() == Ok(name)
        };
        let device = devices.into_iter().find(is_it).unwrap();
        // SAFETY: a device of the list.
        let context = NonNull::new(unsafe { (verbs.ibv_open_device)(device) }).unwrap();
        // SAFETY: used no more.
        unsafe { (verbs.ibv_free_device_list)(list) };
        // SAFETY: an open device.
        let pd = NonNull::new(unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) }).unwrap();
        Self { verbs, context, pd }
    }

    /// Registers and deregisters memory in its own PD, and queries its own device.
    fn works(&self, memory: &Memory) {
        let addr = std::ptr::with_exposed_provenance_mut(memory.addr() as usize);
        // SAFETY: mapped memory in the program's own PD.
        let mr = unsafe { (self.verbs.ibv_reg_mr)(self.pd.as_ptr(), addr, 4096, 1) };
        assert!(!mr.is_null(), "{}", std::io::Error::last_os_error());
        // SAFETY: used no more.
        assert_eq!(unsafe { (self.verbs.ibv_dereg_mr)(mr) }, 0);
        let mut attr = ibv_device_attr::zeroed();
        let query = self.verbs.ibv_query_device;
        // SAFETY: an open device, and a structure of ours.
        assert_eq!(unsafe { query(self.context.as_ptr(), &raw mut attr) }, 0);
        assert_ne!(attr.max_mr_size, 0);
    }

    /// A PD that still had an MR could not be given back (EBUSY).
    fn close(self) {
        // SAFETY: used no more.
        assert_eq!(unsafe { (self.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) }, 0);
        // SAFETY: used no more.
        let status = unsafe { (self.verbs.ibv_close_device)(self.context.as_ptr()) };
        assert_eq!(status, 0);
    }
}

/// Wraps the program's device, registers through the wrapper, leaves an MR to it and drops it.
fn wrap_and_drop(program: &Program, library: &Library, name: &str) {
    let memory = Memory::pages(2);
    // SAFETY: both of this library; the program closes them after the wrapper is dropped.
    let wrapper = unsafe { VerbsBackend::from_raw(library, program.context, program.pd) }.unwrap();
    assert_eq!(wrapper.device().name, name);
    assert_eq!(wrapper.as_raw_context(), program.context.as_ptr());
    assert_eq!(wrapper.as_raw_pd(), program.pd.as_ptr());
    for (page, given_back) in [(0, true), (1, false)] {
        // SAFETY: the memory is dropped after the wrapper.
        let mr = unsafe { wrapper.reg_mr(&memory.page(page)) }.unwrap();
        if given_back {
            wrapper.dereg_mr(mr.handle).unwrap();
        }
    }
    program.works(&memory);
    assert_eq!(wrapper.live_mrs(), 1);
    drop(wrapper);
    program.works(&memory);
}

#[test]
fn the_users_own_device_and_pd_stay_usable() {
    let fake = Fake::new("device rxe7\ndevice erdma_0");
    let program = Program::open(&fake.library(), "erdma_0");
    let library = Library::load(&LibrarySource::Path(fake.library())).unwrap();
    wrap_and_drop(&program, &library, "erdma_0");
    let alive = fake.counts();
    assert_eq!((alive.contexts, alive.pds, alive.mrs), (1, 1, 0));
    program.close();
    assert_eq!(fake.counts(), Counts::default());
}

#[test]
#[ignore = "needs a real verbs device"]
fn a_real_device_and_pd_stay_usable() {
    let name = name_of_the_real_one();
    let program = Program::open(Path::new("libibverbs.so.1"), &name);
    let library = Library::load(&LibrarySource::Default).unwrap();
    for _ in 0..3 {
        wrap_and_drop(&program, &library, &name);
    }
    program.close();
}
