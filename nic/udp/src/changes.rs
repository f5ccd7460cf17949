//! News of interfaces and addresses, and of routes and IPsec policies: rtnetlink(7) multicast, and
//! that of NETLINK_XFRM.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::protocols::{NETLINK_ROUTE, NETLINK_XFRM};
use netlink_sys::{Socket as NetlinkSocket, SocketAddr as NetlinkAddress};

use crate::uncancelled;
use crate::wait::{Interest, Waiter};

/// Groups of linux/rtnetlink.h, as bits: links, IPv4 addresses, IPv6 addresses.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// The same of IPv4 routes, and of the rules that choose among their tables.
const ROUTE_GROUPS: u32 = 0x40 | 0x80;
/// Of linux/xfrm.h: policies.
const POLICY_GROUP: u32 = 0x8;

/// Tells whether interfaces or addresses of this network namespace have changed.
#[derive(Debug)]
pub struct Changes {
    socket: NetlinkSocket,
    policies: Option<Policies>,
    process: u32,
}

/// News of policies besides.
#[derive(Debug)]
struct Policies {
    socket: NetlinkSocket,
    /// Readable when either socket is.
    either: Waiter,
}

impl Changes {
    /// Begins to listen. What changed before is not told.
    ///
    /// # Errors
    ///
    /// Those of socket(2): EPERM or EACCES where a sandbox forbids netlink.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            socket: socket(NETLINK_ROUTE, GROUPS)?,
            policies: None,
            process: std::process::id(),
        })
    }

    /// The same, and whether IPv4 routes have changed, or IPsec policies: these only where the
    /// process has CAP_NET_ADMIN.
    ///
    /// # Errors
    ///
    /// As [`Self::listen`].
    pub fn listen_to_routes() -> io::Result<Self> {
        let routes = socket(NETLINK_ROUTE, GROUPS | ROUTE_GROUPS)?;
        let policies = socket(NETLINK_XFRM, POLICY_GROUP).ok().map(|socket| {
            let either = Waiter::new()?;
            either.add(&as_fd(&routes), 0, Interest::READ)?;
            either.add(&as_fd(&socket), 0, Interest::READ)?;
            Ok::<_, io::Error>(Policies { socket, either })
        });
        Ok(Self {
            socket: routes,
            policies: policies.transpose()?,
            process: std::process::id(),
        })
    }

    /// Whether this process made it; after fork(2), parent and child would take the news from each
    /// other.
    pub fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Whether anything has changed since the last call. Its descriptor is readable until then.
    pub fn has_changed(&self) -> bool {
        let policies = self.policies.as_ref();
        let has_policies = policies.is_some_and(|policies| has_news(&policies.socket));
        has_news(&self.socket) || has_policies
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.policies {
            Some(policies) => policies.either.as_fd(),
            None => as_fd(&self.socket),
        }
    }
}

fn socket(protocol: isize, groups: u32) -> io::Result<NetlinkSocket> {
    let mut socket = NetlinkSocket::new(protocol)?;
    socket.bind(&NetlinkAddress::new(0, groups))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

fn as_fd(socket: &NetlinkSocket) -> BorrowedFd<'_> {
    // SAFETY: the socket lives as long as the borrow.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// Whether anything was told since the last call.
fn has_news(socket: &NetlinkSocket) -> bool {
    let mut has_news = false;
    loop {
        let mut byte = 0u8;
        // SAFETY: one byte of room; the rest of the message is dropped.
        let got = unsafe {
            uncancelled::recv(
                socket.as_raw_fd(),
                (&raw mut byte).cast(),
                1,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        if got >= 0 {
            has_news = true;
            continue;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR) => {}
            // More news than the socket holds: some is lost, but that there was some is not.
            Some(libc::ENOBUFS) => has_news = true,
            _ => return has_news,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_by_itself() {
        for listen in [Changes::listen, Changes::listen_to_routes] {
            let changes = listen().unwrap();
            let _ = changes.has_changed();
            crate::interfaces().unwrap();
            // Other tests of this machine may change something, but not all the time.
            assert!((0..100).any(|_| !changes.has_changed()));
        }
    }
}
