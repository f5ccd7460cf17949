//! Packets that the Linux kernel's Soft-RoCE driver, and a program talking to it, really sent: all
//! of them parse, emit as they were, and have the ICRC that we compute.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use pcap_file::pcap::PcapReader;
use urxe_wire::icrc::{Flow, Verdict};
use urxe_wire::*;

/// A RoCEv2 packet with what the IP and UDP headers say.
struct Captured {
    src: SocketAddr,
    dst: SocketAddr,
    ip_id: u16,
    udp_payload: Vec<u8>,
}

fn read(path: &PathBuf) -> Vec<Captured> {
    let mut reader = PcapReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(frame) = reader.next_packet() {
        packets.extend(roce_packet(&frame.unwrap().data));
    }
    packets
}

fn files() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "pcap")
    });
    files.sort();
    files
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Ethernet, then IPv4 without options or IPv6 without extension headers, then UDP to the RoCE
/// port.
fn roce_packet(frame: &[u8]) -> Option<Captured> {
    let ip = &frame[14..];
    let (src, dst, ip_id, udp): (std::net::IpAddr, std::net::IpAddr, u16, &[u8]) =
        match word(frame, 12) {
            0x0800 if ip[9] == 17 => {
                let address =
                    |at| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap()).into();
                (
                    address(12),
                    address(16),
                    word(ip, 4),
                    &ip[20..usize::from(word(ip, 2))],
                )
            }
            0x86dd if ip[6] == 17 => {
                let address =
                    |at| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()).into();
                (
                    address(8),
                    address(24),
                    0,
                    &ip[40..40 + usize::from(word(ip, 4))],
                )
            }
            _ => return None,
        };
    let (src, dst) = (
        SocketAddr::new(src, word(udp, 0)),
        SocketAddr::new(dst, word(udp, 2)),
    );
    (dst.port() == ROCE_UDP_PORT).then(|| Captured {
        src,
        dst,
        ip_id,
        udp_payload: udp[8..].to_vec(),
    })
}

#[test]
fn every_packet_parses_and_emits_as_it_was() {
    let mut counts = BTreeMap::<String, usize>::new();
    for path in files() {
        for captured in read(&path) {
            let udp_payload = &captured.udp_payload;
            let packet = Packet::parse(udp_payload)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let mut out = vec![0xee; MAX_HEADER_LEN];
            let len = packet.header.emit(packet.payload.len(), &mut out).unwrap();
            assert_eq!(len, packet.header.wire_len());
            out.truncate(len);
            out.extend(packet.payload);
            out.resize(out.len() + pad_len(packet.payload.len()), 0);
            assert_eq!(
                out,
                udp_payload[..udp_payload.len() - ICRC_LEN],
                "{}",
                path.display()
            );
            *counts
                .entry(format!("{:?}", packet.header.bth.opcode))
                .or_default() += 1;
        }
    }
    let table = counts
        .iter()
        .fold(String::new(), |mut table, (opcode, count)| {
            writeln!(table, "{count:5} {opcode}").unwrap();
            table
        });
    // The snapshot proves that the captures still hold every operation that the driver has.
    insta::assert_snapshot!(table);
}

#[test]
fn every_icrc_is_right_with_its_ip_id_and_without() {
    let (mut v4, mut v6) = (0, 0);
    for path in files() {
        for captured in read(&path) {
            let Captured {
                src,
                dst,
                ip_id,
                udp_payload,
            } = &captured;
            let flow = Flow::new(*src, *dst).unwrap();
            assert_eq!(
                flow.verify(udp_payload, *ip_id),
                Verdict::Exact,
                "{}",
                path.display()
            );
            if src.is_ipv6() {
                v6 += 1;
                continue;
            }
            v4 += 1;
            for hint in [0, 1, 0x8000, 0xffff]
                .into_iter()
                .filter(|hint| hint != ip_id)
            {
                assert_eq!(
                    flow.verify(udp_payload, hint),
                    Verdict::SomeId(*ip_id),
                    "{}",
                    path.display()
                );
            }
        }
    }
    assert!(
        v4 > 1200 && v6 >= 30,
        "{v4} packets over IPv4, {v6} over IPv6"
    );
}

#[test]
fn every_icrc_computed_in_pieces_is_the_captured_one() {
    for captured in files().iter().flat_map(read) {
        let flow = Flow::new(captured.src, captured.dst).unwrap();
        let (covered, icrc) = captured.udp_payload.split_last_chunk::<ICRC_LEN>().unwrap();
        for first_len in [Bth::LEN, covered.len() / 2, covered.len()] {
            let (first, rest) = covered.split_at(first_len.max(Bth::LEN));
            let mut running = flow.start(captured.udp_payload.len(), captured.ip_id, first);
            for piece in rest.chunks(13) {
                running.update(piece);
            }
            assert_eq!(running.finish(), *icrc);
        }
    }
}

#[test]
fn damage_is_detected_and_changes_on_the_way_are_not_damage() {
    for captured in files().iter().flat_map(read).step_by(7) {
        let flow = Flow::new(captured.src, captured.dst).unwrap();
        for at in 0..captured.udp_payload.len().min(80) {
            let mut damaged = captured.udp_payload.clone();
            damaged[at] ^= 0x10;
            let verdict = flow.verify(&damaged, captured.ip_id);
            // Byte 4 holds FECN and BECN, which a switch may set.
            let expected = if at == 4 {
                Verdict::Exact
            } else {
                Verdict::Bad
            };
            // One bit of damage can look like another ID only where the ID's own bits are, which is
            // not here.
            assert_eq!(verdict, expected, "byte {at}");
        }
        let cut = &captured.udp_payload[..captured.udp_payload.len() - 4];
        assert_ne!(flow.verify(cut, captured.ip_id), Verdict::Exact);
    }
}

#[test]
fn what_the_driver_says_about_loss_and_access_is_understood() {
    let syndromes = |name: &str| -> Vec<Syndrome> {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data")).join(name);
        read(&path)
            .iter()
            .filter_map(|captured| Packet::parse(&captured.udp_payload).unwrap().header.aeth)
            .map(|aeth| aeth.syndrome)
            .collect()
    };
    assert!(syndromes("rc_loss5_head.pcap").contains(&Syndrome::Nak(NakCode::PsnSequenceError)));
    let errors = syndromes("rc_allops_errors.pcap");
    assert!(errors.contains(&Syndrome::Nak(NakCode::RemoteAccessError)));
    assert!(
        errors
            .iter()
            .any(|syndrome| matches!(syndrome, Syndrome::RnrNak { .. }))
    );
}
