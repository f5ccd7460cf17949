//! How fast a network interface says it is (ethtool).
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// ETHTOOL_GSET of linux/ethtool.h: no privilege needed, and every kernel has it.
const ETHTOOL_GSET: u32 = 1;

/// `struct ethtool_cmd` of linux/ethtool.h, as far as it is read here.
#[repr(C)]
#[derive(Default)]
struct EthtoolCmd {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed_low: u16,
    duplex: u8,
    port: u8,
    phy_address: u8,
    transceiver: u8,
    autoneg: u8,
    mdio_support: u8,
    maxtxpkt: u32,
    maxrxpkt: u32,
    speed_high: u16,
    eth_tp_mdix: u8,
    eth_tp_mdix_ctrl: u8,
    lp_advertising: u32,
    reserved: [u32; 2],
}

/// ETHTOOL_GDRVINFO of linux/ethtool.h.
const ETHTOOL_GDRVINFO: u32 = 3;

/// `struct ethtool_drvinfo` of linux/ethtool.h.
#[repr(C)]
struct EthtoolDrvinfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u32; 40],
}

/// Drivers of interfaces without a wire, whose speed is a constant of theirs and nothing that was
/// measured.
const WITHOUT_WIRE: [&str; 2] = ["veth", "tun"];

/// The speed of the interface in Mbit/s; `None` for one that has none (loopback, bridges, veth) or
/// does not know it (no link).
pub(crate) fn of(netdev: &str) -> Option<u32> {
    let mut command = EthtoolCmd {
        cmd: ETHTOOL_GSET,
        ..EthtoolCmd::default()
    };
    // SAFETY: the structure is that of the command.
    unsafe { ethtool(netdev, &mut command)? };
    let speed = u32::from(command.speed_high) << 16 | u32::from(command.speed_low);
    // The kernel's word for "unknown" is -1; drivers also say 0 and 65535.
    let is_known = !matches!(speed, 0 | 0xffff | u32::MAX);
    (is_known && !driver(netdev).is_some_and(|name| WITHOUT_WIRE.contains(&name.as_str())))
        .then_some(speed)
}

/// The driver of the interface.
fn driver(netdev: &str) -> Option<String> {
    let mut command = EthtoolDrvinfo {
        cmd: ETHTOOL_GDRVINFO,
        driver: [0; 32],
        rest: [0; 40],
    };
    // SAFETY: the structure is that of the command.
    unsafe { ethtool(netdev, &mut command)? };
    let name = std::ffi::CStr::from_bytes_until_nul(&command.driver).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Asks the interface; `None` if it has no answer.
///
/// # Safety
/// `command` is the structure of the command that it names.
unsafe fn ethtool<T>(netdev: &str, command: &mut T) -> Option<()> {
    // SAFETY: plain integers; a descriptor that is not negative is ours.
    let socket = unsafe {
        match libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) {
            -1 => return None,
            fd => OwnedFd::from_raw_fd(fd),
        }
    };
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    crate::device::put(&mut request.ifr_name, netdev);
    request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
    // SAFETY: the kernel writes where ifru_data points what the command asks for.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    (result == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_speed_and_nonsense_is_no_interface() {
        assert_eq!(size_of::<EthtoolCmd>(), 44);
        assert_eq!(size_of::<EthtoolDrvinfo>(), 196);
        assert_eq!(of("lo"), None);
        assert_eq!(of("no such interface at all"), None);
    }
}
