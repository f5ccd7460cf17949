//! What Linux rxe sent, by its captures: our queue pairs take it in, and send the same bytes for
//! the same messages.

mod support;

use std::collections::BTreeMap;

use support::queue_pair::{REQUESTS, queue_pair};
use support::scenario::PD;
use urxe_proto::{
    AckMode, AddressVector, Completion, GRH_BYTES, Instant, Payload, QpType, RecvRequest, SendData,
    SendOp, SendRequest, SendTarget, Sge, SharedReceiveQueue, WcStatus, gather,
};
use urxe_sim::{Rights, VecMemory};
use urxe_wire::{Deth, ICRC_LEN, MAX_HEADER_LEN, Packet, Qpn, pad_len};

/// Room for one received message.
const PLACE_BYTES: usize = 8192;

/// The UDP payloads of a capture of IPv4 without options over Ethernet, with the sender's address.
fn datagrams(pcap: &[u8]) -> Vec<([u8; 4], &[u8])> {
    let mut rest = &pcap[24..];
    let mut found = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let (frame, next) = after.split_at(len);
        rest = next;
        let ip = &frame[14..];
        if ip[0] == 0x45 && ip[9] == 17 && ip[22..24] == 4791u16.to_be_bytes() {
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            found.push((ip[12..16].try_into().unwrap(), &ip[28..total]));
        }
    }
    found
}

/// The requests of one direction, to one queue pair.
fn requests(pcap: &[u8], at: usize) -> Vec<Packet<'_>> {
    let mut ways = BTreeMap::<_, Vec<Packet<'_>>>::new();
    for (from, datagram) in datagrams(pcap) {
        let packet = Packet::parse(datagram).unwrap();
        let operation = packet.header.bth.opcode.operation().unwrap();
        if operation.is_request() {
            ways.entry((from, packet.header.bth.dest_qp))
                .or_default()
                .push(packet);
        }
    }
    ways.into_values().nth(at).expect("both ends send")
}

/// Gives the packets to a queue pair like the one they were for. Returns the memory, the key of the
/// received messages, and the completions.
fn take_in(
    packets: &[Packet<'_>],
    qp_type: QpType,
    shared: bool,
) -> (VecMemory, u32, Vec<Completion>) {
    let mut memory = VecMemory::default();
    let key = memory.register(PD, Rights::ALL, vec![0; REQUESTS * PLACE_BYTES]);
    let first = packets[0].header;
    let qkey = first.deth.map_or(0, |deth| deth.qkey);
    let mut qp = queue_pair(first.bth.dest_qp, Qpn::new(0), qp_type, first.bth.psn, qkey);
    let mut srq = SharedReceiveQueue::new(PD, REQUESTS as u32, 1);
    for number in 0..REQUESTS {
        let sges = [Sge {
            addr: memory.va(key, (number * PLACE_BYTES) as u64),
            len: PLACE_BYTES as u32,
            lkey: key,
        }];
        let request = RecvRequest {
            wr_id: number as u64,
            sges: &sges,
        };
        if shared {
            srq.post(&request).unwrap();
        } else {
            qp.post_recv(&request).unwrap();
        }
    }
    let now = Instant::from_nanos(1);
    for packet in packets {
        if qp_type == QpType::Ud {
            qp.handle_datagram(packet, &[0; GRH_BYTES], None, &mut memory);
        } else {
            let srq = Some(&mut srq).filter(|_| shared);
            qp.handle_packet(now, packet, srq, &mut memory);
        }
    }
    let completions = std::iter::from_fn(|| qp.poll_completion()).collect();
    (memory, key, completions)
}

fn messages(packets: &[Packet<'_>]) -> usize {
    let ends = |packet: &&Packet<'_>| {
        let operation = packet.header.bth.opcode.operation().unwrap();
        operation.ends_message()
    };
    packets.iter().filter(ends).count()
}

fn all_arrive(pcap: &[u8], qp_type: QpType, shared: bool) {
    for at in 0..2 {
        let packets = requests(pcap, at);
        let (.., completions) = take_in(&packets, qp_type, shared);
        assert_eq!(completions.len(), messages(&packets));
        assert!(completions.iter().all(|c| c.status == WcStatus::Success));
        assert!(completions.len() > 3, "a capture of hardly anything");
    }
}

/// Sends the received messages again, and compares packet by packet.
fn the_same_leaves(pcap: &[u8], qp_type: QpType) {
    for at in 0..2 {
        let packets = requests(pcap, at);
        let (mut memory, key, completions) = take_in(&packets, qp_type, false);
        let first = packets[0].header;
        let deth = first.deth.unwrap_or(Deth {
            qkey: 0,
            src_qp: Qpn::new(5),
        });
        let mut qp = queue_pair(deth.src_qp, first.bth.dest_qp, qp_type, first.bth.psn, 0);
        let (skip, target) = if qp_type == QpType::Ud {
            let target = SendTarget::Datagram {
                address: AddressVector::default(),
                qp: first.bth.dest_qp,
                qkey: deth.qkey,
            };
            (GRH_BYTES, target)
        } else {
            (0, SendTarget::Connection)
        };
        for (number, completion) in completions.iter().enumerate() {
            let sges = [Sge {
                addr: memory.va(key, (number * PLACE_BYTES + skip) as u64),
                len: completion.byte_len - skip as u32,
                lkey: key,
            }];
            let op = completion.immediate.map_or(SendOp::Send, SendOp::SendImm);
            qp.post_send(&SendRequest {
                wr_id: 0,
                op,
                data: SendData::Sges(&sges),
                signaled: true,
                solicited: completion.solicited,
                fence: false,
                target,
            })
            .unwrap();
        }
        for packet in &packets {
            let now = Instant::from_nanos(1);
            let ours = qp
                .poll_transmit(now, AckMode::Flush, &mut memory)
                .expect("as many packets");
            let mut bytes = vec![0; ours.payload.len() as usize];
            if let Payload::Local { sges, offset, .. } = ours.payload {
                gather(&memory, PD, sges, offset, &mut bytes).unwrap();
            }
            let mut theirs = packet.header;
            // rxe asks for acknowledgements that no peer gives, and says that it is on the way to
            // another path; hardware does not.
            theirs.bth.ack_request = false;
            theirs.bth.migrated = true;
            assert_eq!(ours.header, theirs);
            assert_eq!(bytes, packet.payload);
        }
        assert!(
            qp.poll_transmit(Instant::from_nanos(1), AckMode::Flush, &mut memory)
                .is_none()
        );
        let sent = std::iter::from_fn(|| qp.poll_completion()).count();
        assert_eq!(sent, completions.len());
    }
}

const UC: &[u8] = include_bytes!("../../wire/tests/data/uc_send.pcap");
const UD: &[u8] = include_bytes!("../../wire/tests/data/ud_send.pcap");
const SRQ: &[u8] = include_bytes!("../../wire/tests/data/srq_send.pcap");

#[test]
fn messages_of_rxe_arrive() {
    all_arrive(UC, QpType::Uc, false);
    all_arrive(UD, QpType::Ud, false);
    all_arrive(SRQ, QpType::Rc, true);
}

#[test]
fn what_we_send_is_what_rxe_sends() {
    the_same_leaves(UC, QpType::Uc);
    the_same_leaves(UD, QpType::Ud);
}

#[test]
fn a_header_has_the_length_that_the_capture_says() {
    for pcap in [UC, UD, SRQ] {
        for (_, datagram) in datagrams(pcap) {
            let packet = Packet::parse(datagram).unwrap();
            let (header, payload) = (packet.header.wire_len(), packet.payload.len());
            assert!(header <= MAX_HEADER_LEN);
            assert_eq!(
                header + payload + pad_len(payload) + ICRC_LEN,
                datagram.len()
            );
        }
    }
}
