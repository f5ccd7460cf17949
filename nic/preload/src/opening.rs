//! Opening a device: a full `verbs_context`.
use std::os::fd::AsRawFd;

use crate::abi::*;
use crate::context::{Context, ContextState, open_nic};
use crate::dispatch::Dispatch;
use crate::errno::Outcome;
use crate::of_process::OfProcess;
use crate::{descriptors, operations};

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
