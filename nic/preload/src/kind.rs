//! What differs between a RoCE device and an iWARP device for programs. Of the latter all is as
//! Linux siw has it.
use std::sync::Arc;

use urxe_device::{DeviceInfo, DeviceKind, GID_TABLE_LENGTH, Gid, GidEntry, GidType, Nic};

use crate::abi::*;
use crate::errno::{Errno, Outcome};

/// What a RoCE device can do beyond what every one does.
const CAP_FLAGS: u32 = IBV_DEVICE_CURR_QP_STATE_MOD
    | IBV_DEVICE_PORT_ACTIVE_EVENT
    | IBV_DEVICE_UD_AV_PORT_ENFORCE
    | IBV_DEVICE_SYS_IMAGE_GUID
    | IBV_DEVICE_SRQ_RESIZE
    | IBV_DEVICE_MEM_WINDOW
    | IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | IBV_DEVICE_MEM_MGT_EXTENSIONS
    | IBV_DEVICE_XRC
    | IBV_DEVICE_RC_RNR_NAK_GEN;
/// Entries of the table of GIDs of a RoCE device.
const TABLE_LENGTH: u16 = GID_TABLE_LENGTH as u16;

/// What `struct ibv_device` says of it.
pub(crate) fn node(kind: DeviceKind) -> (ibv_node_type, ibv_transport_type) {
    match kind {
        DeviceKind::Roce => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        DeviceKind::Iwarp => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
    }
}

/// The same in the words of /sys, and as the kernel names it on a netlink socket.
pub(crate) const fn names(kind: DeviceKind) -> (&'static str, &'static str) {
    match kind {
        DeviceKind::Roce => ("1: CA", "roce"),
        DeviceKind::Iwarp => ("4: RNIC", "iw"),
    }
}

/// What it can do beyond what every one does.
pub(crate) const fn cap_flags(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Roce => CAP_FLAGS,
        DeviceKind::Iwarp => {
            let of_packets = IBV_DEVICE_UD_AV_PORT_ENFORCE
                | IBV_DEVICE_SYS_IMAGE_GUID
                | IBV_DEVICE_XRC
                | IBV_DEVICE_RC_RNR_NAK_GEN;
            CAP_FLAGS & !of_packets
        }
    }
}

/// What its port can do (`port_cap_flags`).
pub(crate) const fn port_flags(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Roce => IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        DeviceKind::Iwarp => IBV_PORT_CM_SUP | IBV_PORT_DEVICE_MGMT_SUP,
    }
}

/// How many entries the tables of GIDs and of partitions have.
pub(crate) const fn table_lengths(kind: DeviceKind) -> (u16, u16) {
    match kind {
        DeviceKind::Roce => (TABLE_LENGTH, 1),
        DeviceKind::Iwarp => (1, 0),
    }
}

/// The GIDs that programs see. An iWARP device has one, the MAC address, which nothing is sent to;
/// connections are between IP addresses.
pub(crate) fn gids(info: &DeviceInfo, gids: Arc<[GidEntry]>) -> Arc<[GidEntry]> {
    match info.kind {
        DeviceKind::Roce => gids,
        DeviceKind::Iwarp => Arc::new([of_mac(info)]),
    }
}

fn of_mac(info: &DeviceInfo) -> GidEntry {
    let mac = info.mac.filter(|mac| *mac != [0; 6]);
    let [_, _, low @ ..] = info.guid;
    let mut raw = [0; 16];
    raw[..6].copy_from_slice(&mac.unwrap_or(low));
    GidEntry {
        gid: Gid(raw),
        scope_id: 0,
        // In /sys it is the same as that of InfiniBand.
        kind: GidType::RoceV1,
    }
}

/// Refuses what an iWARP device does not have: there are no packets to an address.
///
/// # Errors
/// EOPNOTSUPP.
pub(crate) fn check_roce(nic: &Nic) -> Outcome<()> {
    if nic.is_iwarp() {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gid_of_an_iwarp_device_is_its_mac_address() {
        let mut info = DeviceInfo {
            name: "urxe_x".into(),
            kind: DeviceKind::Iwarp,
            netdev: "x".into(),
            ifindex: 1,
            netdev_mtu_bytes: 1500,
            within_host: false,
            is_up: true,
            mac: Some([2, 0, 0, 0, 0, 9]),
            guid: [1, 2, 3, 4, 5, 6, 7, 8],
            gids: vec![],
        };
        let gid = |info: &DeviceInfo| gids(info, Arc::new([]))[0].gid.0;
        assert_eq!(gid(&info)[..8], [2, 0, 0, 0, 0, 9, 0, 0]);
        // Loopback has none.
        info.mac = Some([0; 6]);
        assert_eq!(gid(&info)[..8], [3, 4, 5, 6, 7, 8, 0, 0]);
    }
}
