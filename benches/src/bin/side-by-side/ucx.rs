//! The page table of UCX, from the installed library: what its registration cache finds an MR with.
//!
//! `ucs_pgtable_*` are exported by `libucs.so.0`; declared in UCX's public header `ucs/datastruct/pgtable.h` (1.13). Of its structures
//! only the region is looked into: two addresses, the end exclusive. The table and its directories stay opaque, in more
//! room than they need (48 and 136 bytes in 1.13). That all of this is so is checked by what the table answers.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::ptr::NonNull;

/// Room for what is opaque, aligned as the header asks (16 bytes).
#[repr(C, align(64))]
struct Opaque([u64; 64]);

/// A region with what a user of the table puts behind it: as in UCX, where the region is the head of a larger structure.
#[repr(C, align(64))]
pub(crate) struct Region {
    start: c_ulong,
    /// Exclusive.
    end: c_ulong,
    key: u32,
}

type Allocate = unsafe extern "C" fn(*const Opaque) -> *mut Opaque;
type Release = unsafe extern "C" fn(*const Opaque, *mut Opaque);
type Init = unsafe extern "C" fn(*mut Opaque, Allocate, Release) -> c_int;
type Insert = unsafe extern "C" fn(*mut Opaque, *mut Region) -> c_int;
type Lookup = unsafe extern "C" fn(*const Opaque, c_ulong) -> *mut Region;
type Remove = unsafe extern "C" fn(*mut Opaque, *mut Region) -> c_int;
type Cleanup = unsafe extern "C" fn(*mut Opaque);

/// A table of regions, all of one address space.
pub(crate) struct PageTable {
    table: Box<Opaque>,
    lookup: Lookup,
    remove: Remove,
    cleanup: Cleanup,
    /// Given to the library by address, so they must not move.
    regions: Box<[Region]>,
}

const DIRECTORY: Layout = Layout::new::<Opaque>();

/// # Safety
/// None is needed: the argument is not looked at.
unsafe extern "C" fn allocate(_: *const Opaque) -> *mut Opaque {
    // SAFETY: the layout is not empty.
    unsafe { alloc_zeroed(DIRECTORY) }.cast()
}

/// # Safety
/// `directory` came from `allocate` and is not used any more.
unsafe extern "C" fn release(_: *const Opaque, directory: *mut Opaque) {
    // SAFETY: the library gives back what `allocate` gave it, once.
    unsafe { dealloc(directory.cast(), DIRECTORY) };
}

/// A handle of dlopen that is never closed.
struct Library(NonNull<c_void>);

impl Library {
    fn open(name: &CStr) -> Option<Self> {
        // SAFETY: the name is a C string; the constructors of the library are its own affair, as for every program that uses it.
        NonNull::new(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
            .map(Self)
    }

    /// # Safety
    /// `F` is the type of that function.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: the handle is open, the name a C string.
        let symbol = NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })?;
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: a pointer to a function, of the type that the caller promises.
        Some(unsafe { std::mem::transmute_copy(&symbol) })
    }
}

impl PageTable {
    /// A table of `(start, length)`, whose keys are their numbers.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn new(mrs: &[(u64, u64)]) -> Result<Self, String> {
        let library =
            Library::open(c"libucs.so.0").ok_or("UCX is not installed (Debian: libucx0)")?;
        let none = "libucs.so.0 has no ucs_pgtable";
        // SAFETY: the types are those of the header.
        let init: Init = unsafe { library.function(c"ucs_pgtable_init") }.ok_or(none)?;
        // SAFETY: as above.
        let insert: Insert = unsafe { library.function(c"ucs_pgtable_insert") }.ok_or(none)?;
        // SAFETY: as above.
        let lookup: Lookup = unsafe { library.function(c"ucs_pgtable_lookup") }.ok_or(none)?;
        // SAFETY: as above.
        let remove: Remove = unsafe { library.function(c"ucs_pgtable_remove") }.ok_or(none)?;
        // SAFETY: as above.
        let cleanup: Cleanup = unsafe { library.function(c"ucs_pgtable_cleanup") }.ok_or(none)?;
        let regions = mrs.iter().zip(0u32..).map(|(&(start, len), key)| Region {
            start,
            end: start + len,
            key,
        });
        let mut made = Self {
            table: Box::new(Opaque([0; 64])),
            lookup,
            remove,
            cleanup,
            regions: regions.collect(),
        };
        // SAFETY: the table has room for what the library keeps there, and the callbacks keep their types.
        let code = unsafe { init(&raw mut *made.table, allocate, release) };
        if code != 0 {
            return Err(format!("ucs_pgtable_init answered {code}"));
        }
        for region in &mut made.regions {
            // SAFETY: the table is initialised; the region is aligned and stays where it is until it is removed.
            let code = unsafe { insert(&raw mut *made.table, &raw mut *region) };
            if code != 0 {
                return Err(format!("ucs_pgtable_insert answered {code}"));
            }
        }
        made.check(mrs)?;
        Ok(made)
    }

    /// Our view of the structures is right if every border is found where it is.
    fn check(&self, mrs: &[(u64, u64)]) -> Result<(), String> {
        for (&(start, len), number) in mrs.iter().zip(0u32..) {
            let inside = [start, start + len / 2, start + len - 8];
            if inside.iter().any(|at| self.key(*at, 8) != Some(number)) {
                return Err("this UCX's page table answers otherwise than its header says".into());
            }
        }
        Ok(())
    }

    /// The key of the region that holds `[at, at + len)`.
    #[inline(always)]
    pub(crate) fn key(&self, at: u64, len: u64) -> Option<u32> {
        // SAFETY: the table is initialised and nobody changes it.
        let found = unsafe { (self.lookup)(&raw const *self.table, at) };
        // SAFETY: null, or one of the regions that were inserted.
        let region = unsafe { found.as_ref() }?;
        (at + len <= region.end).then_some(region.key)
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        for region in &mut self.regions {
            // SAFETY: a region that was not inserted is refused by the library, others are taken out.
            unsafe { (self.remove)(&raw mut *self.table, &raw mut *region) };
        }
        // SAFETY: initialised (where it was not, it is all zero: an empty table), and empty now.
        unsafe { (self.cleanup)(&raw mut *self.table) };
    }
}
