//! LIDs, the addresses of InfiniBand within a subnet (IBTA vol 1, 4.1.3). RoCE has none, but some
//! programs exchange nothing else: qperf's tests of UC and UD, datagrams over rsockets. So a port's
//! LID is the last 16 bits of its first IPv4 address, and a LID stands for the host that has these
//! bits and the same first 16.
//!
//! That is exact where the subnet's prefix is 16 bits or longer. Linux rxe and hardware give their
//! ports LID 0, which stands for no port.

use urxe_proto::AddressVector;
use urxe_wire::Gid;

use crate::attach::gid_entry::GidEntry;

/// Routers that a packet to a LID may pass: what Linux gives every packet.
const HOP_LIMIT: u8 = 64;

/// The first IPv4 address of a GID table, and its index.
fn first_ipv4(gids: &[GidEntry]) -> Option<(u8, [u8; 4])> {
    gids.iter().enumerate().find_map(|(index, entry)| {
        let (true, std::net::IpAddr::V4(ip)) = (entry.is_v2(), entry.gid.to_ip()) else {
            return None;
        };
        Some((index.try_into().ok()?, ip.octets()))
    })
}

/// The LID of the port with this GID table; 0 if it has no IPv4 address.
#[must_use]
pub fn lid(gids: &[GidEntry]) -> u16 {
    first_ipv4(gids).map_or(0, |(_, [_, _, high, low])| u16::from_be_bytes([high, low]))
}

/// The address that `lid` stands for as seen from a port with this GID table; `None` for LID 0, and
/// where the port has no LID itself.
#[must_use]
pub fn address_of_lid(gids: &[GidEntry], lid: u16) -> Option<AddressVector> {
    let (source_gid_index, [first, second, ..]) = first_ipv4(gids)?;
    let [high, low] = lid.to_be_bytes();
    (lid != 0).then(|| AddressVector {
        dest_gid: Gid::from(std::net::IpAddr::from([first, second, high, low])),
        source_gid_index,
        hop_limit: HOP_LIMIT,
        ..AddressVector::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(addresses: &[&str]) -> Vec<GidEntry> {
        let entry = |text: &&str| GidEntry {
            gid: Gid::from(text.parse::<std::net::IpAddr>().expect("an address")),
            scope_id: 0,
            kind: crate::attach::gid_entry::GidType::RoceV2,
        };
        addresses.iter().map(entry).collect()
    }

    #[test]
    fn a_lid_ends_the_first_ipv4_address_and_leads_back_to_it() {
        let gids = table(&["fe80::1", "172.16.200.3", "10.0.0.1"]);
        assert_eq!(lid(&gids), 0xc803);
        let to = address_of_lid(&gids, 0xc807).expect("a LID");
        assert_eq!(to.dest_gid, table(&["172.16.200.7"])[0].gid);
        assert_eq!(to.source_gid_index, 1);
        assert!(to.hop_limit > 1);
    }

    #[test]
    fn without_an_ipv4_address_there_is_no_lid() {
        for gids in [table(&["fe80::1"]), table(&[])] {
            assert_eq!(lid(&gids), 0);
            assert_eq!(address_of_lid(&gids, 1), None);
        }
        assert_eq!(address_of_lid(&table(&["10.0.0.1"]), 0), None);
    }
}
