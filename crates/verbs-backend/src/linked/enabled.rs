use std::ffi::c_void;
use std::ptr::NonNull;

use crate::sys::table::{Symbol, VerbsTable};

/// The address of a linked symbol, by name. Plain exported symbols only: the inline functions of rdma-sys that
/// reach `verbs_context` (all `*_ex`) compare with `u32::MAX` where C compares with `UINTPTR_MAX`, and never work.
macro_rules! linked {
    ($wanted:expr, $($name:ident),* $(,)?) => {
        match $wanted.name.to_bytes() {
            $(name if name == stringify!($name).as_bytes() => {
                NonNull::new(rdma_sys::$name as *const () as *mut c_void)
            })*
            _ => None,
        }
    };
}

/// The linked libibverbs. The linker took each symbol at the default version of the installed library, which the
/// headers that rdma-sys was made from belong to.
pub(crate) fn table() -> Option<VerbsTable> {
    let resolve = |symbol: Symbol| {
        linked!(
            symbol,
            ibv_get_device_list,
            ibv_free_device_list,
            ibv_get_device_name,
            ibv_open_device,
            ibv_close_device,
            ibv_query_device,
            ibv_query_port,
            ibv_query_gid,
            ibv_alloc_pd,
            ibv_dealloc_pd,
            ibv_reg_mr,
            ibv_dereg_mr,
            ibv_create_cq,
            ibv_destroy_cq,
            ibv_create_qp,
            ibv_modify_qp,
            ibv_destroy_qp,
            ibv_reg_mr_iova2,
            ibv_is_fork_initialized,
        )
    };
    // SAFETY: each address is that of the C function of the same name, resolved by the linker.
    unsafe { VerbsTable::fill(resolve) }.ok()
}
