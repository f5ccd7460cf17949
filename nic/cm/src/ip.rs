//! The header that RDMA IP CM puts in front of a request's private data: which host connects to
//! which address (IBTA annex A11.4).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// See the module. The destination port is not in it: the service ID tells that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// Address that connects.
    pub source: IpAddr,
    /// Its port.
    pub source_port: u16,
    /// Address that is connected to.
    pub destination: IpAddr,
}

impl IpHeader {
    /// Length, bytes.
    pub const LEN: usize = 36;

    const IPV4: u8 = 4;
    const IPV6: u8 = 6;

    /// Reads it from the start of `private_data`; `None` if there is none (another version, another
    /// IP version, or too few bytes).
    #[must_use]
    pub fn parse(private_data: &[u8]) -> Option<Self> {
        let raw = private_data.first_chunk::<{ Self::LEN }>()?;
        if raw[0] != 0 {
            return None;
        }
        let version = raw[1] >> 4;
        let address = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&raw[at..at + 16]);
            match version {
                Self::IPV4 => {
                    let [.., a, b, c, d] = bytes;
                    Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
                }
                Self::IPV6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
                _ => None,
            }
        };
        Some(Self {
            source: address(4)?,
            source_port: u16::from_be_bytes([raw[2], raw[3]]),
            destination: address(20)?,
        })
    }

    /// The bytes on the wire. Both addresses are of the source's family; an IPv4 address stands in
    /// the last four of sixteen bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        let version = if self.source.is_ipv4() {
            Self::IPV4
        } else {
            Self::IPV6
        };
        raw[1] = version << 4;
        raw[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        for (at, address) in [(4, self.source), (20, self.destination)] {
            match address {
                IpAddr::V4(v4) => raw[at + 12..at + 16].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => raw[at..at + 16].copy_from_slice(&v6.octets()),
            }
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_survive_the_trip() {
        for (source, destination) in [("10.66.0.2", "10.66.0.3"), ("fe80::1", "2001:db8::2")] {
            let header = IpHeader {
                source: source.parse().unwrap(),
                source_port: 0xa61d,
                destination: destination.parse().unwrap(),
            };
            assert_eq!(IpHeader::parse(&header.emit()), Some(header));
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let header = IpHeader {
            source: IpAddr::V4(Ipv4Addr::LOCALHOST),
            source_port: 1,
            destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let raw = header.emit();
        assert_eq!(IpHeader::parse(&raw[..35]), None);
        for (at, value) in [(0, 1), (1, 0x50), (1, 0)] {
            let mut other = raw;
            other[at] = value;
            assert_eq!(IpHeader::parse(&other), None);
        }
    }
}
