//! Packets on their way out: gathered into batches that the kernel (or nobody) cuts apart.
//!
//! Consecutive packets of the same length to the same peer leave in one system call (GSO); a shorter
//! one may end the batch, so an acknowledgement rides with the reply it follows. Small payloads are
//! copied behind their header, large ones are taken from the program's memory by the kernel.

use urxe_proto::{LocalAccess, Payload, PdId, RemoteAccess, RemoteRange, Sge, Transmit};
use urxe_udp::{
    Destination, MAX_TRANSMIT_BYTES, Piece, SendError, Socket, Transmit as UdpTransmit,
};
use urxe_wire::icrc::Icrc;
use urxe_wire::{ICRC_LEN, MAX_HEADER_LEN, Transport, pad_len};

use crate::memory::{MemoryTable, take};
use crate::nic::DeviceStats;
use crate::path::Path;
use crate::port::Port;

/// Payloads up to this many bytes are copied: an iovec costs the kernel 50 ns (`urxe-udp`'s README),
/// and the bytes are read for the ICRC anyway.
const COPY_MAX: usize = 3072;
/// Room for a full batch of copied payloads and for the headers of as many packets as a batch takes.
const ARENA_BYTES: usize = MAX_TRANSMIT_BYTES + 128 * (MAX_HEADER_LEN + 8);
/// Pieces of one send, at most (`UIO_MAXIOV` of linux/uio.h is 1024).
const PIECES_MAX: usize = 1000;

/// The memory of a packet's payload may not be used any more; the packet was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryGone;

/// The batch under construction, and one that the socket did not take.
#[derive(Debug)]
pub(crate) struct Outgoing {
    building: Batch,
    waiting: Batch,
}

impl Outgoing {
    pub(crate) fn new() -> Self {
        Self {
            building: Batch::new(),
            waiting: Batch::new(),
        }
    }

    /// Whether packets wait for a socket to become writable. No more may be pushed then.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.waiting.is_blocked || self.building.is_blocked
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
        if !self.building.takes(length, transmit, path, ports) {
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

    /// Drops what waits: the memory it points to is going away. The packets count as lost.
    pub(crate) fn discard(&mut self) {
        self.waiting.discard();
        self.building.discard();
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

/// Where a batch goes.
struct Target {
    /// Index of the socket.
    port: usize,
    destination: Destination,
    tos: u8,
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
    }

    /// Whether a packet of `length` bytes may join the batch.
    fn takes(&self, length: usize, transmit: &Transmit<'_>, path: &Path, ports: &[Port]) -> bool {
        if self.count == 0 {
            return true;
        }
        let Some(capabilities) = ports[path.port].socket.as_deref().map(Socket::capabilities)
        else {
            return false;
        };
        let same_peer = self.target.as_ref().is_some_and(|ours| {
            ours.port == path.port && ours.tos == path.tos && ours.destination == path.destination
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
            && self.bytes + length <= MAX_TRANSMIT_BYTES
            && self.used + length + MAX_HEADER_LEN <= ARENA_BYTES
            && self.pieces.len() + pieces < PIECES_MAX
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
        let (start, payload_len) = (self.used, transmit.payload.len() as usize);
        let header = &mut self.arena[start..start + header_len];
        if transmit.header.emit(payload_len, header).is_err() {
            debug_assert!(false, "the protocol made a header that cannot be written");
            return Err(MemoryGone);
        }
        // The k-th datagram that the kernel cuts from a batch has the IPv4 ID k.
        let id = u16::try_from(self.count).unwrap_or(u16::MAX);
        let mut icrc = path.flow.start(length, id, header);
        self.used += header_len;
        let pieces = self.pieces.len();
        let run_start = self.run_start;
        if self.add_payload(transmit, pd, memory, &mut icrc).is_none() {
            self.used = start;
            self.pieces.truncate(pieces);
            self.run_start = run_start;
            return Err(MemoryGone);
        }
        let pad = pad_len(payload_len);
        let tail = &mut self.arena[self.used..self.used + pad + ICRC_LEN];
        tail[..pad].fill(0);
        icrc.update(&tail[..pad]);
        tail[pad..].copy_from_slice(&icrc.finish());
        self.used += pad + ICRC_LEN;
        if self.count == 0 {
            self.target = Some(Target {
                port: path.port,
                destination: path.destination,
                tos: path.tos,
            });
            self.segment_bytes = length;
        }
        self.count += 1;
        self.bytes += length;
        self.is_closed = length < self.segment_bytes;
        Ok(())
    }

    fn add_payload(
        &mut self,
        transmit: &Transmit<'_>,
        pd: PdId,
        memory: &MemoryTable,
        icrc: &mut Icrc,
    ) -> Option<()> {
        let len = transmit.payload.len() as usize;
        match transmit.payload {
            Payload::Empty => Some(()),
            Payload::Bytes(bytes) => {
                self.arena[self.used..self.used + len].copy_from_slice(bytes);
                self.cover(len, icrc);
                Some(())
            }
            Payload::Local { sges, offset, .. }
                if len <= COPY_MAX || !is_acknowledged(transmit) =>
            {
                let out = &mut self.arena[self.used..self.used + len];
                urxe_proto::gather(memory, pd, sges, offset, out).ok()?;
                self.cover(len, icrc);
                Some(())
            }
            Payload::Local { sges, offset, len } => self.refer(sges, offset, len, pd, memory, icrc),
            Payload::Remote {
                via,
                rkey,
                va,
                len: range_len,
            } => {
                // Copied whatever its length: the program may change it at any time, and the ICRC must be
                // that of the bytes that are sent.
                let range = RemoteRange {
                    rkey,
                    va,
                    len: range_len,
                };
                let from = memory.remote(via, range, RemoteAccess::Read).ok()?;
                // SAFETY: the range lies in a region that the program registered.
                unsafe { take(from, &mut self.arena[self.used..self.used + len]) };
                self.cover(len, icrc);
                Some(())
            }
        }
    }

    /// Counts `len` bytes that were just written to the arena.
    fn cover(&mut self, len: usize, icrc: &mut Icrc) {
        icrc.update(&self.arena[self.used..self.used + len]);
        self.used += len;
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
                icrc.update(std::slice::from_raw_parts(at, piece));
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
