//! The two halves of an end: what sends a batch at a time, and what receives one.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use urxe_udp::{Destination, Framing, Piece, SendError, Socket, Transmit};
use urxe_wire::icrc::Flow4;

use crate::common::segments::{Between, Cut, HEADER_BYTES, ICRC_BYTES, flow, icrc};
use crate::{Load, Placement, Step};

const DATAGRAM_BYTES: usize = 1 << 16;
/// Pieces of memory that one call of the kernel takes.
const PIECES_MAX: usize = 1024;

/// Sends a message over and over, with a window of bytes that have not arrived.
pub(crate) struct Sender<'a> {
    socket: &'a Socket,
    to: Destination,
    flow: Flow4,
    step: &'a Step,
    load: Load,
    message: &'a [u8],
    arrived_bytes: &'a AtomicU64,
    base_bytes: u64,
    sent_bytes: u64,
    psn: u32,
    between: Vec<Between>,
    staging: Vec<u8>,
}

impl<'a> Sender<'a> {
    /// From one socket to another, whose receiver counts what arrived.
    pub(crate) fn new(
        [from, to]: [&'a Socket; 2],
        (step, load): (&'a Step, Load),
        message: &'a [u8],
        arrived_bytes: &'a AtomicU64,
    ) -> Self {
        Self {
            socket: from,
            to: Destination::new(to.local_address()),
            flow: flow(from, to),
            step,
            load,
            message,
            arrived_bytes,
            base_bytes: arrived_bytes.load(Ordering::Acquire),
            sent_bytes: 0,
            psn: 0,
            between: vec![Between::default(); load.cut.segments + 1],
            staging: vec![0_u8; DATAGRAM_BYTES],
        }
    }

    /// Whether all that was sent has arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.arrived() >= self.sent_bytes
    }

    fn arrived(&self) -> u64 {
        self.arrived_bytes.load(Ordering::Acquire) - self.base_bytes
    }

    /// Sends a batch, if the window has room for it and the kernel takes it.
    pub(crate) fn send(&mut self) {
        let Cut {
            payload_bytes,
            segment_bytes,
            segments,
        } = self.load.cut;
        let offset = self.sent_bytes as usize % self.message.len();
        let count = ((self.message.len() - offset) / payload_bytes).min(segments);
        let batch_bytes = (count * payload_bytes) as u64;
        if self.sent_bytes + batch_bytes > self.arrived() + self.load.window_bytes {
            return;
        }
        let payloads = &self.message[offset..offset + count * payload_bytes];
        let is_summed = self.step.sums[0].then_some(&self.flow);
        let cut = self.load.cut;
        cut.fill(&mut self.between, payloads, self.psn, is_summed);
        let pieces = if self.step.is_staged {
            for (at, payload) in payloads.chunks_exact(payload_bytes).enumerate() {
                let to = &mut self.staging[at * segment_bytes..][..segment_bytes];
                to[..HEADER_BYTES].copy_from_slice(&self.between[at][ICRC_BYTES..]);
                to[HEADER_BYTES..][..payload_bytes].copy_from_slice(payload);
                let sum = &self.between[at + 1][..ICRC_BYTES];
                to[HEADER_BYTES + payload_bytes..].copy_from_slice(sum);
            }
            vec![Piece::new(&self.staging[..count * segment_bytes])]
        } else {
            cut.pieces(&self.between, payloads)
        };
        match self.socket.send(&Transmit {
            destination: &self.to,
            segment_size: Some(segment_bytes as u16),
            tos: 0,
            framing: Framing::Never,
            whole: None,
            iov: &pieces,
        }) {
            Ok(_) => {
                self.sent_bytes += batch_bytes;
                self.psn += count as u32;
            }
            Err(SendError::WouldBlock) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Receives what a [`Sender`] sent, and counts it.
pub(crate) struct Receiver<'a> {
    socket: &'a Socket,
    flow: Flow4,
    step: &'a Step,
    load: Load,
    target: &'a mut [u8],
    arrived_bytes: &'a AtomicU64,
    received_bytes: usize,
    held_bytes: usize,
    buffer: Vec<u8>,
    between: Vec<Between>,
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(
        [from, to]: [&'a Socket; 2],
        (step, load): (&'a Step, Load),
        target: &'a mut [u8],
        arrived_bytes: &'a AtomicU64,
    ) -> Self {
        if step.is_held {
            look_behind_what_is_held(to);
        }
        Self {
            socket: to,
            flow: flow(from, to),
            step,
            load,
            target,
            arrived_bytes,
            received_bytes: 0,
            held_bytes: 0,
            buffer: vec![0_u8; DATAGRAM_BYTES],
            between: vec![Between::default(); load.cut.segments + 2],
        }
    }

    /// Receives a batch, if there is one.
    pub(crate) fn receive(&mut self) {
        let Cut {
            payload_bytes,
            segment_bytes,
            ..
        } = self.load.cut;
        let (step, offset) = (self.step, self.received_bytes % self.target.len());
        let len = if step.placement == Placement::Scattered {
            receive_in_place(
                self.socket,
                &mut self.target[offset..],
                &mut self.between,
                &mut self.buffer,
                payload_bytes,
            )
        } else {
            let flags = if step.is_held { libc::MSG_PEEK } else { 0 };
            receive_call(self.socket, &mut [entry(&mut self.buffer)], flags)
        };
        if step.is_held {
            self.held_bytes += len;
            while self.held_bytes > self.load.held_bytes {
                self.release();
            }
        }
        let count = len / segment_bytes;
        assert_eq!(len, count * segment_bytes, "whole segments");
        for at in 0..count {
            self.take_segment(offset, at);
        }
        self.received_bytes += count * payload_bytes;
        let bytes = (count * payload_bytes) as u64;
        self.arrived_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Checks a segment of a batch whose first payload belongs at `offset`, and places it.
    fn take_segment(&mut self, offset: usize, at: usize) {
        let Cut {
            payload_bytes,
            segment_bytes,
            ..
        } = self.load.cut;
        let step = self.step;
        let place = offset + at * payload_bytes..offset + (at + 1) * payload_bytes;
        let is_in_place = step.placement == Placement::Scattered && place.end <= self.target.len();
        let (header, payload, sum) = if is_in_place {
            let (before, after) = (&self.between[at], &self.between[at + 1]);
            (
                &before[ICRC_BYTES..],
                &self.target[place.clone()],
                &after[..ICRC_BYTES],
            )
        } else {
            assert!(
                step.placement != Placement::Scattered,
                "a batch ends with its message"
            );
            let segment = &self.buffer[at * segment_bytes..][..segment_bytes];
            let (header, rest) = segment.split_at(HEADER_BYTES);
            let (payload, sum) = rest.split_at(payload_bytes);
            (header, payload, sum)
        };
        if step.sums[1] {
            assert_eq!(icrc(&self.flow, header, payload), sum, "{}", step.name);
        }
        if step.placement == Placement::Copied {
            let payload = &self.buffer[at * segment_bytes + HEADER_BYTES..][..payload_bytes];
            self.target[place].copy_from_slice(payload);
        }
    }

    /// Gives back the memory that is held.
    pub(crate) fn finish(mut self) {
        while self.held_bytes > 0 {
            self.release();
        }
    }

    fn release(&mut self) {
        self.held_bytes -= receive_call(self.socket, &mut [], libc::MSG_TRUNC);
    }
}

/// Makes a receive that only looks see what came after the last one that it saw.
fn look_behind_what_is_held(socket: &Socket) {
    let offset_bytes: libc::c_int = 0;
    // SAFETY: the kernel reads an int.
    let status = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw const offset_bytes).cast(),
            size_of_val(&offset_bytes) as libc::socklen_t,
        )
    };
    assert_eq!(status, 0, "SO_PEEK_OFF");
}

fn entry(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// Receives datagrams whose payload goes on at `target`; what is left of them goes to `rest`.
fn receive_in_place(
    socket: &Socket,
    target: &mut [u8],
    between: &mut [Between],
    rest: &mut [u8],
    payload_bytes: usize,
) -> usize {
    let mut entries = Vec::with_capacity(2 * between.len() + 2);
    let (first, others) = between.split_at_mut(1);
    entries.push(entry(&mut first[0][ICRC_BYTES..]));
    for (payload, after) in target.chunks_exact_mut(payload_bytes).zip(others) {
        entries.push(entry(payload));
        entries.push(entry(after));
    }
    entries.push(entry(rest));
    assert!(entries.len() <= PIECES_MAX);
    receive_call(socket, &mut entries, 0)
}

/// How many bytes came; 0 if none did.
fn receive_call(socket: &Socket, entries: &mut [libc::iovec], flags: libc::c_int) -> usize {
    // SAFETY: all zeros is a header without anything.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = entries.as_mut_ptr();
    header.msg_iovlen = entries.len();
    // SAFETY: the entries are of memory that lives until the call returns.
    let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    usize::try_from(len).unwrap_or(0)
}
