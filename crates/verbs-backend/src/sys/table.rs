//! The functions of libibverbs that hugemr calls, as one table that is filled at run time or by the linker.

use std::ffi::CStr;

use libc::{c_char, c_int, c_uint, c_void};

use super::types::*;

/// One symbol: its name and the version at which it is pinned. libibverbs exports several `ibv_reg_mr` with
/// different structures behind them (`IBVERBS_1.0` and `IBVERBS_1.1`), so a bare name is not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: &'static CStr,
    pub version: &'static CStr,
}

macro_rules! table {
    (
        $(#[$doc:meta])* $table:ident
        required { $($name:ident @ $version:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)* }
        optional { $($oname:ident @ $oversion:literal: fn($($oarg:ty),*) $(-> $oret:ty)?;)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $table {
            $(pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
            $(pub $oname: Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,)*
        }

        impl $table {
            /// Fills the table from what `resolve` finds.
            ///
            /// # Safety
            /// `resolve` returns the address of the C function of that name with the signature of the C header, valid
            /// for the rest of the process.
            ///
            /// # Errors
            /// The first required symbol that was not found.
            pub unsafe fn fill(
                mut resolve: impl FnMut($crate::sys::table::Symbol) -> Option<std::ptr::NonNull<c_void>>,
            ) -> Result<Self, $crate::sys::table::Symbol> {
                let mut find = |name: &'static str, version: &'static std::ffi::CStr| {
                    // The names below are string literals that end in NUL.
                    let name = std::ffi::CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or(c"");
                    let symbol = $crate::sys::table::Symbol { name, version };
                    resolve(symbol).ok_or(symbol)
                };
                $(
                    let $name = find(concat!(stringify!($name), "\0"), $version)?;
                    // SAFETY: the caller promises that this is the function of that name and signature.
                    let $name = unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                        >($name.as_ptr())
                    };
                )*
                $(
                    let $oname = find(concat!(stringify!($oname), "\0"), $oversion).ok();
                    // SAFETY: as above; a missing one stays `None`, which is how Rust writes a null function.
                    let $oname = unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            Option<unsafe extern "C" fn($($oarg),*) $(-> $oret)?>,
                        >($oname.map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr))
                    };
                )*
                Ok(Self { $($name,)* $($oname,)* })
            }
        }
    };
}

pub(crate) use table;

table! {
    /// Entry points of one libibverbs.
    VerbsTable
    required {
        ibv_get_device_list @ c"IBVERBS_1.1": fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list @ c"IBVERBS_1.1": fn(*mut *mut ibv_device);
        ibv_get_device_name @ c"IBVERBS_1.1": fn(*mut ibv_device) -> *const c_char;
        ibv_open_device @ c"IBVERBS_1.1": fn(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device @ c"IBVERBS_1.1": fn(*mut ibv_context) -> c_int;
        ibv_query_device @ c"IBVERBS_1.1": fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port @ c"IBVERBS_1.1": fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid @ c"IBVERBS_1.1": fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        ibv_alloc_pd @ c"IBVERBS_1.1": fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd @ c"IBVERBS_1.1": fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr @ c"IBVERBS_1.1": fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr @ c"IBVERBS_1.1": fn(*mut ibv_mr) -> c_int;
        ibv_create_cq @ c"IBVERBS_1.1": fn(*mut ibv_context, c_int, *mut c_void, *mut c_void, c_int) -> *mut ibv_cq;
        ibv_destroy_cq @ c"IBVERBS_1.1": fn(*mut ibv_cq) -> c_int;
        ibv_create_qp @ c"IBVERBS_1.1": fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp @ c"IBVERBS_1.1": fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_destroy_qp @ c"IBVERBS_1.1": fn(*mut ibv_qp) -> c_int;
    }
    optional {
        ibv_reg_mr_iova2 @ c"IBVERBS_1.8": fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
        ibv_is_fork_initialized @ c"IBVERBS_1.13": fn() -> c_uint;
    }
}
