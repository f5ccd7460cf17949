//! Opening and closing a device: a full `verbs_context`, one NIC behind each.
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Once};

use parking_lot::Mutex;
use urxe_device::Nic;

use crate::abi::*;
use crate::dispatch::Dispatch;
use crate::errno::Outcome;
use crate::handle::{Handle, Users};
use crate::of_process::OfProcess;
use crate::{convert, descriptors, device, events, operations, xrc};

/// What stands behind a context.
pub(crate) struct ContextState {
    /// The device, opened.
    pub(crate) nic: Arc<Nic>,
    /// The objects that asynchronous events name.
    pub(crate) events: Arc<events::Registry>,
    /// Protection domains, queues and channels that were not destroyed.
    pub(crate) users: Users,
    /// What programs take for the kernel's device.
    _descriptor: Option<OwnedFd>,
    /// What functions of libibverbs that we do not know call.
    _dispatch: Option<Dispatch>,
    /// XRC domains that were opened with a file.
    pub(crate) xrc_domains: Mutex<Vec<xrc::Opened>>,
}

type Context = Handle<verbs_context, OfProcess<ContextState>>;

/// The state of an open context of ours.
///
/// # Safety
/// `context` is ours and open, and stays open while the reference lives.
pub(crate) unsafe fn state<'a>(context: *mut ibv_context) -> &'a ContextState {
    // SAFETY: by the caller's promise.
    unsafe { Context::state(verbs_context_of(context)) }
}

impl ContextState {
    fn of(nic: Arc<Nic>) -> Self {
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

/// Whether a context is the parent's. Unless it is to be closed, it is not from now on: a device of this process stands behind it.
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
unsafe fn open_nic(device: *mut ibv_device) -> Outcome<Arc<Nic>> {
    // SAFETY: by the caller's promise.
    let info = unsafe { device::info(device) };
    let nic = Nic::open(&info).map_err(|error| {
        log::error!("cannot open {}: {error}", info.name);
        convert::errno(&error)
    })?;
    flush_at_exit();
    Ok(nic)
}

/// `ibv_open_device`.
///
/// # Safety
/// `device` is one of ours.
pub(crate) unsafe fn open(device: *mut ibv_device) -> Outcome<*mut ibv_context> {
    // SAFETY: by the caller's promise.
    let nic = unsafe { open_nic(device) }?;
    let mut vctx = verbs_context {
        sz: size_of::<verbs_context>(),
        ..verbs_context::default()
    };
    operations::fill(&mut vctx);
    // SAFETY: by the caller's promise.
    let dispatch = unsafe { Dispatch::new(device) };
    match &dispatch {
        Some(dispatch) => dispatch.lend(&mut vctx),
        None => log::warn!(
            "libibverbs here has no constructor for drivers' contexts that urxe knows; functions of it that are newer \
             than urxe end the program"
        ),
    }
    vctx.context.device = device;
    vctx.context.abi_compat = ABI_IS_EXTENDED;
    let descriptor = descriptors::open_device()?;
    vctx.context.cmd_fd = descriptor.as_raw_fd();
    vctx.context.async_fd = nic.event_fd();
    vctx.context.num_comp_vectors = 1;
    let state = ContextState {
        _descriptor: Some(descriptor),
        _dispatch: dispatch,
        ..ContextState::of(nic)
    };
    let vctx = Context::give(vctx, OfProcess::new(state));
    // SAFETY: just made.
    Ok(unsafe { &raw mut (*vctx).context })
}

/// Lets the devices send what they owe their peers when the program returns or calls exit: a peer must
/// not take the last acknowledgement for lost because this end was quick to leave.
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
/// `context` is ours and open; nobody uses it any more.
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
