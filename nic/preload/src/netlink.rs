//! Netlink sockets of the protocol `NETLINK_RDMA`, on which programs ask for RDMA devices: `rdma`
//! of iproute2, UCX. A kernel without RDMA refuses them, and then the program gets one of ours.
//!
//! It is a Unix socket that keeps messages apart, with a thread at the other end that answers
//! ([`crate::nldev`]) until the program closes it. Such a socket ignores the address that a message
//! is for, so sending and receiving need nothing from us. The functions that give or ask for a
//! socket's address do: they know ours by the address that it has.
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{sockaddr, sockaddr_nl, sockaddr_un, socklen_t};

use crate::errno::{Convention, Errno, MinusOne, Outcome};
use crate::kernel_files::passes_through;
use crate::next::{Next, call_next};
use crate::{device, nldev};

const NETLINK_RDMA: c_int = 20;
/// Sockets have abstract addresses: this, which end it is, and a number in hexadecimal digits.
const NAME: &[u8; 5] = b"\0urnl";
const PROGRAMS_END: u8 = b'p';
const OUR_END: u8 = b'u';
/// Of a whole address: as long as a netlink address, which is what libmnl and libnl look at when a
/// message has come.
const ADDRESS_BYTES: usize = size_of::<sockaddr_nl>();
const DIGITS: usize = ADDRESS_BYTES - offset_of!(sockaddr_un, sun_path) - NAME.len() - 1;

/// Larger than any request that is answered.
const REQUEST_BYTES: usize = 8192;

/// `socket` of libc.
///
/// # Safety
/// None needed.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    static NEXT: Next = Next::libc(c"socket");
    let fd = call_next!(
        NEXT,
        fn(c_int, c_int, c_int) -> c_int,
        domain,
        kind,
        protocol
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)));
    if fd >= 0 || domain != libc::AF_NETLINK || protocol != NETLINK_RDMA || passes_through() {
        return fd;
    }
    let is_refused = Errno::of(&std::io::Error::last_os_error()) == Errno(libc::EPROTONOSUPPORT);
    if !is_refused {
        return fd;
    }
    MinusOne::raw(open(kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)))
}

/// A socket for the program, with these flags, and a thread that answers it.
fn open(flags: c_int) -> Outcome<c_int> {
    let last = || Errno::of(&std::io::Error::last_os_error());
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) } < 0 {
        return Err(last());
    }
    // SAFETY: just opened, and no other code knows them.
    let [programs, ours] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    name(&programs, PROGRAMS_END)?;
    name(&ours, OUR_END)?;
    let builder = std::thread::Builder::new()
        .name("urxe-netlink".into())
        .stack_size(1 << 18);
    urxe_device::with_signals_blocked(|| builder.spawn(move || answer_all(&ours)))
        .map_err(|error| Errno::of(&error))?;
    let fd = programs.into_raw_fd();
    // SAFETY: the program's flags, on the program's descriptor.
    unsafe {
        if flags & libc::SOCK_CLOEXEC == 0 {
            libc::fcntl(fd, libc::F_SETFD, 0);
        }
        if flags & libc::SOCK_NONBLOCK != 0 {
            libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
        }
    }
    Ok(fd)
}

/// Gives a socket an address that no other has.
fn name(socket: &OwnedFd, end: u8) -> Outcome<()> {
    static NEXT: Next = Next::libc(c"bind");
    static LAST: AtomicU32 = AtomicU32::new(0);
    const NUMBERS: u32 = 1 << (4 * DIGITS);
    for _ in 0..NUMBERS {
        let count = LAST.fetch_add(1, Ordering::Relaxed);
        let number = std::process::id().wrapping_mul(31).wrapping_add(count) % NUMBERS;
        let text = [&NAME[..], &[end], format!("{number:0DIGITS$x}").as_bytes()].concat();
        // SAFETY: all zeros is an address.
        let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(text) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let bound = call_next!(
            NEXT,
            fn(c_int, *const sockaddr, socklen_t) -> c_int,
            socket.as_raw_fd(),
            (&raw const address).cast(),
            ADDRESS_BYTES as socklen_t
        );
        if bound == Some(0) {
            return Ok(());
        }
        let errno = Errno::of(&std::io::Error::last_os_error());
        if errno != Errno(libc::EADDRINUSE) {
            return Err(errno);
        }
    }
    Err(Errno(libc::EADDRINUSE))
}

/// Answers until the program has closed its end.
fn answer_all(ours: &OwnedFd) {
    let mut request = vec![0u8; REQUEST_BYTES];
    loop {
        // SAFETY: the buffer has this length.
        let length = unsafe {
            libc::recv(
                ours.as_raw_fd(),
                request.as_mut_ptr().cast(),
                request.len(),
                0,
            )
        };
        let Ok(length @ 1..) = usize::try_from(length) else {
            return;
        };
        for answer in nldev::answers(&request[..length], &device::current()) {
            // SAFETY: the answer is readable. A program that has closed its end by now does not
            // miss it.
            unsafe {
                libc::send(
                    ours.as_raw_fd(),
                    answer.as_ptr().cast(),
                    answer.len(),
                    libc::MSG_NOSIGNAL,
                )
            };
        }
    }
}

/// Whether a socket is one of [`open`].
fn is_ours(fd: c_int) -> bool {
    // SAFETY: all zeros is an address, and there is room for the longest that a Unix socket has.
    unsafe {
        let mut address: sockaddr_un = std::mem::zeroed();
        let mut length = size_of::<sockaddr_un>() as socklen_t;
        real_getsockname(fd, (&raw mut address).cast(), &raw mut length) == 0
            && is_our_address((&raw const address).cast(), length)
    }
}

/// # Safety
/// `address` has `length` readable bytes.
unsafe fn is_our_address(address: *const u8, length: socklen_t) -> bool {
    if length as usize != ADDRESS_BYTES {
        return false;
    }
    // SAFETY: by the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(address, ADDRESS_BYTES) };
    let name = &bytes[offset_of!(sockaddr_un, sun_path)..];
    bytes[..2] == (libc::AF_UNIX as u16).to_ne_bytes()
        && name.starts_with(NAME)
        && name[NAME.len()] == PROGRAMS_END
}

/// # Safety
/// As its manual page says.
unsafe fn real_getsockname(fd: c_int, to: *mut sockaddr, length: *mut socklen_t) -> c_int {
    static NEXT: Next = Next::libc(c"getsockname");
    call_next!(
        NEXT,
        fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
        fd,
        to,
        length
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
}

/// `getsockname` of libc. Our netlink sockets have the number of the process as their port, as a
/// kernel's have.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    to: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        let room = if length.is_null() { 0 } else { *length };
        let status = real_getsockname(fd, to, length);
        if status == 0
            && room as usize >= ADDRESS_BYTES
            && is_our_address(to.cast_const().cast(), *length)
        {
            let mut address: sockaddr_nl = std::mem::zeroed();
            address.nl_family = libc::AF_NETLINK as u16;
            address.nl_pid = std::process::id();
            to.cast::<sockaddr_nl>().write_unaligned(address);
        }
        status
    }
}

/// `bind` of libc. A netlink socket of ours has its address already.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
    static NEXT: Next = Next::libc(c"bind");
    // SAFETY: by the caller's promise; the family comes first, and may not be aligned.
    let is_netlink = !to.is_null()
        && length as usize >= ADDRESS_BYTES
        && unsafe { to.cast::<u16>().read_unaligned() } == libc::AF_NETLINK as u16;
    if is_netlink && is_ours(fd) {
        return 0;
    }
    call_next!(
        NEXT,
        fn(c_int, *const sockaddr, socklen_t) -> c_int,
        fd,
        to,
        length
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
}

/// `setsockopt` of libc. A netlink socket of ours accepts netlink's options: they are about how
/// much is told of errors.
///
/// # Safety
/// As its manual page says.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    static NEXT: Next = Next::libc(c"setsockopt");
    if level == libc::SOL_NETLINK && is_ours(fd) {
        return 0;
    }
    call_next!(
        NEXT,
        fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
        fd,
        level,
        option,
        value,
        length
    )
    .unwrap_or_else(|| MinusOne::raw(Err(Errno::NOSYS)))
}
