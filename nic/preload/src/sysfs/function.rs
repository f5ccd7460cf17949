//! The PCI function that a device of ours belongs to.
//!
//! No adapter is there, but programs insist on one. They take the address of a PCI function out of
//! the path that `/sys/class/infiniband/<device>` leads to, and read the function's files, to learn
//! what is near to what.
use urxe_device::DeviceInfo;

use super::content::{Content, Make, folder};
use super::node::Node;

/// The PCI domain of our functions, a number of four hexadecimal digits: programs read no more.
///
/// No real function is in it: firmware numbers domains (ACPI's `_SEG`) from 0 on, and Linux counts
/// those that it makes itself (VMD) from 0x10000 on. Hyper-V takes a domain's number from an
/// adapter's GUID, so there it is one of 65,536.
const DOMAIN: &str = "f0ce";
/// What the names of our buses and functions begin with.
pub(crate) const MARK: &str = "f0ce:";

/// Vendor and device, of no meaning to any driver. As with all of `DOMAIN`, nothing else has it.
const VENDOR: u16 = 0xf0ce;
const DEVICE: u16 = 1;
/// An Ethernet controller, which an adapter for RoCE is (0x020700, an InfiniBand controller, is
/// another link layer).
const CLASS: u32 = 0x02_0000;

/// A function's address.
#[derive(Clone, Copy)]
pub(super) struct Function {
    bus: u8,
    slot: u8,
    function: u8,
}

/// The address of a device's function, from the index of its network interface. Function 0 comes
/// first, as in programs that take several functions of a slot for ports of one adapter. Interfaces
/// whose indices differ by 65,536 would have the same.
pub(super) const fn of(info: &DeviceInfo) -> Function {
    const SLOTS: u32 = 32;
    const BUSES: u32 = 256;
    const FUNCTIONS: u32 = 8;
    let index = info.ifindex;
    Function {
        slot: (index % SLOTS) as u8,
        bus: (index / SLOTS % BUSES) as u8,
        function: (index / (SLOTS * BUSES) % FUNCTIONS) as u8,
    }
}

impl Function {
    /// The bus, as in `/sys/class/pci_bus`.
    pub(super) fn bus(self) -> String {
        format!("{DOMAIN}:{:02x}", self.bus)
    }

    /// The address, as in `/sys/bus/pci/devices`.
    pub(super) fn address(self) -> String {
        format!(
            "{DOMAIN}:{:02x}:{:02x}.{}",
            self.bus, self.slot, self.function
        )
    }

    /// Where its folder is below `/sys/devices`. Each bus is a root of its own.
    pub(super) fn place(self) -> String {
        format!("pci{}/{}", self.bus(), self.address())
    }
}

/// The folder of a bus.
pub(super) fn bus<'a>(functions: impl Iterator<Item = &'a DeviceInfo>) -> Content {
    const NAMES: &[(&str, Make)] = &[("pci_bus", folder), ("uevent", empty)];
    let functions = functions.map(|info| (of(info).address(), folder as Make));
    Content::NamesAnd(NAMES, functions.collect())
}

/// What the class `pci_bus` shows of a bus.
pub(super) const BUS: &[(&str, Make)] = &[
    ("cpuaffinity", |_| Node::line(processor_mask(processors()))),
    ("cpulistaffinity", |_| {
        Node::line(processor_list(processors()))
    }),
    ("device", |info| {
        Node::Link(format!("../../../pci{}", of(info).bus()))
    }),
    ("subsystem", |_| Node::link("../../../../class/pci_bus")),
    ("uevent", empty),
];

/// The function's own folder.
pub(super) const FUNCTION: &[(&str, Make)] = &[
    ("class", |_| Node::line(format!("{CLASS:#08x}"))),
    ("config", |_| Node::File(configuration())),
    ("device", |_| Node::line(format!("{DEVICE:#06x}"))),
    ("enable", |_| Node::text("1")),
    ("infiniband", folder),
    ("infiniband_verbs", folder),
    ("irq", |_| Node::text("0")),
    ("local_cpulist", |_| {
        Node::line(processor_list(processors()))
    }),
    ("local_cpus", |_| Node::line(processor_mask(processors()))),
    ("modalias", |_| Node::line(modalias())),
    ("net", folder),
    // It is near to every processor: the processor that runs the program is the adapter.
    ("numa_node", |_| Node::text("-1")),
    ("resource", |_| Node::File(resources().into_bytes())),
    ("revision", |_| Node::text("0x00")),
    ("subsystem", |_| Node::link("../../../bus/pci")),
    ("subsystem_device", |_| Node::line(format!("{DEVICE:#06x}"))),
    ("subsystem_vendor", |_| Node::line(format!("{VENDOR:#06x}"))),
    ("uevent", |info| {
        Node::line(format!(
            "PCI_CLASS={CLASS:X}\nPCI_ID={VENDOR:04X}:{DEVICE:04X}\nPCI_SUBSYS_ID={VENDOR:04X}:{DEVICE:04X}\n\
             PCI_SLOT_NAME={}\nMODALIAS={}",
            of(info).address(),
            modalias()
        ))
    }),
    ("vendor", |_| Node::line(format!("{VENDOR:#06x}"))),
];

/// What the function shows of the network interface, which in truth is somewhere else. Only what is
/// known of it in every network namespace, whatever `/sys/class/net` is of.
pub(super) const INTERFACE: &[(&str, Make)] = &[
    ("addr_len", |_| Node::text("6")),
    ("address", |info| {
        let bytes = info
            .mac
            .unwrap_or_default()
            .map(|byte| format!("{byte:02x}"));
        Node::line(bytes.join(":"))
    }),
    ("carrier", |info| {
        Node::line(u8::from(info.is_up).to_string())
    }),
    ("dev_id", |_| Node::text("0x0")),
    ("dev_port", |_| Node::text("0")),
    ("device", |info| {
        Node::Link(format!("../../../{}", of(info).address()))
    }),
    ("ifindex", |info| Node::line(info.ifindex.to_string())),
    ("mtu", |info| Node::line(info.netdev_mtu_bytes.to_string())),
    ("operstate", |info| {
        Node::text(if info.is_up { "up" } else { "down" })
    }),
    ("subsystem", |_| Node::link("../../../../../class/net")),
    ("type", |info| Node::text(link_type(info))),
    ("uevent", |info| {
        Node::line(format!(
            "INTERFACE={}\nIFINDEX={}",
            info.netdev, info.ifindex
        ))
    }),
];

fn empty(_: &DeviceInfo) -> Node {
    Node::File(Vec::new())
}

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` of linux/if_arp.h.
fn link_type(info: &DeviceInfo) -> &'static str {
    if info.netdev == "lo" { "772" } else { "1" }
}

fn modalias() -> String {
    let [_, base, sub, interface] = CLASS.to_be_bytes();
    format!(
        "pci:v{VENDOR:08X}d{DEVICE:08X}sv{VENDOR:08X}sd{DEVICE:08X}bc{base:02X}sc{sub:02X}i{interface:02X}"
    )
}

/// The header of the configuration space (PCI Local Bus Specification 3.0, 6.1), type 0, and no
/// capabilities.
fn configuration() -> Vec<u8> {
    const BYTES: usize = 256;
    const CLASS_AT: usize = 9;
    const SUBSYSTEM_AT: usize = 0x2c;
    let identity = [VENDOR.to_le_bytes(), DEVICE.to_le_bytes()].concat();
    let mut space = vec![0; BYTES];
    space[..4].copy_from_slice(&identity);
    space[CLASS_AT..CLASS_AT + 3].copy_from_slice(&CLASS.to_le_bytes()[..3]);
    space[SUBSYSTEM_AT..SUBSYSTEM_AT + 4].copy_from_slice(&identity);
    space
}

/// No memory and no ports: begin, end and flags of six base addresses, a ROM, and six of virtual
/// functions.
fn resources() -> String {
    const LINES: usize = 13;
    let zero = format!("{:#018x}", 0);
    format!("{zero} {zero} {zero}\n").repeat(LINES)
}

/// How many processors the machine has.
fn processors() -> usize {
    // SAFETY: plain integers.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1).max(1)
}

/// All of so many processors, as `%*pbl` of Linux has them.
fn processor_list(count: usize) -> String {
    match count {
        1 => "0".to_owned(),
        _ => format!("0-{}", count - 1),
    }
}

/// The same as `%*pb`: hexadecimal words of 32 bits, the last processors first.
fn processor_mask(count: usize) -> String {
    const BITS: usize = 32;
    let whole = count / BITS;
    let rest = count % BITS;
    let mut words = Vec::new();
    if rest > 0 {
        let word = (1u64 << rest) - 1;
        words.push(format!("{word:0width$x}", width = rest.div_ceil(4)));
    }
    words.extend(std::iter::repeat_n("ffffffff".to_owned(), whole));
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_written_as_linux_writes_them() {
        assert_eq!(processor_list(1), "0");
        assert_eq!(processor_list(64), "0-63");
        assert_eq!(processor_mask(1), "1");
        assert_eq!(processor_mask(2), "3");
        assert_eq!(processor_mask(6), "3f");
        assert_eq!(processor_mask(32), "ffffffff");
        assert_eq!(processor_mask(36), "f,ffffffff");
    }

    #[test]
    fn the_configuration_space_says_what_the_files_say() {
        let space = configuration();
        assert_eq!(space.len(), 256);
        assert_eq!(space[..4], [0xce, 0xf0, 1, 0]);
        assert_eq!(space[9..12], [0, 0, 2]);
        assert_eq!(
            modalias(),
            "pci:v0000F0CEd00000001sv0000F0CEsd00000001bc02sc00i00"
        );
    }
}
