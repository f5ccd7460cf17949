//! The C side: what bindgen read from <infiniband/verbs.h>, and the little that lies behind it.
//!
//! `ibv_device` is only the first part of a device: libmlx5 and libefa look at the word behind it
//! to tell whether a device is theirs (`mlx5dv_is_supported`, `efadv_query_device`). So a device of
//! ours is laid out the same way and that word points to a table that no other device has.

#[allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unnameable_types,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
mod generated {
    include!("../bindings/verbs.rs");
}
pub(crate) use generated::*;

use std::ffi::{c_char, c_void};
use std::mem::offset_of;
use std::sync::atomic::AtomicU32;

/// The head of `struct verbs_device_ops` of rdma-core's driver interface, version 34 and later: a
/// name, and pointers that only libibverbs calls and only for devices it made itself. Longer than
/// any known version of it, so that a reader finds null pointers and not our neighbours.
#[repr(C)]
pub(crate) struct DeviceOps {
    /// Name of the driver.
    name: *const c_char,
    /// ABI range, match table, callbacks: all absent.
    absent: [usize; 15],
}

// SAFETY: immutable, and `name` points to a constant.
unsafe impl Sync for DeviceOps {}

/// Marks a device as ours.
pub(crate) static DEVICE_OPS: DeviceOps = DeviceOps {
    name: c"urxe".as_ptr(),
    absent: [0; 15],
};

/// The head of `struct verbs_device`: what follows (list entry, sysfs data) is private to
/// libibverbs, and zero here.
#[repr(C)]
pub(crate) struct VerbsDevice {
    /// The public part.
    pub(crate) device: ibv_device,
    /// Whose device it is.
    pub(crate) ops: *const DeviceOps,
    /// libibverbs counts the contexts that it made for it, and would free it at zero.
    references: AtomicU32,
    /// What only libibverbs uses.
    private: [usize; 8],
}

impl VerbsDevice {
    /// A device of ours, which stays for ever: one reference is the process's own.
    pub(crate) const fn new(device: ibv_device) -> Self {
        Self {
            device,
            ops: &raw const DEVICE_OPS,
            references: AtomicU32::new(1),
            private: [0; 8],
        }
    }
}

/// `context.abi_compat` of a context that is the end of a `verbs_context`.
pub(crate) const ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// Whether `device` is one of ours. Null is not.
///
/// # Safety
/// `device` is null or a device that an `ibv_get_device_list` returned (libibverbs or ours): both
/// are laid out as [`VerbsDevice`].
pub(crate) unsafe fn is_our_device(device: *const ibv_device) -> bool {
    if device.is_null() {
        return false;
    }
    // SAFETY: by the caller's promise there is a pointer behind the device.
    unsafe { (*device.cast::<VerbsDevice>()).ops == &raw const DEVICE_OPS }
}

/// Whether `context` belongs to one of our devices. Null does not.
///
/// # Safety
/// `context` is null or an open context.
pub(crate) unsafe fn is_our_context(context: *const ibv_context) -> bool {
    // SAFETY: an open context has a device.
    !context.is_null() && unsafe { is_our_device((*context).device) }
}

/// The `verbs_context` around a `context` that has one.
pub(crate) fn verbs_context_of(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

#[allow(non_camel_case_types, reason = "the names of the C header")]
mod newer;
pub(crate) use newer::*;

#[cfg(test)]
mod layout;
