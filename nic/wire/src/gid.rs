//! Global identifiers: how InfiniBand writes an IP address.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A global identifier. For RoCEv2 it is the IPv6 address, or the IPv4 address in its v4-mapped
/// form, `::ffff:a.b.c.d` (IBTA annex A17.4.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The address it stands for.
    pub fn to_ip(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address
            .to_ipv4_mapped()
            .map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// Whether it is all zeros: an unused entry of a GID table.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Whether it names a multicast group (for IPv4 in its mapped form).
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        Self(address.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Gid> for IpAddr {
    fn from(gid: Gid) -> Self {
        gid.to_ip()
    }
}

impl core::fmt::Debug for Gid {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Gid({})", Ipv6Addr::from(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_trip() {
        let v4 = Ipv4Addr::new(10, 66, 0, 1);
        assert_eq!(
            Gid::from(v4).0,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 66, 0, 1]
        );
        assert_eq!(Gid::from(v4).to_ip(), IpAddr::V4(v4));
        let v6 = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
        assert_eq!(Gid::from(v6).to_ip(), IpAddr::V6(v6));
        assert!(
            Gid::from(Ipv4Addr::new(239, 1, 1, 1)).is_multicast() && !Gid::from(v4).is_multicast()
        );
        assert!(Gid::default().is_zero());
    }
}
