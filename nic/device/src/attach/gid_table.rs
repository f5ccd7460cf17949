//! GID tables that follow the addresses of their interface: an address keeps its index as long as
//! it is there, and finds it again when it comes back.

use std::collections::BTreeMap;

use urxe_wire::Gid;

use crate::attach::gid_entry::{GidEntry, GidType};
use crate::process::across_fork::AcrossFork;

/// Entries of a table. Addresses beyond it cannot be used.
pub const GID_TABLE_LENGTH: usize = 64;

/// The GID of RoCE v1 of an address stands so many places behind that of RoCE v2, where there is
/// one: addresses that come later change no index then either.
pub const ROCE_V1_DISTANCE: usize = GID_TABLE_LENGTH / 2;

/// An unused entry.
const EMPTY: GidEntry = GidEntry {
    gid: Gid([0; 16]),
    scope_id: 0,
    kind: GidType::RoceV2,
};

/// The tables of this process, by the interface's index.
pub(crate) static TABLES: AcrossFork<BTreeMap<u32, Table>> = AcrossFork::new(BTreeMap::new());

/// The table of interface `ifindex`, whose addresses are now `addresses`, for RoCE v1, too, if it
/// has that.
pub(crate) fn follow(ifindex: u32, addresses: &[GidEntry], has_v1: bool) -> Vec<GidEntry> {
    let mut tables = TABLES.lock();
    let table = tables.entry(ifindex).or_default();
    if has_v1 {
        table.follow(addresses, ROCE_V1_DISTANCE);
        with_v1(table.entries())
    } else {
        table.follow(addresses, GID_TABLE_LENGTH);
        table.entries()
    }
}

/// The same and, behind it, the entries of RoCE v1.
fn with_v1(mut entries: Vec<GidEntry>) -> Vec<GidEntry> {
    let used = entries.len();
    entries.resize(ROCE_V1_DISTANCE, EMPTY);
    for at in 0..used {
        entries.push(GidEntry {
            kind: GidType::RoceV1,
            ..entries[at]
        });
    }
    entries
}

/// An address that has an index, or had it last.
#[derive(Clone, Copy, Debug)]
struct Place {
    entry: GidEntry,
    is_used: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Place>);

impl Table {
    fn follow(&mut self, addresses: &[GidEntry], length: usize) {
        for place in &mut self.0 {
            place.is_used = addresses.contains(&place.entry);
        }
        for entry in addresses {
            if !self.0.iter().any(|place| place.entry == *entry) {
                self.add(*entry, length);
            }
        }
    }

    fn add(&mut self, entry: GidEntry, length: usize) {
        let new = Place {
            entry,
            is_used: true,
        };
        if self.0.len() < length {
            self.0.push(new);
        } else if let Some(free) = self.0.iter_mut().find(|place| !place.is_used) {
            *free = new;
        } else {
            log::warn!(
                "{} is not used: a device has at most {length} addresses",
                entry.gid.to_ip()
            );
        }
    }

    fn entries(&self) -> Vec<GidEntry> {
        let last = self.0.iter().rposition(|place| place.is_used);
        let entries = self.0[..last.map_or(0, |last| last + 1)].iter();
        entries
            .map(|place| if place.is_used { place.entry } else { EMPTY })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(last: u8) -> GidEntry {
        GidEntry {
            gid: Gid::from(std::net::IpAddr::from([192, 0, 2, last])),
            scope_id: 0,
            kind: GidType::RoceV2,
        }
    }

    fn follow(table: &mut Table, addresses: &[u8]) -> Vec<u8> {
        let addresses: Vec<GidEntry> = addresses.iter().map(|last| entry(*last)).collect();
        table.follow(&addresses, GID_TABLE_LENGTH);
        table
            .entries()
            .iter()
            .map(|entry| entry.gid.0[15])
            .collect()
    }

    #[test]
    fn an_address_keeps_its_index_and_finds_it_again() {
        let mut table = Table::default();
        assert_eq!(follow(&mut table, &[1, 2, 3]), [1, 2, 3]);
        assert_eq!(follow(&mut table, &[3, 1]), [1, 0, 3]);
        assert_eq!(follow(&mut table, &[4, 3, 1]), [1, 0, 3, 4]);
        assert_eq!(follow(&mut table, &[2, 3, 1]), [1, 2, 3]);
        assert!(follow(&mut table, &[]).is_empty());
    }

    #[test]
    fn the_entry_of_roce_v1_is_at_the_same_distance_whatever_comes_later() {
        let mut table = Table::default();
        for addresses in [&[entry(1), entry(2)][..], &[entry(2), entry(3), entry(4)]] {
            table.follow(addresses, ROCE_V1_DISTANCE);
            let v2 = table.entries();
            let all = with_v1(v2.clone());
            assert_eq!(all[..v2.len()], v2);
            assert!(
                all[v2.len()..ROCE_V1_DISTANCE]
                    .iter()
                    .all(|entry| !entry.is_used())
            );
            for (at, v1) in all[ROCE_V1_DISTANCE..].iter().enumerate() {
                assert_eq!((v1.gid, v1.kind), (v2[at].gid, GidType::RoceV1));
            }
            assert_eq!(all.len(), ROCE_V1_DISTANCE + v2.len());
        }
        let many: Vec<GidEntry> = (1..=40).map(entry).collect();
        table.follow(&many, ROCE_V1_DISTANCE);
        assert_eq!(with_v1(table.entries()).len(), GID_TABLE_LENGTH);
    }

    #[test]
    fn a_full_table_reuses_the_places_of_addresses_that_are_gone() {
        let mut table = Table::default();
        let full: Vec<u8> = (1..=64).collect();
        assert_eq!(follow(&mut table, &full), full);
        let mut more = full.clone();
        more.push(65);
        assert_eq!(follow(&mut table, &more), full, "no room");
        more.remove(9);
        let now = follow(&mut table, &more);
        assert_eq!((now.len(), now[9]), (64, 65));
    }
}
