//! Socket addresses in the kernel's form, made once and used for every datagram.

use std::fmt;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{c_void, sa_family_t, sockaddr_in, sockaddr_in6, socklen_t};

/// Room for either kind of address. 28 bytes rather than the 128 of `sockaddr_storage`, so that it
/// fits a cache line.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    family: sa_family_t,
    v4: sockaddr_in,
    v6: sockaddr_in6,
}

// `family` must be readable whichever address is stored.
const _: () =
    assert!(offset_of!(sockaddr_in, sin_family) == 0 && offset_of!(sockaddr_in6, sin6_family) == 0);

impl RawAddress {
    pub(crate) const CAPACITY: socklen_t = size_of::<RawAddress>() as socklen_t;

    pub(crate) const fn empty() -> Self {
        // SAFETY: all zeros is a valid sockaddr_in6, and that is the largest member.
        let v6 = unsafe { std::mem::zeroed() };
        Self { v6 }
    }

    fn new(address: SocketAddr) -> (Self, socklen_t) {
        let mut raw = Self::empty();
        match address {
            SocketAddr::V4(v4) => {
                raw.v4 = sockaddr_in {
                    sin_family: libc::AF_INET as sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                (raw, size_of::<sockaddr_in>() as socklen_t)
            }
            SocketAddr::V6(v6) => {
                raw.v6 = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                (raw, size_of::<sockaddr_in6>() as socklen_t)
            }
        }
    }

    /// The address that the kernel wrote, or None if it wrote neither an IPv4 nor an IPv6 one.
    pub(crate) fn to_socket_addr(self) -> Option<SocketAddr> {
        // SAFETY: the family says which member was written, and all of them are plain integers.
        unsafe {
            match i32::from(self.family) {
                libc::AF_INET => Some(SocketAddr::V4(SocketAddrV4::new(
                    Ipv4Addr::from(self.v4.sin_addr.s_addr.to_ne_bytes()),
                    u16::from_be(self.v4.sin_port),
                ))),
                libc::AF_INET6 => Some(SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(self.v6.sin6_addr.s6_addr),
                    u16::from_be(self.v6.sin6_port),
                    self.v6.sin6_flowinfo,
                    self.v6.sin6_scope_id,
                ))),
                _ => None,
            }
        }
    }
}

/// Where datagrams go, in the form `sendmsg` takes. Make one per peer and keep it.
#[derive(Clone, Copy)]
pub struct Destination {
    raw: RawAddress,
    length: socklen_t,
}

impl Destination {
    /// An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) becomes the IPv4 address it stands for: the
    /// sockets of this crate are either IPv4 or IPv6, never both.
    pub fn new(address: SocketAddr) -> Self {
        let (raw, length) = RawAddress::new(canonical(address));
        Self { raw, length }
    }

    /// The address this was made of (in its canonical form).
    pub fn address(&self) -> SocketAddr {
        self.raw.to_socket_addr().expect("made of a SocketAddr")
    }

    pub(crate) fn as_ptr(&self) -> *const c_void {
        (&raw const self.raw).cast()
    }

    pub(crate) fn length(&self) -> socklen_t {
        self.length
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self::new(address)
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Destination({})", self.address())
    }
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Destination {}

/// The same address with an IPv4-mapped IPv6 address turned into IPv4.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(_), IpAddr::V4(v4)) => SocketAddr::from((v4, address.port())),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in [
            "192.0.2.1:4791",
            "[2001:db8::1]:4792",
            "[fe80::1%3]:4793",
            "0.0.0.0:0",
            "[::]:65535",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Destination::new(address).address(), address, "{text}");
        }
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        let destination = Destination::new("[::ffff:192.0.2.1]:4791".parse().unwrap());
        assert_eq!(destination.address(), "192.0.2.1:4791".parse().unwrap());
        assert_eq!(destination.length(), 16);
    }

    #[test]
    fn bytes_are_in_network_order() {
        let destination = Destination::new("192.0.2.1:4791".parse().unwrap());
        // SAFETY: a sockaddr_in was stored.
        let v4 = unsafe { destination.raw.v4 };
        assert_eq!(v4.sin_port.to_ne_bytes(), [0x12, 0xb7]);
        assert_eq!(v4.sin_addr.s_addr.to_ne_bytes(), [192, 0, 2, 1]);
    }

    #[test]
    fn an_unknown_family_is_no_address() {
        assert_eq!(RawAddress::empty().to_socket_addr(), None);
    }
}
