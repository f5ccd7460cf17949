//! The character device of a device of ours, which programs open through libibverbs and not by
//! themselves.
use urxe_device::DeviceInfo;

use super::content::Make;
use super::function;
use super::node::Node;

/// The major number that the kernel has for verbs (Documentation/admin-guide/devices.txt of Linux).
pub(crate) const MAJOR: u32 = 231;

/// The number of the first one. The kernel numbers its own from 0 on, and has at most 1,024
/// (drivers/infiniband/core/uverbs_main.c).
const FIRST: u32 = 100_000;
/// How many there can be: the number is a minor number, too, which has 20 bits.
const COUNT: u32 = 900_000;

/// A device's number, which comes of the index of its network interface, and its minor number.
pub(crate) const fn number(info: &DeviceInfo) -> u32 {
    FIRST + info.ifindex % COUNT
}

/// The name of a device's character device.
pub(crate) fn uverbs_name(info: &DeviceInfo) -> String {
    format!("uverbs{}", number(info))
}

/// What is in its folder.
pub(super) const VERBS: &[(&str, Make)] = &[
    ("abi_version", |_| Node::text("1")),
    ("dev", |info| {
        Node::line(format!("{MAJOR}:{}", number(info)))
    }),
    ("device", |info| {
        Node::Link(format!("../../../{}", function::of(info).address()))
    }),
    ("ibdev", |info| Node::line(info.name.clone())),
    ("subsystem", |_| {
        Node::link("../../../../../class/infiniband_verbs")
    }),
    ("uevent", |info| {
        Node::line(format!(
            "MAJOR={MAJOR}\nMINOR={}\nDEVNAME=infiniband/{}\nDEVMODE=0666",
            number(info),
            uverbs_name(info)
        ))
    }),
];
