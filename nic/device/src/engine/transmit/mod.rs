//! Packets on their way out: gathered into batches that the kernel (or nobody) cuts apart.
//!
//! Consecutive packets of the same length to the same peer leave in one system call (GSO); a shorter
//! one may end the batch, so an acknowledgement rides with the reply it follows. Small payloads are
//! copied behind their header, large ones are taken from the program's memory by the kernel.

mod batch;
mod length;
pub(crate) mod payload;

use urxe_proto::{PdId, Run, Transmit};
use urxe_udp::MAX_TRANSMIT_BYTES;
use urxe_wire::{Bth, ICRC_LEN, Operation, Reth, XrcEth, pad_len};

use self::batch::{Batch, packets_max};
use crate::engine::path::Path;
use crate::engine::port::Port;
use crate::engine::stats::DeviceStats;
use crate::engine::transmit::length::BatchLength;
use crate::memory::MemoryTable;
use payload::MemoryGone;

/// The smallest path MTU: what carries less is no full packet.
const MTU_MIN_BYTES: u32 = 256;
/// By so much the others of a message are shorter than its first at most, because it alone has the header of a WRITE (RETH).
const HARDLY_BYTES: usize = Reth::LEN;
/// By so much the last of a WRITE's messages of one packet is shorter than the others at most, if they cannot be of one length.
const UNEVEN_BYTES: usize = 256;

/// The batch under construction, and one that the socket did not take.
#[derive(Debug)]
pub(crate) struct Outgoing {
    building: Batch,
    waiting: Batch,
    length: BatchLength,
    /// Bytes of a batch, at most.
    max_bytes: usize,
    is_ack_owed: bool,
    is_stream: bool,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self {
            building: Batch::new(),
            waiting: Batch::new(),
            length: BatchLength::default(),
            max_bytes: MAX_TRANSMIT_BYTES,
            is_ack_owed: false,
            is_stream: false,
        }
    }

    /// How fast packets that are added from now on leave, if that is known: by that batches are long or short.
    pub(crate) fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.max_bytes = self.length.at_rate(rate_bps);
    }

    /// Whether packets that are added from now on are part of a stream, or of one of many flows, which are one to the link.
    pub(crate) const fn set_stream(&mut self, is_stream: bool) {
        self.is_stream = is_stream;
    }

    /// Whether an acknowledgement probably comes behind the packets that are added from now on.
    pub(crate) const fn expect_acknowledgement(&mut self, is_owed: bool) {
        self.is_ack_owed = is_owed;
    }

    /// Whether packets wait for a socket to become writable. No more may be pushed then.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.waiting.is_blocked || self.building.is_blocked
    }

    /// How many packets of full length a run may have, so that one that does not fit the batch under construction fits the
    /// next.
    pub(crate) fn run_max(&self, mtu_bytes: u32, port: &Port) -> u32 {
        let length = Bth::LEN + XrcEth::LEN + Reth::LEN + mtu_bytes as usize + ICRC_LEN;
        let bytes = self.max_bytes / length;
        u32::try_from(bytes.clamp(1, packets_max(port))).unwrap_or(1)
    }

    /// Adds packets, sending what stands in their way first.
    pub(crate) fn push_run(
        &mut self,
        run: &Run<'_>,
        pd: PdId,
        path: &Path,
        memory: &MemoryTable,
        ports: &[Port],
        stats: &mut DeviceStats,
    ) -> Result<(), MemoryGone> {
        // The first finds out whether the batch takes it, and those behind it with it.
        self.push(&run.first, pd, path, memory, ports, stats)?;
        let mut done = 1;
        while done <= run.more {
            let (next, rest) = (run.packet(done), run.more + 1 - done);
            let room = self.max_bytes;
            let added = self
                .building
                .add_run(&next, rest, pd, path, memory, room, ports);
            if added == 0 {
                self.push(&next, pd, path, memory, ports, stats)?;
            }
            done += added.max(1);
        }
        Ok(())
    }

    /// Adds a packet, sending what stands in its way first.
    pub(crate) fn push(
        &mut self,
        transmit: &Transmit<'_>,
        pd: PdId,
        path: &Path,
        memory: &MemoryTable,
        ports: &[Port],
        stats: &mut DeviceStats,
    ) -> Result<(), MemoryGone> {
        let header_len = transmit.header.wire_len();
        let payload_len = transmit.payload.len() as usize;
        let length = header_len + payload_len + pad_len(payload_len) + ICRC_LEN;
        let room = self.max_bytes;
        let shuts_out = self.is_ack_owed && self.shuts_acknowledgement_out(transmit, length);
        if shuts_out || !self.building.takes(length, room, transmit, path, ports) {
            self.make_room(ports, stats);
        }
        self.building
            .add(transmit, pd, path, memory, length, header_len)?;
        self.building.is_stream |= self.is_stream;
        Ok(())
    }

    /// Whether it is better not to end the batch under construction with a packet of `length` bytes that is shorter than those in it:
    /// the acknowledgement would not be in it, and arrive later than the data.
    ///
    /// For a peer that waits for both, that is as good as two batches of data, unless the packet is nearly as long as the others. But who
    /// looks for a WRITE in its memory replies once it has the acknowledgement, too: so late that the one that it owes goes ahead of the
    /// reply, upon which the other end looks at its memory, and nobody polls for the reply. (`ib_write_lat` of 5,000 bytes took 60 us.)
    fn shuts_acknowledgement_out(&self, transmit: &Transmit<'_>, length: usize) -> bool {
        let shorter_by = self.building.shorter_by(length);
        let is_full = transmit.payload.len() >= MTU_MIN_BYTES;
        match transmit.header.bth.opcode.operation() {
            Some(Operation::WriteLast) if !self.is_stream => shorter_by > 0,
            Some(Operation::WriteOnly) => is_full && (1..=UNEVEN_BYTES).contains(&shorter_by),
            _ => is_full && (1..=HARDLY_BYTES).contains(&shorter_by),
        }
    }

    /// Sends the batch under construction, or lets it wait.
    fn make_room(&mut self, ports: &[Port], stats: &mut DeviceStats) {
        if self.waiting.count > 0 {
            // One waits already, and this one is of the same run, which is sent again: see `run_max`, which seldom lets it
            // come to that.
            stats.tx_dropped += self.building.count as u64;
            self.building.discard();
            return;
        }
        self.building.flush(ports, stats);
        if self.building.is_blocked {
            std::mem::swap(&mut self.building, &mut self.waiting);
        }
    }

    /// Sends everything, as far as the sockets take it.
    pub(crate) fn flush(&mut self, ports: &[Port], stats: &mut DeviceStats) {
        self.waiting.flush(ports, stats);
        if !self.waiting.is_blocked {
            self.building.flush(ports, stats);
        }
    }

    /// Whether no packet waits, neither for company nor for the socket.
    pub(crate) const fn is_empty(&self) -> bool {
        self.building.count == 0 && self.waiting.count == 0
    }

    /// Packets of the batch under construction.
    pub(crate) const fn gathered(&self) -> usize {
        self.building.count
    }

    /// Drops what waits and points to the program's memory, which is going away. The packets count as lost, and are
    /// of transports that send them again: those of the others are copies.
    pub(crate) fn forget_memory(&mut self) {
        for batch in [&mut self.waiting, &mut self.building] {
            if batch.refers {
                batch.discard();
            }
        }
    }

    /// The socket to wait for when blocked.
    pub(crate) fn blocked_port(&self) -> Option<usize> {
        let batch = if self.waiting.is_blocked {
            &self.waiting
        } else {
            &self.building
        };
        batch
            .target
            .as_ref()
            .filter(|_| batch.is_blocked)
            .map(|target| target.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::gid_entry::GidEntry;
    use crate::attach::tap::{Taps, Wiring};
    use crate::engine::port::Ports;
    use crate::memory::{Access, Region};
    use urxe_proto::{AddressVector, Payload, Sge, Via};
    use urxe_udp::{Framing, Piece};
    use urxe_wire::{Aeth, Bth, Gid, Header, Immediate, Opcode, Psn, Qpn, Syndrome, Transport};

    fn loopback() -> (Ports, Path) {
        let here = Gid::from(std::net::IpAddr::from([127, 0, 0, 1]));
        let gids = [GidEntry {
            gid: here,
            scope_id: 0,
        }];
        let taps = Taps::new(&Wiring::default(), "test").unwrap();
        let ports = Ports::open(&gids, 1, &taps).unwrap();
        let to = AddressVector {
            dest_gid: here,
            ..AddressVector::default()
        };
        let path = Path::new(&ports, &to, Qpn::new(5)).unwrap();
        (ports, path)
    }

    /// A message of two packets, and an acknowledgement behind it: how many packets the batch has after each.
    fn gathered(
        (first, last): (Operation, Operation),
        last_len: usize,
        is_owed: bool,
        is_stream: bool,
    ) -> [usize; 3] {
        let (ports, path) = loopback();
        let header = |operation: Operation| {
            let opcode = Opcode::new(Transport::Rc, operation);
            let mut header = Header::new(Bth::new(opcode, Qpn::new(5), Psn::new(0)));
            let reth = Reth {
                va: 0,
                rkey: 0,
                len: 4096,
            };
            header.reth = operation.has_reth().then_some(reth);
            header.immediate = operation.has_immediate().then_some(Immediate([0; 4]));
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
        outgoing.expect_acknowledgement(is_owed);
        outgoing.set_stream(is_stream);
        packets.map(|(header, payload)| {
            let transmit = Transmit {
                address: None,
                header,
                payload,
            };
            outgoing
                .push(&transmit, pd.id(), &path, &memory, &ports.ports, &mut stats)
                .unwrap();
            outgoing.gathered()
        })
    }

    #[test]
    fn an_acknowledgement_leaves_with_the_end_of_a_message() {
        let write = (Operation::WriteFirst, Operation::WriteLast);
        let send = (Operation::SendFirst, Operation::SendLast);
        let (with_the_end, apart) = ([1, 1, 2], [1, 2, 1]);
        for length in [4096, 1000, 4] {
            assert_eq!(gathered(write, length, true, false), with_the_end);
            assert_eq!(gathered(write, length, false, false), apart);
        }
        let pieces = (Operation::WriteOnly, Operation::WriteOnly);
        assert_eq!(gathered(pieces, 4084, true, false), with_the_end);
        // Nobody looks for these in its memory, or they are another message.
        let with_immediate = (Operation::WriteFirst, Operation::WriteLastImm);
        assert_eq!(gathered(with_immediate, 1000, true, false), apart);
        assert_eq!(gathered(pieces, 1000, true, false), apart);
        // It does not end the batch; or is in a hurry as part of it.
        assert_eq!(gathered(send, 4096, true, false), [1, 2, 3]);
        assert_eq!(gathered(send, 1000, true, false), apart);
        // Nobody looks in its memory for each message of a stream.
        assert_eq!(gathered(write, 1000, true, true), apart);
        assert_eq!(gathered(write, 4096, true, true), with_the_end);
    }

    /// The batch under construction, as bytes.
    fn bytes_of(outgoing: &mut Outgoing) -> Vec<u8> {
        outgoing.building.close_run();
        let pieces = &outgoing.building.pieces;
        // SAFETY: parts of the arena, or of a test's own memory.
        let bytes = |piece: &Piece<'_>| unsafe {
            std::slice::from_raw_parts(piece.address(), piece.len()).to_vec()
        };
        pieces.iter().flat_map(bytes).collect()
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
        let access = Access::REMOTE_READ;
        let region = Region::new(pd, addr, bytes.len() as u64, addr, access);
        let region = memory.register(region.unwrap()).unwrap();
        let sge = |len| {
            [Sge {
                addr,
                len,
                lkey: region.lkey,
            }]
        };
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
        // Copied, referred to, of a peer's range, in memory that ends on the way, and messages with an address each.
        let cases = [
            (Operation::SendMiddle, local(&all, 1024), None),
            (Operation::SendMiddle, local(&all, 4096), None),
            (Operation::ReadResponseMiddle, remote(1024), None),
            (Operation::SendMiddle, local(&too_short, 1024), Some(19)),
            (Operation::WriteOnly, local(&all, 1024), None),
            (Operation::WriteOnly, local(&all, 4096), None),
        ];
        for (operation, payload, fault_at) in cases {
            let opcode = Opcode::Queue {
                transport: Transport::Rc,
                operation,
            };
            let psn = Psn::new(0xff_fff8);
            let mut header = Header::new(Bth::new(opcode, Qpn::new(5), psn));
            let (va, rkey, len) = (0xffff_f000, 7, payload.len());
            header.reth = (operation == Operation::WriteOnly).then_some(Reth { va, rkey, len });
            let run = Run {
                first: Transmit {
                    address: None,
                    header,
                    payload,
                },
                more: PACKETS - 1,
            };
            let (mut together, mut apart) = (Outgoing::new(), Outgoing::new());
            let mut stats = [DeviceStats::default(); 2];
            let pushed = together.push_run(&run, pd.id(), &path, &memory, ports, &mut stats[0]);
            let pushed_apart = (0..PACKETS).try_for_each(|index| {
                let packet = run.packet(index);
                apart.push(&packet, pd.id(), &path, &memory, ports, &mut stats[1])
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
        let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
        let opcode = Opcode::new(Transport::Rc, Operation::SendMiddle);
        let mut push = |outgoing: &mut Outgoing, payload| {
            let transmit = Transmit {
                address: None,
                header: Header::new(Bth::new(opcode, Qpn::new(5), Psn::new(0))),
                payload: Payload::Bytes(payload),
            };
            outgoing
                .push(&transmit, pd.id(), &path, &memory, &ports.ports, &mut stats)
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
    fn only_what_is_sent_again_may_go_as_a_frame_and_of_streams_what_is_short() {
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
            outgoing.set_stream(is_stream);
            let opcode = Opcode::Queue {
                transport,
                operation: Operation::SendOnly,
            };
            let transmit = Transmit {
                address: None,
                header: Header::new(Bth::new(opcode, Qpn::new(5), Psn::new(0))),
                payload: Payload::Empty,
            };
            outgoing
                .push(&transmit, pd.id(), &path, &memory, &ports.ports, &mut stats)
                .unwrap();
            let target = outgoing.building.target.as_ref().unwrap();
            let found = (outgoing.building.framing(target), outgoing.gathered());
            assert_eq!(found, (framing, gathered), "{transport:?}");
        }
    }

    /// A full send buffer makes packets wait. When some memory goes away meanwhile, those of transports that do not
    /// repeat them stay.
    #[test]
    fn only_what_points_to_memory_goes_with_it() {
        const LEN: u32 = 4096;
        let (ports, path) = loopback();
        let bytes = vec![7u8; LEN as usize];
        let (addr, mut memory) = (bytes.as_ptr() as u64, MemoryTable::default());
        let pd = memory.alloc_pd();
        let region = Region::new(pd, addr, LEN.into(), addr, Access::empty());
        let region = memory.register(region.unwrap()).unwrap();
        let sges = [Sge {
            addr,
            len: LEN,
            lkey: region.lkey,
        }];
        for (transport, stays) in [(Transport::Uc, true), (Transport::Rc, false)] {
            let operation = Operation::SendOnly;
            let opcode = Opcode::Queue {
                transport,
                operation,
            };
            let transmit = Transmit {
                address: None,
                header: Header::new(Bth::new(opcode, Qpn::new(5), Psn::new(0))),
                payload: Payload::Local {
                    sges: &sges,
                    offset: 0,
                    len: LEN,
                },
            };
            let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
            let ports = &ports.ports;
            outgoing
                .push(&transmit, pd.id(), &path, &memory, ports, &mut stats)
                .unwrap();
            outgoing.building.is_blocked = true;
            outgoing.forget_memory();
            assert_eq!(outgoing.building.count, usize::from(stays), "{transport:?}");
        }
    }
}
