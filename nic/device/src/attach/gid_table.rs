//! GID tables that follow the addresses of their interface: an address keeps its index as long as
//! it is there, and finds it again when it comes back.

use std::collections::BTreeMap;

use urxe_wire::Gid;

use crate::attach::gid_entry::GidEntry;
use crate::process::across_fork::AcrossFork;

/// Entries of a table. Addresses beyond it cannot be used.
pub const GID_TABLE_LENGTH: usize = 64;

/// The tables of this process, by the interface's index.
pub(crate) static TABLES: AcrossFork<BTreeMap<u32, Table>> = AcrossFork::new(BTreeMap::new());

/// The table of interface `ifindex`, whose addresses are now `addresses`.
pub(crate) fn follow(ifindex: u32, addresses: &[GidEntry]) -> Vec<GidEntry> {
    let mut tables = TABLES.lock();
    let table = tables.entry(ifindex).or_default();
    table.follow(addresses);
    table.entries()
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
    fn follow(&mut self, addresses: &[GidEntry]) {
        for place in &mut self.0 {
            place.is_used = addresses.contains(&place.entry);
        }
        for entry in addresses {
            if !self.0.iter().any(|place| place.entry == *entry) {
                self.add(*entry);
            }
        }
    }

    fn add(&mut self, entry: GidEntry) {
        let new = Place {
            entry,
            is_used: true,
        };
        if self.0.len() < GID_TABLE_LENGTH {
            self.0.push(new);
        } else if let Some(free) = self.0.iter_mut().find(|place| !place.is_used) {
            *free = new;
        } else {
            log::warn!(
                "{} is not used: a device has at most {GID_TABLE_LENGTH} addresses",
                entry.gid.to_ip()
            );
        }
    }

    fn entries(&self) -> Vec<GidEntry> {
        const EMPTY: GidEntry = GidEntry {
            gid: Gid([0; 16]),
            scope_id: 0,
        };
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
        }
    }

    fn follow(table: &mut Table, addresses: &[u8]) -> Vec<u8> {
        let addresses: Vec<GidEntry> = addresses.iter().map(|last| entry(*last)).collect();
        table.follow(&addresses);
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
