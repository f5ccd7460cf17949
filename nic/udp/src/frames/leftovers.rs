//! What is left to do when packet sockets end, for which no caller has to wait.
//!
//! The kernel lets a thread that ends one wait until no processor can be amid a packet for it
//! (`synchronize_net` in `packet_release`, and for a ring once more in `packet_set_ring`). That is
//! 10 ms and more each, five times for the three sockets of an address. So threads of their own
//! wait. Descriptors are free at once; the memory of a ring is when its thread has ended.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use crate::inherited::Private;
use crate::threads::with_signals_blocked;

/// How often to look whether the thread that closes a descriptor has begun to.
const LOOK: Duration = Duration::from_micros(20);
/// Enough for a system call.
const STACK_BYTES: usize = 64 << 10;

/// Does `work` on a thread of its own, or here if there can be none.
pub(super) fn in_background(work: impl FnOnce() + Send + 'static) {
    let builder = thread::Builder::new()
        .name("urxe-closing".into())
        .stack_size(STACK_BYTES);
    // Without a thread the work is dropped, which has to do it as well.
    let _ = with_signals_blocked(|| builder.spawn(work));
}

/// Closes a packet socket: its number is free when this returns.
pub(super) fn close(socket: Private<OwnedFd>) {
    let number = socket.as_raw_fd();
    let own = identity(number);
    in_background(move || drop(socket));
    // The kernel frees the number first.
    while own.is_some() && identity(number) == own {
        thread::sleep(LOOK);
    }
}

/// What tells the file behind a descriptor from any other: device and inode.
fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is only read if the call has filled it.
    unsafe {
        let found = libc::fstat(fd, status.as_mut_ptr()) == 0;
        found.then(|| {
            let status = status.assume_init();
            (status.st_dev, status.st_ino)
        })
    }
}
