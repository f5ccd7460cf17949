//! `urxe devices`: what programs under `urxe run` see.
use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;
use urxe_device::{DeviceInfo, GidType};

/// A device, as `--json` prints it.
#[derive(Serialize)]
struct Device {
    device: String,
    interface: String,
    interface_index: u32,
    state: &'static str,
    interface_mtu_bytes: u32,
    path_mtu_bytes: usize,
    node_guid: String,
    gids: Vec<Gid>,
}

/// An entry of a device's GID table.
#[derive(Serialize)]
struct Gid {
    index: usize,
    gid: String,
    address: String,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl From<&DeviceInfo> for Device {
    fn from(info: &DeviceInfo) -> Self {
        let used = info.gids.iter().enumerate();
        let used = used.filter(|(_, entry)| entry.is_used());
        let gids = used.map(|(index, entry)| Gid {
            index,
            gid: groups(&entry.gid.0),
            address: entry.gid.to_ip().to_string(),
            kind: match entry.kind {
                GidType::RoceV1 => "IB/RoCE v1",
                GidType::RoceV2 => "RoCE v2",
            },
        });
        Self {
            device: info.name.clone(),
            interface: info.netdev.clone(),
            interface_index: info.ifindex,
            state: if info.is_up { "ACTIVE" } else { "DOWN" },
            interface_mtu_bytes: info.netdev_mtu_bytes,
            path_mtu_bytes: info.active_mtu().bytes(),
            node_guid: groups(&info.guid),
            gids: gids.collect(),
        }
    }
}

/// Bytes as groups of four hexadecimal digits, the way GIDs and GUIDs are written.
fn groups(bytes: &[u8]) -> String {
    let pairs = bytes
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    pairs.collect::<Vec<_>>().join(":")
}

/// Prints the devices as a table or as JSON.
pub(crate) fn print(json: bool) -> Result<()> {
    let infos = urxe_device::list().context("cannot list the network interfaces")?;
    let devices: Vec<Device> = infos.iter().map(Device::from).collect();
    if json {
        println!("{}", serde_json::to_string_pretty(&devices)?);
    } else if devices.is_empty() {
        println!(
            "no device: no network interface is up and has an address (try: ip link set lo up)"
        );
    } else {
        print!("{}", table(&devices));
    }
    Ok(())
}

/// One line per device, and one per further GID.
fn table(devices: &[Device]) -> String {
    let header = ["DEVICE", "INTERFACE", "STATE", "MTU", "GID", "ADDRESS"].map(str::to_owned);
    let mut rows = vec![header];
    for device in devices {
        for gid in &device.gids {
            let mut row = [const { String::new() }; 6];
            if gid.index == 0 {
                row[0].clone_from(&device.device);
                row[1].clone_from(&device.interface);
                row[2] = device.state.to_owned();
                row[3] = device.path_mtu_bytes.to_string();
            }
            row[4] = gid.index.to_string();
            row[5].clone_from(&gid.address);
            rows.push(row);
        }
    }
    let widths: [usize; 6] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(text, "{}", line.trim_end()).expect("a string takes text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, addresses: &[&str]) -> Device {
        let gids = addresses.iter().enumerate().map(|(index, address)| Gid {
            index,
            gid: String::new(),
            address: (*address).to_owned(),
            kind: "RoCE v2",
        });
        Device {
            device: format!("urxe_{name}"),
            interface: name.to_owned(),
            interface_index: 1,
            state: "ACTIVE",
            interface_mtu_bytes: 1500,
            path_mtu_bytes: 1024,
            node_guid: String::new(),
            gids: gids.collect(),
        }
    }

    #[test]
    fn the_table_has_a_line_per_gid_in_columns() {
        let text = table(&[
            device("eth0", &["192.0.2.1", "fe80::1"]),
            device("lo", &["127.0.0.1"]),
        ]);
        assert_eq!(
            text,
            "DEVICE     INTERFACE  STATE   MTU   GID  ADDRESS\n\
             urxe_eth0  eth0       ACTIVE  1024  0    192.0.2.1\n\
             \x20                                   1    fe80::1\n\
             urxe_lo    lo         ACTIVE  1024  0    127.0.0.1\n"
        );
    }

    #[test]
    fn identifiers_are_in_groups_of_four_digits() {
        assert_eq!(groups(&[0, 1, 0xff, 0xfe]), "0001:fffe");
    }
}
