//! XRC domains. A domain is opened with a file: a program that opens the same file gets the same
//! domain, as far as one opened device reaches. (The kernel's are shared between processes; ours,
//! whose devices are in the process, cannot be.)
use std::mem::MaybeUninit;

use urxe_device::Xrcd;

use crate::abi::*;
use crate::context::{FileId, OpenedDomain};
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Users};
use crate::object::INHERITED;
use crate::{context, convert, kind};

/// What stands behind an XRC domain.
pub(crate) struct XrcdState {
    pub(crate) xrcd: Xrcd,
    /// Queues and queue pairs in it, by this handle.
    pub(crate) users: Users,
    file: Option<FileId>,
}

type XrcdHandle = Handle<ibv_xrcd, XrcdState>;

/// The state of a domain of ours.
///
/// # Safety
/// `xrcd` is ours and live, and stays so while the reference lives.
pub(crate) unsafe fn state<'a>(xrcd: *mut ibv_xrcd) -> &'a XrcdState {
    // SAFETY: by the caller's promise.
    unsafe { XrcdHandle::state(xrcd) }
}

/// Whether it is the parent's, in the child of a fork.
///
/// # Safety
/// As for [`state`].
#[inline]
pub(crate) unsafe fn is_inherited(xrcd: *mut ibv_xrcd) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { XrcdHandle::is_inherited(xrcd) }
}

/// The state of a domain that a verb uses: EIO if it is the parent's.
///
/// # Safety
/// As for [`state`].
pub(crate) unsafe fn known<'a>(xrcd: *mut ibv_xrcd) -> Outcome<&'a XrcdState> {
    // SAFETY: by the caller's promise.
    unsafe {
        if is_inherited(xrcd) {
            return Err(INHERITED);
        }
        Ok(state(xrcd))
    }
}

/// Which file a descriptor is of; -1 is none.
fn file_of(fd: i32) -> Outcome<Option<FileId>> {
    if fd == -1 {
        return Ok(None);
    }
    let mut info = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the struct is only read if the call filled it in.
    unsafe {
        if libc::fstat(fd, info.as_mut_ptr()) != 0 {
            return Err(Errno::of(&std::io::Error::last_os_error()));
        }
        let info = info.assume_init();
        Ok(Some((info.st_dev, info.st_ino)))
    }
}

/// `ibv_open_xrcd`.
///
/// # Safety
/// `context` is ours and open, `attr` is null or readable.
pub(crate) unsafe fn open(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> Outcome<*mut ibv_xrcd> {
    const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    // SAFETY: by the caller's promise.
    if attr.is_null() || unsafe { (*attr).comp_mask } != NEEDED {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let (state, attr) = unsafe { (context::state(context), &*attr) };
    kind::check_roce(&state.nic)?;
    let (creates, is_exclusive) = (
        attr.oflags & libc::O_CREAT != 0,
        attr.oflags & libc::O_EXCL != 0,
    );
    let file = file_of(attr.fd)?;
    let mut opened = state.xrc_domains.lock();
    let known = opened.iter_mut().find(|known| Some(known.file) == file);
    let xrcd = match known {
        // The errors are Linux's.
        Some(_) if is_exclusive => return Err(Errno::INVAL),
        Some(known) => {
            known.handles += 1;
            known.xrcd
        }
        None if file.is_some() && !creates => return Err(Errno(libc::EAGAIN)),
        None => {
            let xrcd = state.nic.alloc_xrcd();
            opened.extend(file.map(|file| OpenedDomain {
                file,
                xrcd,
                handles: 1,
            }));
            xrcd
        }
    };
    drop(opened);
    state.users.add();
    let private = XrcdState {
        xrcd,
        users: Users::default(),
        file,
    };
    Ok(XrcdHandle::give(ibv_xrcd { context }, private))
}

/// `ibv_close_xrcd`.
///
/// # Safety
/// `xrcd` is ours and live; no thread uses it any more.
pub(crate) unsafe fn close(xrcd: *mut ibv_xrcd) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let (this, owner) = (state(xrcd), context::state((*xrcd).context));
        this.users.none_left()?;
        let mut opened = owner.xrc_domains.lock();
        let at = opened
            .iter()
            .position(|known| Some(known.file) == this.file);
        let is_last = at.is_none_or(|at| opened[at].handles == 1);
        if is_last {
            owner
                .nic
                .dealloc_xrcd(this.xrcd)
                .map_err(|error| convert::errno(&error))?;
        }
        if let Some(at) = at {
            opened[at].handles -= 1;
            opened.retain(|known| known.handles > 0);
        }
        drop(opened);
        owner.users.remove();
        drop(XrcdHandle::take_back(xrcd));
    }
    Ok(())
}
