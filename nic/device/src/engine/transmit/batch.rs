//! A batch: packets of one length for one peer, and where their bytes are.

use urxe_proto::{LocalAccess, Payload, PdId, Sge, Transmit};
use urxe_udp::{
    Destination, Framing, MAX_TRANSMIT_BYTES, Piece, SendError, Socket, Transmit as UdpTransmit,
};
use urxe_wire::icrc::Icrc;
use urxe_wire::{Bth, Header, ICRC_LEN, MAX_HEADER_LEN, Reth, pad_len};

use super::payload::{MemoryGone, copy_payload, is_acknowledged, is_copied, run_source};
use super::turn::Turn;
use crate::engine::path::Path;
use crate::engine::port::Port;
use crate::engine::stats::DeviceStats;
use crate::memory::MemoryTable;
use crate::process::guard::guarded;

/// Room for a full batch of copied payloads and for the headers of as many packets as a batch
/// takes.
const ARENA_BYTES: usize = MAX_TRANSMIT_BYTES + 128 * (MAX_HEADER_LEN + 8);
/// Pieces of one send, at most (`UIO_MAXIOV` of linux/uio.h is 1024).
const PIECES_MAX: usize = 1000;

/// Packets of a batch, at most: one where the kernel does not cut batches apart.
pub(super) fn packets_max(port: &Port) -> usize {
    let capabilities = port.socket.as_deref().map(Socket::capabilities);
    capabilities
        .filter(|capabilities| capabilities.gso)
        .map_or(1, |capabilities| capabilities.max_gso_segments)
}

/// Where a batch goes.
pub(super) struct Target {
    /// Index of the socket.
    pub(super) port: usize,
    destination: Destination,
    tos: u8,
    /// See [`is_acknowledged`]. What is not keeps to the socket, which has more room where no
    /// thread reads it for a while.
    pub(super) is_acknowledged: bool,
}

/// A batch under construction, or waiting for the socket.
pub(super) struct Batch {
    arena: Box<[u8]>,
    used: usize,
    /// Start of the bytes in the arena that are not in `pieces` yet.
    unlisted_start: usize,
    pub(super) pieces: Vec<Piece<'static>>,
    pub(super) target: Option<Target>,
    segment_bytes: usize,
    pub(super) count: usize,
    bytes: usize,
    is_closed: bool,
    pub(super) is_blocked: bool,
    /// Whether pieces of it are the program's memory.
    pub(super) refers: bool,
    /// Whether packets of it are part of a stream.
    pub(super) is_stream: bool,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} packets, {} bytes)", self.count, self.bytes)
    }
}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            used: 0,
            unlisted_start: 0,
            pieces: Vec::with_capacity(64),
            target: None,
            segment_bytes: 0,
            count: 0,
            bytes: 0,
            is_closed: false,
            is_blocked: false,
            refers: false,
            is_stream: false,
        }
    }

    pub(super) fn discard(&mut self) {
        self.used = 0;
        self.unlisted_start = 0;
        self.pieces.clear();
        self.target = None;
        self.count = 0;
        self.bytes = 0;
        self.is_closed = false;
        self.is_blocked = false;
        self.refers = false;
        self.is_stream = false;
    }

    /// Whether a packet of `length` bytes may join the batch, of `max_bytes` then at most.
    pub(super) fn takes(
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
            && self.count < packets_max(&ports[path.port])
            && self.bytes + length <= max_bytes
            && self.used + length + MAX_HEADER_LEN <= ARENA_BYTES
            && self.pieces.len() + pieces < PIECES_MAX
    }

    /// Adds packets of a run behind its first, which is in the batch: as many of `count` as it
    /// takes, or none, if their memory is not all there. Returns how many.
    pub(super) fn add_run(
        &mut self,
        next: &Transmit<'_>,
        count: u32,
        turn: &Turn,
        path: &Path,
        memory: &MemoryTable,
        ports: &[Port],
    ) -> u32 {
        let header_len = next.header.wire_len();
        let payload_len = next.payload.len() as usize;
        let length = header_len + payload_len + ICRC_LEN;
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
            .min(packets_max(&ports[path.port]).saturating_sub(self.count))
            .min(turn.room_bytes.saturating_sub(self.bytes) / length)
            .min(arena_room / stride)
            .min((PIECES_MAX - self.pieces.len()) / 2);
        if count == 0 {
            return 0;
        }
        let Some(from) = run_source(&next.payload, count, turn.pd, memory) else {
            return 0;
        };
        let packets = &mut self.arena[self.used..self.used + count * stride];
        if next.header.emit(payload_len, packets).is_err() {
            return 0;
        }
        number_headers(packets, stride, &next.header);
        let first_id = self.count;
        let finish = || {
            for (index, packet) in packets.chunks_exact_mut(stride).enumerate() {
                // See `add`.
                let id = u16::try_from(first_id + index).unwrap_or(u16::MAX);
                // SAFETY: the range lies in a region that the program registered; see `add` for
                // what may change it.
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
            // SAFETY: as above.
            let payloads = (0..count).map(|index| unsafe { from.add(index * payload_len) });
            for payload in payloads {
                self.used += header_len;
                self.list_rest();
                // SAFETY: as above.
                let piece = unsafe { Piece::from_raw(payload, payload_len) };
                self.pieces.push(piece);
                self.used += ICRC_LEN;
            }
            self.refers = true;
        }
        self.count += count;
        self.bytes += count * length;
        u32::try_from(count).unwrap_or(0)
    }

    pub(super) fn add(
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
            let (pieces, unlisted_start) = (self.pieces.len(), self.unlisted_start);
            if self
                .refer_payload(transmit, pd, memory, &mut icrc)
                .is_none()
            {
                self.used = start;
                self.pieces.truncate(pieces);
                self.unlisted_start = unlisted_start;
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
    pub(super) fn refer_payload(
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
    pub(super) fn refer(
        &mut self,
        sges: &[Sge],
        offset: u32,
        len: u32,
        pd: PdId,
        memory: &MemoryTable,
        icrc: &mut Icrc,
    ) -> Option<()> {
        self.list_rest();
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
            // SAFETY: the range lies in a region that the program registered, and a program does
            // not change what it asked to have sent before the request completes.
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
    pub(super) fn list_rest(&mut self) {
        if self.unlisted_start < self.used {
            let unlisted = &self.arena[self.unlisted_start..self.used];
            // SAFETY: the arena is not written below `used` and not freed while the batch stands.
            self.pieces
                .push(unsafe { Piece::from_raw(unlisted.as_ptr(), unlisted.len()) });
            self.unlisted_start = self.used;
        }
    }

    /// Frames have less room and no order: not for what is never sent again.
    pub(super) const fn framing(&self, target: &Target) -> Framing {
        match (target.is_acknowledged, self.is_stream) {
            (false, _) => Framing::Never,
            (true, true) => Framing::Stream,
            (true, false) => Framing::Message,
        }
    }

    /// Sends the batch. It stays, and is blocked, if the socket cannot take it now.
    pub(super) fn flush(&mut self, ports: &[Port], stats: &mut DeviceStats) {
        if self.count == 0 {
            return;
        }
        self.list_rest();
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
            framing: self.framing(target),
            iov: &self.pieces,
            whole: (!self.refers).then(|| &self.arena[..self.used]),
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

/// Makes the headers of a run's packets, which are `stride` bytes apart, out of that of the first.
fn number_headers(packets: &mut [u8], stride: usize, header: &Header) {
    let len = header.wire_len();
    let (first, others) = packets.split_at_mut(stride);
    for (other, psn) in others.chunks_exact_mut(stride).zip(1..) {
        other[..len].copy_from_slice(&first[..len]);
        if let Some(bth) = other.first_chunk_mut() {
            Bth::put_psn(bth, header.bth.psn.add(psn));
        }
        if let Some(reth) = header.reth
            && let Some(place) = other[..len].last_chunk_mut()
        {
            let offset = u64::from(psn) * u64::from(reth.len);
            Reth::put_va(place, reth.va.wrapping_add(offset));
        }
    }
}
