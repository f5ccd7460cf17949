//! System calls that send and receive datagrams, each as a variant has it.

use std::os::fd::AsRawFd;
use std::ptr;

use libc::{c_int, c_void};
use urxe_udp::{Destination, Framing, Piece, RecvBuffer, Socket, Transmit};

use crate::Ends;

pub(crate) fn split(bytes: &'static [u8], pieces: usize) -> Vec<Piece<'static>> {
    let (last, each) = (pieces - 1, bytes.len() / pieces);
    let mut all: Vec<_> = bytes[..last * each]
        .chunks(each.max(1))
        .map(Piece::new)
        .collect();
    all.push(Piece::new(&bytes[last * each..]));
    assert_eq!(all.len(), pieces);
    all
}

pub(crate) fn sendmsg(
    ends: Ends,
    pieces: Vec<Piece<'static>>,
    segment_size: Option<u16>,
    tos: u8,
) -> Box<dyn FnMut()> {
    Box::new(move || {
        let sent = ends
            .left
            .send(&Transmit {
                destination: ends.to,
                segment_size,
                tos,
                framing: Framing::Never,
                whole: None,
                iov: &pieces,
            })
            .unwrap();
        assert!(sent.lost.is_none());
    })
}

pub(crate) fn recvmsg(socket: &'static Socket) -> Box<dyn FnMut() -> usize> {
    let mut buffer = RecvBuffer::new();
    Box::new(move || {
        socket
            .receive(&mut buffer)
            .unwrap()
            .map_or(0, |meta| meta.segments())
    })
}

pub(crate) fn recvfrom(socket: &'static Socket, named: bool) -> Box<dyn FnMut() -> usize> {
    let mut buffer = vec![0_u8; 1 << 16];
    Box::new(move || {
        let mut name = [0_u8; 28];
        let mut name_bytes = size_of_val(&name) as libc::socklen_t;
        let (name, name_bytes) = if named {
            (name.as_mut_ptr().cast(), &raw mut name_bytes)
        } else {
            (ptr::null_mut(), ptr::null_mut())
        };
        // SAFETY: pointers and lengths describe the buffer and the address.
        let received = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                name,
                name_bytes,
            )
        };
        usize::from(received >= 0)
    })
}

/// What a receive asks for beside the bytes.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    pub name: bool,
    pub control: bool,
}

pub(crate) fn raw_recvmsg(socket: &'static Socket, parts: Parts) -> Box<dyn FnMut() -> usize> {
    let mut buffer = vec![0_u8; 1 << 16];
    Box::new(move || {
        let (mut name, mut control) = ([0_u8; 28], [0_u64; 16]);
        let mut iov = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all zeros is a valid msghdr; pointers and lengths describe what they are set to.
        let received = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut iov;
            message.msg_iovlen = 1;
            if parts.name {
                message.msg_name = name.as_mut_ptr().cast();
                message.msg_namelen = size_of_val(&name) as libc::socklen_t;
            }
            if parts.control {
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&control);
            }
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0)
        };
        usize::from(received >= 0)
    })
}

pub(crate) fn raw_send(socket: &Socket, to: Option<&Destination>, bytes: &[u8]) {
    let address = to.map(|to| match to.address() {
        std::net::SocketAddr::V4(v4) => v4,
        std::net::SocketAddr::V6(_) => unreachable!("the links are IPv4"),
    });
    let raw = address.map(|v4| libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: v4.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(v4.ip().octets()),
        },
        sin_zero: [0; 8],
    });
    let (name, length) = raw.as_ref().map_or((ptr::null(), 0), |raw| {
        (ptr::from_ref(raw).cast(), size_of_val(raw))
    });
    // SAFETY: pointers and lengths describe the bytes and the address.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast::<c_void>(),
            bytes.len(),
            0,
            name,
            length as u32,
        )
    };
    assert_eq!(sent, bytes.len() as isize);
}

pub(crate) fn set_segment_size(socket: &Socket, size: usize) {
    let size = size as c_int;
    // SAFETY: pointer and length describe an int.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            4,
        )
    };
    assert_eq!(status, 0);
}
