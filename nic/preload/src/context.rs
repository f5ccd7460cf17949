//! What stands behind contexts: one NIC each.
use std::os::fd::OwnedFd;
use std::sync::{Arc, Once};

use urxe_device::{Mutex, Nic, Xrcd};

use crate::abi::*;
use crate::dispatch::Dispatch;
use crate::errno::Outcome;
use crate::handle::{Handle, Users};
use crate::of_process::OfProcess;
use crate::registry::Registry;
use crate::{convert, device};

/// What stands behind a context.
pub(crate) struct ContextState {
    /// The device, opened.
    pub(crate) nic: Arc<Nic>,
    /// The objects that asynchronous events name.
    pub(crate) events: Arc<Registry>,
    /// Protection domains, queues and channels that were not destroyed.
    pub(crate) users: Users,
    /// What programs take for the kernel's device.
    pub(crate) _descriptor: Option<OwnedFd>,
    /// What functions of libibverbs that we do not know call.
    pub(crate) _dispatch: Option<Dispatch>,
    /// XRC domains that were opened with a file.
    pub(crate) xrc_domains: Mutex<Vec<OpenedDomain>>,
}

/// A file: its device and inode.
pub(crate) type FileId = (u64, u64);

/// A domain that has a file, and how often it is open.
pub(crate) struct OpenedDomain {
    pub(crate) file: FileId,
    pub(crate) xrcd: Xrcd,
    pub(crate) handles: u32,
}

pub(crate) type Context = Handle<verbs_context, OfProcess<ContextState>>;

/// The state of an open context of ours.
///
/// # Safety
/// `context` is ours and open, and stays open while the reference lives.
pub(crate) unsafe fn state<'a>(context: *mut ibv_context) -> &'a ContextState {
    // SAFETY: by the caller's promise.
    unsafe { Context::state(verbs_context_of(context)) }
}

impl ContextState {
    pub(crate) fn of(nic: Arc<Nic>) -> Self {
        Self {
            nic,
            events: Arc::default(),
            users: Users::default(),
            _descriptor: None,
            _dispatch: None,
            xrc_domains: Mutex::default(),
        }
    }
}

/// Whether a context is the parent's. Unless it is to be closed, it is not from now on: a device of
/// this process stands behind it.
///
/// # Safety
/// `context` is ours and open.
pub(crate) unsafe fn is_inherited(context: *mut ibv_context, ends: bool) -> Outcome<bool> {
    // SAFETY: by the caller's promise.
    let state = unsafe { Context::state(verbs_context_of(context)) };
    if !ends {
        state.renew(|_| {
            // SAFETY: the device of a context of ours.
            let nic = unsafe { open_nic((*context).device) }?;
            // SAFETY: by the caller's promise. The descriptor of before is of the parent's events.
            unsafe { (*context).async_fd = nic.event_fd() };
            Ok(ContextState::of(nic))
        })?;
    }
    Ok(state.is_inherited())
}

/// # Safety
/// `device` is one of ours.
pub(crate) unsafe fn open_nic(device: *mut ibv_device) -> Outcome<Arc<Nic>> {
    // SAFETY: by the caller's promise.
    let info = unsafe { device::info(device) };
    let nic = Nic::open(&info).map_err(|error| {
        log::error!("cannot open {}: {error}", info.name);
        convert::errno(&error)
    })?;
    flush_at_exit();
    Ok(nic)
}

/// Lets the devices send what they owe their peers when the program returns or calls exit: a peer
/// must not take the last acknowledgement for lost because this end was quick to leave.
pub(crate) fn flush_at_exit() {
    extern "C" fn flush() {
        urxe_device::at_exit();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function may be called at any time. That it cannot be registered only costs a
        // retransmission.
        unsafe { libc::atexit(flush) };
    });
}

/// `ibv_close_device`. Objects that the program did not destroy keep the NIC alive and are lost, as
/// the memory behind them would be with any device.
///
/// # Safety
/// `context` is ours and open; no thread uses it any more.
pub(crate) unsafe fn close(context: *mut ibv_context) -> Outcome<std::ffi::c_int> {
    // SAFETY: by the caller's promise.
    let left_over = unsafe { state(context) }.users.none_left().is_err();
    if left_over {
        log::info!("a context was closed before all of its objects were destroyed");
        // SAFETY: by the caller's promise. The objects still point to the context.
        unsafe { state(context) }.nic.close();
        return Ok(0);
    }
    // SAFETY: by the caller's promise, and no object refers to it.
    unsafe {
        // The background thread would keep the device, and its ports, until the next packet.
        state(context).nic.close();
        drop(Context::take_back(verbs_context_of(context)));
    }
    Ok(0)
}
