//! setsockopt and getsockopt for plain values.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::address::Destination;

use libc::{c_int, c_void, socklen_t};

/// Sets an option whose value is `T`, usually a `c_int`.
pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which lives until the call returns.
    let status = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast::<c_void>(),
            size_of::<T>() as socklen_t,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads an option whose value is an integer.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value = MaybeUninit::<[c_int; 1]>::zeroed();
    get_ints(fd, level, name, &mut value).map(|ints| ints[0])
}

/// Reads an option whose value is an array of at most `N` integers; integers that the kernel does
/// not fill stay 0.
pub(crate) fn get_ints<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut MaybeUninit<[c_int; N]>,
) -> io::Result<[c_int; N]> {
    *value = MaybeUninit::zeroed();
    let mut length = size_of::<[c_int; N]>() as socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast::<c_void>(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed above, and every bit pattern is an integer.
    Ok(unsafe { value.assume_init() })
}

pub(crate) fn bind_fd(fd: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let raw = Destination::new(address);
    // SAFETY: pointer and length describe `raw`.
    let status = unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr().cast(), raw.length()) };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
