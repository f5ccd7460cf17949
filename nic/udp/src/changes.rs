//! News of interfaces and addresses: rtnetlink(7) multicast.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket as NetlinkSocket, SocketAddr as NetlinkAddress};

/// Groups of linux/rtnetlink.h, as bits: links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// Tells whether interfaces or addresses of this network namespace have changed.
#[derive(Debug)]
pub struct Changes {
    socket: NetlinkSocket,
    process: u32,
}

impl Changes {
    /// Begins to listen. What changed before is not told.
    ///
    /// # Errors
    ///
    /// Those of socket(2): EPERM or EACCES where a sandbox forbids netlink.
    pub fn listen() -> io::Result<Self> {
        let mut socket = NetlinkSocket::new(NETLINK_ROUTE)?;
        socket.bind(&NetlinkAddress::new(0, GROUPS))?;
        socket.set_non_blocking(true)?;
        Ok(Self {
            socket,
            process: std::process::id(),
        })
    }

    /// Whether this process made it; after fork(2), parent and child would take the news from each other.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether anything has changed since the last call. Its descriptor is readable until then.
    pub fn has_changed(&self) -> bool {
        let mut has_changed = false;
        loop {
            let mut byte = 0u8;
            // SAFETY: one byte of room; the rest of the message is dropped.
            let got = unsafe {
                libc::recv(
                    self.socket.as_raw_fd(),
                    (&raw mut byte).cast(),
                    1,
                    libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                )
            };
            if got >= 0 {
                has_changed = true;
                continue;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // More news than the socket holds: some is lost, but that there was some is not.
                Some(libc::ENOBUFS) => has_changed = true,
                _ => return has_changed,
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_by_itself() {
        let changes = Changes::listen().unwrap();
        let _ = changes.has_changed();
        crate::interfaces().unwrap();
        // Other tests of this machine may change something, but not all the time.
        assert!((0..100).any(|_| !changes.has_changed()));
    }
}
