//! What a folder of a device holds.
use urxe_device::DeviceInfo;

use super::counters;
use super::node::Node;

/// Makes what is at a place of a device's part of the tree.
pub(super) type Make = fn(&DeviceInfo) -> Node;

/// What a folder of a device holds.
pub(super) enum Content {
    /// These names.
    Names(&'static [(&'static str, Make)]),
    /// The same, and one that is made of the device's.
    NamesAnd(&'static [(&'static str, Make)], Vec<(String, Make)>),
    /// The numbers below this one.
    Numbers(usize, fn(&DeviceInfo, usize) -> Node),
    /// Counters.
    Counters(&'static [counters::Counter]),
}

impl Content {
    pub(super) fn names(&self) -> Vec<String> {
        let owned = |(name, _): &(&str, Make)| (*name).to_owned();
        match self {
            Self::Names(table) => table.iter().map(owned).collect(),
            Self::NamesAnd(table, more) => {
                let more = more.iter().map(|(name, _)| name.clone());
                table.iter().map(owned).chain(more).collect()
            }
            Self::Numbers(count, _) => (0..*count).map(|number| number.to_string()).collect(),
            Self::Counters(table) => table.iter().map(|each| each.name.to_owned()).collect(),
        }
    }

    pub(super) fn node(&self, info: &DeviceInfo, name: &str) -> Option<Node> {
        let named = |table: &[(&str, Make)]| {
            let found = table.iter().find(|(each, _)| *each == name);
            found.map(|(_, make)| make(info))
        };
        match self {
            Self::Names(table) => named(table),
            Self::NamesAnd(table, more) => named(table).or_else(|| {
                let found = more.iter().find(|(each, _)| each == name);
                found.map(|(_, make)| make(info))
            }),
            Self::Numbers(count, make) => {
                let number: usize = name.parse().ok()?;
                (number < *count && name == number.to_string()).then(|| make(info, number))
            }
            Self::Counters(table) => {
                let found = table.iter().find(|each| each.name == name);
                found.map(|counter| counter.read(info))
            }
        }
    }
}

/// The folder that stands for a name in a table.
pub(super) fn folder(_: &DeviceInfo) -> Node {
    Node::Folder
}
