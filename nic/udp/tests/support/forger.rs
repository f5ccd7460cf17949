//! A program that may write any bytes to a link.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Namespace;
use super::ends::{Ends, TTL};

pub(crate) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const IP_BYTES: usize = 20;
/// Of 802.1Q, behind the addresses.
const TAG_BYTES: usize = 4;

pub(crate) fn mac(namespace: &Namespace) -> (u32, [u8; 6]) {
    namespace.run(|| {
        let all = urxe_udp::interfaces().unwrap();
        let veth = all.into_iter().find(|one| one.name == "veth").unwrap();
        (veth.index, veth.mac.unwrap())
    })
}

/// A program that may write any bytes to the link.
pub(crate) struct Forger {
    socket: OwnedFd,
    ifindex: u32,
    to: [u8; 6],
}

impl Forger {
    /// On the left end of the link.
    pub(crate) fn new(ends: &Ends) -> Self {
        let (ifindex, _) = mac(&ends.pair.left);
        let socket = ends.pair.left.run(|| {
            // SAFETY: plain integers; a descriptor that is not negative is ours.
            unsafe {
                let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
                assert!(fd >= 0, "{}", io::Error::last_os_error());
                OwnedFd::from_raw_fd(fd)
            }
        });
        Self {
            socket,
            ifindex,
            to: mac(&ends.pair.right).1,
        }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: all zeros is a valid sockaddr_ll; the pointers and lengths are those of living
        // values.
        let sent = unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = self.ifindex as i32;
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }

    /// As a neighbour would send 16 bytes to this port of the right end, but for what `change` does
    /// to the frame before its header's checksum is written.
    pub(crate) fn packet(&self, port: u16, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(self.to);
        frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
        frame.extend([0x45, 0, 0, 44, 0, 0, 0x40, 0, TTL, 17, 0, 0]);
        frame.extend(LEFT.octets());
        frame.extend(RIGHT.octets());
        frame.extend(4791u16.to_be_bytes());
        frame.extend(port.to_be_bytes());
        // No checksum of UDP.
        frame.extend([0, 24, 0, 0]);
        frame.extend(*b"forged or not...");
        change(&mut frame);
        let is_tagged = frame[12..14] == [0x81, 0];
        let start = ETHERNET_BYTES + if is_tagged { TAG_BYTES } else { 0 };
        let header = &mut frame[start..start + IP_BYTES];
        let sum: u32 = header
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}
