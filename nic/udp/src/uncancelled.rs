//! System calls that are no cancellation points. A thread of the program that is cancelled
//! (pthread_cancel(3)) leaves a function of libc for such a call at once, and would leave locks
//! behind with it. These calls are made by number, as libc itself does inside, and fail the same
//! way: -1 and `errno`.

use libc::{
    SYS_ppoll, SYS_read, SYS_recvfrom, SYS_recvmmsg, SYS_recvmsg, SYS_sendmmsg, SYS_sendmsg,
    SYS_sendto, SYS_write, c_int, c_uint, c_void, mmsghdr, msghdr, nfds_t, pollfd, sigset_t,
    sockaddr, socklen_t, syscall, timespec,
};

/// sendmmsg(2).
///
/// # Safety
/// As its manual page says; the same for all that follow.
pub(crate) unsafe fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_sendmmsg, fd, messages, count, flags) as c_int }
}

/// recvmmsg(2), without a time limit.
pub(crate) unsafe fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let no_limit = std::ptr::null::<timespec>();
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_recvmmsg, fd, messages, count, flags, no_limit) as c_int }
}

/// sendmsg(2).
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_sendmsg, fd, message, flags) as isize }
}

/// recvmsg(2).
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_recvmsg, fd, message, flags) as isize }
}

/// sendto(2).
pub(crate) unsafe fn sendto(
    fd: c_int,
    bytes: *const c_void,
    length: usize,
    flags: c_int,
    to: *const sockaddr,
    to_bytes: socklen_t,
) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_sendto, fd, bytes, length, flags, to, to_bytes) as isize }
}

/// send(2).
pub(crate) unsafe fn send(fd: c_int, bytes: *const c_void, length: usize, flags: c_int) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { sendto(fd, bytes, length, flags, std::ptr::null(), 0) }
}

/// recvfrom(2).
pub(crate) unsafe fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    length: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_bytes: *mut socklen_t,
) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_recvfrom, fd, bytes, length, flags, from, from_bytes) as isize }
}

/// recv(2).
pub(crate) unsafe fn recv(fd: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> isize {
    let (nobody, nowhere) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: by the caller's promise.
    unsafe { recvfrom(fd, bytes, length, flags, nobody, nowhere) }
}

/// read(2).
pub(crate) unsafe fn read(fd: c_int, bytes: *mut c_void, length: usize) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_read, fd, bytes, length) as isize }
}

/// write(2).
pub(crate) unsafe fn write(fd: c_int, bytes: *const c_void, length: usize) -> isize {
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_write, fd, bytes, length) as isize }
}

/// ppoll(2), with the thread's own signal mask. The kernel writes what is left of the time to
/// `limit`.
pub(crate) unsafe fn ppoll(fds: *mut pollfd, count: nfds_t, limit: *mut timespec) -> c_int {
    let no_mask = std::ptr::null::<sigset_t>();
    // SAFETY: by the caller's promise.
    unsafe { syscall(SYS_ppoll, fds, count, limit, no_mask, 0_usize) as c_int }
}
