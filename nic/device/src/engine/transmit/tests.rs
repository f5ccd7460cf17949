use super::*;
use crate::attach::gid_entry::{GidEntry, GidType};
use crate::attach::tap::{Taps, Wiring};
use crate::engine::port::{Kind, Ports};
use crate::memory::{Access, Pd, Region};
use urxe_proto::{AddressVector, Payload, Sge, Via};
use urxe_udp::{Framing, MAX_TRANSMIT_BYTES, Piece};
use urxe_wire::{Aeth, Bth, Gid, Header, Opcode, Operation, Psn, Qpn, Reth, Syndrome, Transport};

fn loopback() -> (Ports, Path) {
    let here = Gid::from(std::net::IpAddr::from([127, 0, 0, 1]));
    let gids = [GidEntry {
        gid: here,
        scope_id: 0,
        kind: GidType::RoceV2,
    }];
    let taps = Taps::new(&Wiring::default(), "test").unwrap();
    let kind = Kind {
        ifindex: 1,
        has_frames: true,
        held_bytes: 0,
    };
    let ports = Ports::open(&gids, kind, &taps).unwrap();
    let to = AddressVector {
        dest_gid: here,
        ..AddressVector::default()
    };
    let path = Path::new(&ports, &to, Qpn::new(5)).unwrap();
    (ports, path)
}

/// A packet of queue pair 5, without payload.
fn packet(transport: Transport, operation: Operation) -> Transmit<'static> {
    let opcode = Opcode::new(transport, operation);
    Transmit {
        address: None,
        header: Header::new(Bth::new(opcode, Qpn::new(5), Psn::new(0))),
        payload: Payload::Empty,
    }
}

/// A message of two packets, and an acknowledgement behind it: how many packets the batch has after
/// each.
fn gathered((first, last): (Operation, Operation), last_len: usize) -> [usize; 3] {
    let (ports, path) = loopback();
    let header = |operation: Operation| {
        let mut header = packet(Transport::Rc, operation).header;
        let (va, rkey, len) = (0, 0, 4096);
        header.reth = operation.has_reth().then_some(Reth { va, rkey, len });
        header
    };
    let mut acknowledge = header(Operation::Acknowledge);
    acknowledge.aeth = Some(Aeth {
        syndrome: Syndrome::Ack { credits: 31 },
        msn: 1,
    });
    let packets = [
        (header(first), Payload::Bytes(&[7; 4096])),
        (header(last), Payload::Bytes(&[7; 4096][..last_len])),
        (acknowledge, Payload::Empty),
    ];
    let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
    let mut memory = MemoryTable::default();
    let pd = memory.alloc_pd();
    let turn = turn_of(pd);
    packets.map(|(header, payload)| {
        let transmit = Transmit {
            address: None,
            header,
            payload,
        };
        outgoing
            .push(&transmit, &turn, &path, &memory, &ports.ports, &mut stats)
            .unwrap();
        outgoing.gathered()
    })
}

/// A turn that is no part of a stream, on a link of unknown rate.
fn turn_of(pd: Pd) -> Turn {
    Turn {
        pd: pd.id(),
        room_bytes: MAX_TRANSMIT_BYTES,
        is_stream: false,
    }
}

#[test]
fn a_batch_has_packets_of_one_length_and_a_shorter_last() {
    let send = (Operation::SendFirst, Operation::SendLast);
    assert_eq!(gathered(send, 4096), [1, 2, 3]);
    assert_eq!(gathered(send, 1000), [1, 2, 1]);
    // The first packet of a WRITE alone has its address.
    let write = (Operation::WriteFirst, Operation::WriteLast);
    assert_eq!(gathered(write, 4096), [1, 2, 1]);
    let pieces = (Operation::WriteOnly, Operation::WriteOnly);
    assert_eq!(gathered(pieces, 4096), [1, 2, 3]);
}

/// The batch under construction, as bytes.
fn bytes_of(outgoing: &mut Outgoing) -> Vec<u8> {
    outgoing.building.list_rest();
    let pieces = &outgoing.building.pieces;
    // SAFETY: parts of the arena, or of a test's own memory.
    let bytes = |piece: &Piece<'_>| unsafe {
        std::slice::from_raw_parts(piece.address(), piece.len()).to_vec()
    };
    pieces.iter().flat_map(bytes).collect()
}

/// So many packets, the numbers of which wrap.
fn run_of(operation: Operation, payload: Payload<'_>, packets: u32) -> Run<'_> {
    let mut first = packet(Transport::Rc, operation);
    first.header.bth.psn = Psn::new(0xff_fff8);
    let (va, rkey, len) = (0xffff_f000, 7, payload.len());
    first.header.reth = (operation == Operation::WriteOnly).then_some(Reth { va, rkey, len });
    Run {
        first: Transmit { payload, ..first },
        more: packets - 1,
    }
}

#[test]
fn a_run_makes_the_bytes_that_its_packets_make() {
    const PACKETS: u32 = 40;
    let (ports, path) = loopback();
    let ports = &ports.ports;
    let mut bytes = vec![0u8; 8192 * PACKETS as usize];
    bytes.iter_mut().zip(0u32..).for_each(|(byte, at)| {
        *byte = (at.wrapping_mul(2_654_435_761) >> 24) as u8;
    });
    let (addr, mut memory) = (bytes.as_ptr() as u64, MemoryTable::default());
    let pd = memory.alloc_pd();
    let turn = turn_of(pd);
    let access = Access::REMOTE_READ;
    let region = Region::new(pd, addr, bytes.len() as u64, addr, access);
    let region = memory.register(region.unwrap()).unwrap();
    let lkey = region.lkey;
    let sge = |len| [Sge { addr, len, lkey }];
    let (all, too_short) = (sge(PACKETS * 8192), sge(PACKETS * 512));
    let local = |sges, len| Payload::Local {
        sges,
        offset: 3,
        len,
    };
    let remote = |len| Payload::Remote {
        via: Via {
            pd: pd.id(),
            qp: Qpn::new(5),
        },
        rkey: region.rkey,
        va: addr,
        len,
    };
    // Copied, referred to, of a peer's range, in memory that ends on the way, and messages with an
    // address each.
    let cases = [
        (Operation::SendMiddle, local(&all, 1024), None),
        (Operation::SendMiddle, local(&all, 4096), None),
        (Operation::ReadResponseMiddle, remote(1024), None),
        (Operation::SendMiddle, local(&too_short, 1024), Some(19)),
        (Operation::WriteOnly, local(&all, 1024), None),
        (Operation::WriteOnly, local(&all, 4096), None),
    ];
    for (operation, payload, fault_at) in cases {
        let run = run_of(operation, payload, PACKETS);
        let (mut together, mut apart) = (Outgoing::new(), Outgoing::new());
        let mut stats = [DeviceStats::default(); 2];
        let pushed = together.push_run(&run, &turn, &path, &memory, ports, &mut stats[0]);
        let pushed_apart = (0..PACKETS).try_for_each(|index| {
            let packet = run.packet(index);
            apart.push(&packet, &turn, &path, &memory, ports, &mut stats[1])
        });
        assert_eq!(pushed, pushed_apart);
        let fault = fault_at.map(|at| run.packet(at).header.bth);
        assert_eq!(pushed.err().map(|MemoryGone(bth)| bth), fault);
        let numbers = |outgoing: &Outgoing, stats: &DeviceStats| {
            (outgoing.gathered(), stats.tx_batches, stats.tx_packets)
        };
        assert_eq!(numbers(&together, &stats[0]), numbers(&apart, &stats[1]));
        assert!(bytes_of(&mut together) == bytes_of(&mut apart));
    }
}

#[test]
fn a_batch_that_waits_stays_as_it_is() {
    let (ports, path) = loopback();
    let mut memory = MemoryTable::default();
    let pd = memory.alloc_pd();
    let turn = turn_of(pd);
    let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
    let mut push = |outgoing: &mut Outgoing, payload| {
        let transmit = Transmit {
            payload: Payload::Bytes(payload),
            ..packet(Transport::Rc, Operation::SendMiddle)
        };
        outgoing
            .push(&transmit, &turn, &path, &memory, &ports.ports, &mut stats)
            .unwrap();
        stats.tx_dropped
    };
    push(&mut outgoing, &[1; 256]);
    std::mem::swap(&mut outgoing.building, &mut outgoing.waiting);
    outgoing.waiting.is_blocked = true;
    assert_eq!(push(&mut outgoing, &[2; 256]), 0);
    // It is longer than the batch's packets, and there is nowhere to put that.
    assert_eq!(push(&mut outgoing, &[3; 512]), 1);
    assert_eq!((outgoing.waiting.count, outgoing.gathered()), (1, 1));
    std::mem::swap(&mut outgoing.building, &mut outgoing.waiting);
    assert!(bytes_of(&mut outgoing)[Bth::LEN..][..256] == [1; 256]);
}

/// Frames have less room and no order.
#[test]
fn frames_are_for_what_is_sent_again_and_short_in_streams() {
    let (ports, path) = loopback();
    let mut memory = MemoryTable::default();
    let pd = memory.alloc_pd();
    let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
    let cases = [
        (Transport::Rc, false, Framing::Message, 1),
        (Transport::Rc, true, Framing::Stream, 2),
        (Transport::Rc, false, Framing::Stream, 3),
        (Transport::Uc, false, Framing::Never, 1),
        (Transport::Uc, true, Framing::Never, 2),
        (Transport::Rc, false, Framing::Message, 1),
    ];
    for (transport, is_stream, framing, gathered) in cases {
        let turn = Turn {
            is_stream,
            ..turn_of(pd)
        };
        let transmit = packet(transport, Operation::SendOnly);
        outgoing
            .push(&transmit, &turn, &path, &memory, &ports.ports, &mut stats)
            .unwrap();
        let target = outgoing.building.target.as_ref().unwrap();
        let found = (outgoing.building.framing(target), outgoing.gathered());
        assert_eq!(found, (framing, gathered), "{transport:?}");
    }
}

/// A full send buffer makes packets wait. When some memory goes away meanwhile, those of transports
/// that do not repeat them stay.
#[test]
fn only_what_points_to_memory_goes_with_it() {
    const LEN: u32 = 4096;
    let (ports, path) = loopback();
    let bytes = vec![7u8; LEN as usize];
    let (addr, mut memory) = (bytes.as_ptr() as u64, MemoryTable::default());
    let pd = memory.alloc_pd();
    let turn = turn_of(pd);
    let region = Region::new(pd, addr, LEN.into(), addr, Access::empty());
    let region = memory.register(region.unwrap()).unwrap();
    let sges = [Sge {
        addr,
        len: LEN,
        lkey: region.lkey,
    }];
    for (transport, stays) in [(Transport::Uc, true), (Transport::Rc, false)] {
        let transmit = Transmit {
            payload: Payload::Local {
                sges: &sges,
                offset: 0,
                len: LEN,
            },
            ..packet(transport, Operation::SendOnly)
        };
        let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
        let ports = &ports.ports;
        outgoing
            .push(&transmit, &turn, &path, &memory, ports, &mut stats)
            .unwrap();
        outgoing.building.is_blocked = true;
        outgoing.forget_memory();
        assert_eq!(outgoing.building.count, usize::from(stays), "{transport:?}");
    }
}
