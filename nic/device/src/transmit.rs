//! Packets on their way out: gathered into batches that the kernel (or nobody) cuts apart.
//!
//! Consecutive packets of the same length to the same peer leave in one system call (GSO); a shorter
//! one may end the batch, so an acknowledgement rides with the reply it follows. Small payloads are
//! copied behind their header, large ones are taken from the program's memory by the kernel.

use urxe_proto::{LocalAccess, Payload, PdId, RemoteAccess, RemoteRange, Run, Sge, Transmit};
use urxe_udp::{
    Destination, MAX_TRANSMIT_BYTES, Piece, SendError, Socket, Transmit as UdpTransmit,
};
use urxe_wire::icrc::Icrc;
use urxe_wire::{Bth, ICRC_LEN, MAX_HEADER_LEN, Transport, pad_len};

use crate::batch::BatchLength;
use crate::guard::{guarded, take};
use crate::memory::MemoryTable;
use crate::nic::DeviceStats;
use crate::path::Path;
use crate::port::Port;

/// The header of a WRITE, which its first packet alone has (RETH).
const HARDLY_BYTES: usize = 16;
/// The smallest path MTU: what carries less is no full packet.
const MTU_MIN_BYTES: usize = 256;

/// Payloads up to this many bytes are copied: an iovec costs the kernel 50 ns (`urxe-udp`'s README),
/// and the bytes are read for the ICRC anyway.
const COPY_MAX: usize = 3072;
/// Room for a full batch of copied payloads and for the headers of as many packets as a batch takes.
const ARENA_BYTES: usize = MAX_TRANSMIT_BYTES + 128 * (MAX_HEADER_LEN + 8);
/// Pieces of one send, at most (`UIO_MAXIOV` of linux/uio.h is 1024).
const PIECES_MAX: usize = 1000;

/// The memory of a packet's payload may not be used any more; the packet, of this header, was not added, nor was any behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryGone(pub(crate) Bth);

/// The batch under construction, and one that the socket did not take.
#[derive(Debug)]
pub(crate) struct Outgoing {
    building: Batch,
    waiting: Batch,
    length: BatchLength,
    /// Bytes of a batch, at most.
    max_bytes: usize,
    is_ack_owed: bool,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self {
            building: Batch::new(),
            waiting: Batch::new(),
            length: BatchLength::default(),
            max_bytes: MAX_TRANSMIT_BYTES,
            is_ack_owed: false,
        }
    }

    /// How fast packets that are added from now on leave, if that is known: by that batches are long or short.
    pub(crate) fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.max_bytes = self.length.at_rate(rate_bps);
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
        let capabilities = port.socket.as_deref().map(Socket::capabilities);
        let Some(capabilities) = capabilities.filter(|capabilities| capabilities.gso) else {
            return 1;
        };
        let bytes = self.max_bytes / (Bth::LEN + mtu_bytes as usize + ICRC_LEN);
        u32::try_from(bytes.clamp(1, capabilities.max_gso_segments)).unwrap_or(1)
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
        // A short packet ends a batch, and one that is hardly shorter than the first, as the last of a WRITE is, would keep the
        // acknowledgement out. On its own it arrives later than the data, and a peer that waits for both loses by it.
        let is_full = payload_len >= MTU_MIN_BYTES;
        let shuts_out = self.is_ack_owed && is_full && self.building.is_hardly_longer(length);
        if shuts_out || !self.building.takes(length, room, transmit, path, ports) {
            self.building.flush(ports, stats);
            if self.building.is_blocked {
                std::mem::swap(&mut self.building, &mut self.waiting);
            }
        }
        self.building
            .add(transmit, pd, path, memory, length, header_len)
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

/// Whether the request that the packet belongs to completes only when the peer has it. The others complete as
/// soon as they are handed over, and the program may change its memory then.
fn is_acknowledged(transmit: &Transmit<'_>) -> bool {
    let transport = transmit.header.bth.opcode.transport();
    matches!(transport, Some(Transport::Rc | Transport::Xrc))
}

/// Whether the payload is copied behind its header: if it is short, if the memory is a peer's to read (the program may
/// change it at any time, and the ICRC must be that of the bytes that are sent), or if nobody tells when the peer has it.
fn is_copied(transmit: &Transmit<'_>) -> bool {
    match transmit.payload {
        Payload::Local { len, .. } => len as usize <= COPY_MAX || !is_acknowledged(transmit),
        Payload::Empty | Payload::Bytes(_) | Payload::Words(_) | Payload::Remote { .. } => true,
    }
}

/// Copies a payload to `out`, which is as long.
fn copy_payload(
    payload: &Payload<'_>,
    pd: PdId,
    memory: &MemoryTable,
    out: &mut [u8],
) -> Option<()> {
    match *payload {
        Payload::Empty => {}
        Payload::Bytes(bytes) => out.copy_from_slice(bytes),
        Payload::Words(words) => {
            for (to, word) in out.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_be_bytes());
            }
        }
        Payload::Local { sges, offset, .. } => {
            urxe_proto::gather(memory, pd, sges, offset, out).ok()?;
        }
        Payload::Remote { via, rkey, va, len } => {
            let range = RemoteRange { rkey, va, len };
            let from = memory.remote(via, range, RemoteAccess::Read).ok()?;
            // SAFETY: the range lies in a region that the program registered.
            unsafe { take(from, out).ok()? };
        }
    }
    Some(())
}

/// Where the payloads of `count` packets of a run are, one behind the other, in this process.
fn run_source(
    payload: &Payload<'_>,
    count: usize,
    pd: PdId,
    memory: &MemoryTable,
) -> Option<*const u8> {
    let bytes = count * payload.len() as usize;
    let from = match *payload {
        Payload::Local {
            sges: [sge],
            offset,
            ..
        } => memory.local(pd, sge, offset, bytes, LocalAccess::Read),
        Payload::Remote { via, rkey, va, .. } => {
            let len = u32::try_from(bytes).ok()?;
            memory.remote(via, RemoteRange { rkey, va, len }, RemoteAccess::Read)
        }
        _ => return None,
    };
    from.ok().map(|from| from as *const u8)
}

/// Where a batch goes.
struct Target {
    /// Index of the socket.
    port: usize,
    destination: Destination,
    tos: u8,
    /// See [`is_acknowledged`]. What is not keeps to the socket, which has more room where nobody reads it for a while.
    is_acknowledged: bool,
}

/// A batch under construction, or waiting for the socket.
struct Batch {
    arena: Box<[u8]>,
    used: usize,
    /// Start of the bytes in the arena that are not in `pieces` yet.
    run_start: usize,
    pieces: Vec<Piece<'static>>,
    target: Option<Target>,
    segment_bytes: usize,
    count: usize,
    bytes: usize,
    is_closed: bool,
    is_blocked: bool,
    /// Whether pieces of it are the program's memory.
    refers: bool,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} packets, {} bytes)", self.count, self.bytes)
    }
}

impl Batch {
    fn new() -> Self {
        Self {
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            used: 0,
            run_start: 0,
            pieces: Vec::with_capacity(64),
            target: None,
            segment_bytes: 0,
            count: 0,
            bytes: 0,
            is_closed: false,
            is_blocked: false,
            refers: false,
        }
    }

    fn discard(&mut self) {
        self.used = 0;
        self.run_start = 0;
        self.pieces.clear();
        self.target = None;
        self.count = 0;
        self.bytes = 0;
        self.is_closed = false;
        self.is_blocked = false;
        self.refers = false;
    }

    /// Whether a packet of `length` bytes would end the batch, for want of a few bytes.
    const fn is_hardly_longer(&self, length: usize) -> bool {
        self.count > 0 && length < self.segment_bytes && self.segment_bytes - length <= HARDLY_BYTES
    }

    /// Whether a packet of `length` bytes may join the batch, of `max_bytes` then at most.
    fn takes(
        &self,
        length: usize,
        max_bytes: usize,
        transmit: &Transmit<'_>,
        path: &Path,
        ports: &[Port],
    ) -> bool {
        if self.count == 0 {
            return true;
        }
        let Some(capabilities) = ports[path.port].socket.as_deref().map(Socket::capabilities)
        else {
            return false;
        };
        let same_peer = self.target.as_ref().is_some_and(|ours| {
            ours.port == path.port
                && ours.tos == path.tos
                && ours.is_acknowledged == is_acknowledged(transmit)
                && ours.destination == path.destination
        });
        let pieces = match transmit.payload {
            Payload::Local { sges, .. } => sges.len() + 1,
            _ => 1,
        };
        same_peer
            && !self.is_closed
            && length <= self.segment_bytes
            && capabilities.gso
            && self.count < capabilities.max_gso_segments
            && self.bytes + length <= max_bytes
            && self.used + length + MAX_HEADER_LEN <= ARENA_BYTES
            && self.pieces.len() + pieces < PIECES_MAX
    }

    /// Adds packets of a run behind its first, which is in the batch: as many of `count` as it takes, or none, if their memory
    /// is not all there. Returns how many.
    #[expect(
        clippy::too_many_arguments,
        reason = "the pieces of an engine, borrowed apart"
    )]
    fn add_run(
        &mut self,
        next: &Transmit<'_>,
        count: u32,
        pd: PdId,
        path: &Path,
        memory: &MemoryTable,
        max_bytes: usize,
        ports: &[Port],
    ) -> u32 {
        let header_len = next.header.wire_len();
        let payload_len = next.payload.len() as usize;
        let length = header_len + payload_len + ICRC_LEN;
        let capabilities = ports[path.port].socket.as_deref().map(Socket::capabilities);
        let Some(capabilities) = capabilities.filter(|capabilities| capabilities.gso) else {
            return 0;
        };
        if self.is_closed || length != self.segment_bytes || pad_len(payload_len) != 0 {
            return 0;
        }
        let is_copied = is_copied(next);
        let stride = if is_copied {
            length
        } else {
            header_len + ICRC_LEN
        };
        let arena_room = ARENA_BYTES - MAX_HEADER_LEN - self.used;
        let count = (count as usize)
            .min(capabilities.max_gso_segments.saturating_sub(self.count))
            .min(max_bytes.saturating_sub(self.bytes) / length)
            .min(arena_room / stride)
            .min((PIECES_MAX - self.pieces.len()) / 2);
        if count == 0 {
            return 0;
        }
        let Some(from) = run_source(&next.payload, count, pd, memory) else {
            return 0;
        };
        let packets = &mut self.arena[self.used..self.used + count * stride];
        if next.header.emit(payload_len, packets).is_err() {
            return 0;
        }
        let (first, others) = packets.split_at_mut(stride);
        for (other, psn) in others.chunks_exact_mut(stride).zip(1..) {
            other[..header_len].copy_from_slice(&first[..header_len]);
            if let Some(bth) = other.first_chunk_mut() {
                Bth::put_psn(bth, next.header.bth.psn.add(psn));
            }
        }
        let first_id = self.count;
        let finish = || {
            for (index, packet) in packets.chunks_exact_mut(stride).enumerate() {
                // See `add`.
                let id = u16::try_from(first_id + index).unwrap_or(u16::MAX);
                // SAFETY: the range lies in a region that the program registered; see `add` for who may change it.
                let payload = unsafe { from.add(index * payload_len) };
                let (covered, last) = packet.split_at_mut(stride - ICRC_LEN);
                let mut icrc;
                if is_copied {
                    let to = covered[header_len..].as_mut_ptr();
                    // SAFETY: as above; the arena is ours, so the two do not overlap.
                    unsafe { std::ptr::copy_nonoverlapping(payload, to, payload_len) };
                    icrc = path.flow.start(length, id, covered);
                } else {
                    icrc = path.flow.start(length, id, covered);
                    // SAFETY: as above.
                    icrc.update(unsafe { std::slice::from_raw_parts(payload, payload_len) });
                }
                last.copy_from_slice(&icrc.finish());
            }
        };
        // SAFETY: sums and copies take no lock and have nothing to drop.
        if unsafe { guarded(finish) }.is_err() {
            return 0;
        }
        if is_copied {
            self.used += count * stride;
        } else {
            for index in 0..count {
                self.used += header_len;
                self.close_run();
                // SAFETY: as above.
                let piece = unsafe { Piece::from_raw(from.add(index * payload_len), payload_len) };
                self.pieces.push(piece);
                self.used += ICRC_LEN;
            }
            self.refers = true;
        }
        self.count += count;
        self.bytes += count * length;
        u32::try_from(count).unwrap_or(0)
    }

    fn add(
        &mut self,
        transmit: &Transmit<'_>,
        pd: PdId,
        path: &Path,
        memory: &MemoryTable,
        length: usize,
        header_len: usize,
    ) -> Result<(), MemoryGone> {
        let start = self.used;
        let header = &mut self.arena[start..start + header_len];
        let payload_len = transmit.payload.len() as usize;
        if transmit.header.emit(payload_len, header).is_err() {
            debug_assert!(false, "the protocol made a header that cannot be written");
            return Err(MemoryGone(transmit.header.bth));
        }
        // The k-th datagram that the kernel cuts from a batch has the IPv4 ID k.
        let id = u16::try_from(self.count).unwrap_or(u16::MAX);
        let pad = pad_len(payload_len);
        let icrc = if is_copied(transmit) {
            // One sum over all of it: to begin one costs as much as 64 bytes.
            let end = start + header_len + payload_len;
            let out = &mut self.arena[start + header_len..end];
            copy_payload(&transmit.payload, pd, memory, out)
                .ok_or(MemoryGone(transmit.header.bth))?;
            self.arena[end..end + pad].fill(0);
            self.used = end;
            path.flow.start(length, id, &self.arena[start..end + pad])
        } else {
            let mut icrc = path.flow.start(length, id, header);
            self.used += header_len;
            let (pieces, run_start) = (self.pieces.len(), self.run_start);
            if self
                .refer_payload(transmit, pd, memory, &mut icrc)
                .is_none()
            {
                self.used = start;
                self.pieces.truncate(pieces);
                self.run_start = run_start;
                return Err(MemoryGone(transmit.header.bth));
            }
            self.arena[self.used..self.used + pad].fill(0);
            icrc.update(&[0; 3][..pad]);
            icrc
        };
        self.used += pad;
        self.arena[self.used..self.used + ICRC_LEN].copy_from_slice(&icrc.finish());
        self.used += ICRC_LEN;
        if self.count == 0 {
            self.target = Some(Target {
                port: path.port,
                destination: path.destination,
                tos: path.tos,
                is_acknowledged: is_acknowledged(transmit),
            });
            self.segment_bytes = length;
        }
        self.count += 1;
        self.bytes += length;
        self.is_closed = length < self.segment_bytes;
        Ok(())
    }

    /// Lets the kernel take the payload from the program's own memory.
    fn refer_payload(
        &mut self,
        transmit: &Transmit<'_>,
        pd: PdId,
        memory: &MemoryTable,
        icrc: &mut Icrc,
    ) -> Option<()> {
        match transmit.payload {
            Payload::Local { sges, offset, len } => self.refer(sges, offset, len, pd, memory, icrc),
            _ => None,
        }
    }

    /// Adds pieces of the program's own memory.
    fn refer(
        &mut self,
        sges: &[Sge],
        offset: u32,
        len: u32,
        pd: PdId,
        memory: &MemoryTable,
        icrc: &mut Icrc,
    ) -> Option<()> {
        self.close_run();
        self.refers = true;
        let (mut skip, mut left) = (offset, len);
        for sge in sges {
            if left == 0 {
                break;
            }
            if skip >= sge.len {
                skip -= sge.len;
                continue;
            }
            let piece = left.min(sge.len - skip) as usize;
            let at = memory.local(pd, sge, skip, piece, LocalAccess::Read).ok()? as *const u8;
            // SAFETY: the range lies in a region that the program registered, and a program does not
            // change what it asked to have sent before the request completes.
            unsafe {
                // A sum has nothing to drop, and takes no lock.
                guarded(|| icrc.update(std::slice::from_raw_parts(at, piece))).ok()?;
                self.pieces.push(Piece::from_raw(at, piece));
            }
            left -= u32::try_from(piece).unwrap_or(left);
            skip = 0;
        }
        (left == 0).then_some(())
    }

    /// Makes a piece of the bytes in the arena that have none yet.
    fn close_run(&mut self) {
        if self.run_start < self.used {
            let run = &self.arena[self.run_start..self.used];
            // SAFETY: the arena is not written below `used` and not freed while the batch stands.
            self.pieces
                .push(unsafe { Piece::from_raw(run.as_ptr(), run.len()) });
            self.run_start = self.used;
        }
    }

    /// Sends the batch. It stays, and is blocked, if the socket cannot take it now.
    fn flush(&mut self, ports: &[Port], stats: &mut DeviceStats) {
        if self.count == 0 {
            return;
        }
        self.close_run();
        let Some((target, socket)) = self
            .target
            .as_ref()
            .and_then(|target| Some((target, ports[target.port].socket.as_ref()?)))
        else {
            self.discard();
            return;
        };
        let segment_size =
            (self.count > 1).then(|| u16::try_from(self.segment_bytes).unwrap_or(u16::MAX));
        let transmit = UdpTransmit {
            destination: &target.destination,
            segment_size,
            tos: target.tos,
            may_be_frame: target.is_acknowledged,
            iov: &self.pieces,
        };
        let count = self.count as u64;
        match socket.send(&transmit) {
            Ok(sent) if sent.lost.is_some() => stats.tx_dropped += count,
            // Without GSO the send buffer may fill up between two datagrams; the protocol sends the
            // others again.
            Ok(_) => {
                stats.tx_packets += count;
                stats.tx_batches += 1;
                stats.tx_bytes += self.bytes as u64;
            }
            Err(SendError::WouldBlock) => {
                self.is_blocked = true;
                stats.tx_blocked += 1;
                return;
            }
            Err(_) => stats.tx_dropped += count,
        }
        self.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::GidEntry;
    use crate::memory::Access;
    use crate::port::Ports;
    use crate::tap::{Taps, Wiring};
    use urxe_proto::{AddressVector, Via};
    use urxe_wire::{Aeth, Bth, Gid, Header, Opcode, Operation, Psn, Qpn, Reth, Syndrome};

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

    /// A WRITE of two packets, and an acknowledgement behind it.
    #[test]
    fn an_acknowledgement_leaves_with_the_end_of_a_message() {
        let (ports, path) = loopback();
        let opcode = |operation| Opcode::Queue {
            transport: Transport::Rc,
            operation,
        };
        let header = |operation| Header::new(Bth::new(opcode(operation), Qpn::new(5), Psn::new(0)));
        let (mut first, mut acknowledge) = (
            header(Operation::WriteFirst),
            header(Operation::Acknowledge),
        );
        first.reth = Some(Reth {
            va: 0,
            rkey: 0,
            len: 8192,
        });
        acknowledge.aeth = Some(Aeth {
            syndrome: Syndrome::Ack { credits: 31 },
            msn: 1,
        });
        let packets = [
            (first, Payload::Bytes(&[7; 4096])),
            (header(Operation::WriteLast), Payload::Bytes(&[7; 4096])),
            (acknowledge, Payload::Empty),
        ];
        for (is_owed, expected) in [(false, [1, 2, 1]), (true, [1, 1, 2])] {
            let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
            let mut memory = MemoryTable::default();
            let pd = memory.alloc_pd();
            outgoing.expect_acknowledgement(is_owed);
            let gathered = packets.map(|(header, payload)| {
                let transmit = Transmit {
                    address: None,
                    header,
                    payload,
                };
                outgoing
                    .push(&transmit, pd.id(), &path, &memory, &ports.ports, &mut stats)
                    .unwrap();
                outgoing.gathered()
            });
            assert_eq!(gathered, expected);
        }
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
        let region = memory
            .register(pd, addr, bytes.len() as u64, addr, access)
            .unwrap();
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
        // Copied, referred to, of a peer's range, and in memory that ends on the way.
        let cases = [
            (Operation::SendMiddle, local(&all, 1024), None),
            (Operation::SendMiddle, local(&all, 4096), None),
            (Operation::ReadResponseMiddle, remote(1024), None),
            (Operation::SendMiddle, local(&too_short, 1024), Some(19)),
        ];
        for (operation, payload, fault_at) in cases {
            let opcode = Opcode::Queue {
                transport: Transport::Rc,
                operation,
            };
            let psn = Psn::new(0xff_fff8);
            let run = Run {
                first: Transmit {
                    address: None,
                    header: Header::new(Bth::new(opcode, Qpn::new(5), psn)),
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

    /// Frames have less room and no order.
    #[test]
    fn only_what_is_sent_again_may_go_as_a_frame() {
        let (ports, path) = loopback();
        let mut memory = MemoryTable::default();
        let pd = memory.alloc_pd();
        let (mut outgoing, mut stats) = (Outgoing::new(), DeviceStats::default());
        let cases = [
            (Transport::Rc, true, 1),
            (Transport::Rc, true, 2),
            (Transport::Uc, false, 1),
            (Transport::Uc, false, 2),
            (Transport::Rc, true, 1),
        ];
        for (transport, may_be_frame, gathered) in cases {
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
            let found = (target.is_acknowledged, outgoing.gathered());
            assert_eq!(found, (may_be_frame, gathered), "{transport:?}");
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
        let region = memory
            .register(pd, addr, LEN.into(), addr, Access::empty())
            .unwrap();
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
