//! The far end of a link between the interfaces `near` and `far`, by raw frames.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// See the module. The network namespace is one of the test's own.
pub struct WireEnd {
    socket: OwnedFd,
    far: u32,
    /// The address of `near`.
    pub near_mac: [u8; 6],
}

impl WireEnd {
    pub fn open() -> Self {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        Self {
            socket,
            far: interface("far").index,
            near_mac: interface("near").mac.unwrap(),
        }
    }

    /// What leaves the far end of the link.
    pub fn put(&self, frame: &[u8]) {
        // SAFETY: all zeros is a valid sockaddr_ll; the pointers and lengths are those of living
        // values.
        let sent = unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = self.far as i32;
            libc::sendto(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of_val(&address) as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize);
    }
}

fn interface(name: &str) -> urxe_udp::Interface {
    let all = urxe_udp::interfaces().unwrap();
    all.into_iter().find(|one| one.name == name).unwrap()
}
