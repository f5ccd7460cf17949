//! Byte streams of a kernel: no protocol code of the NIC, and none of a kernel's congestion
//! control, so only for ways on which nothing is lost (see [`crate::build`]).
//!
//! A program's processor copies what it writes, piece by piece, and what it reads, segment by
//! segment. A receiver that has nothing to do sleeps, and wakes late.

use crate::body::Body;
use crate::event::Event;
use crate::framing::segment_bytes;
use crate::network::Network;
use crate::packet::{FlowId, Packet};
use crate::port::BEST_EFFORT;
use crate::units::{PS_PER_NS, Pace};

/// The kernel takes so much at a time before it sends on.
const PIECE_BYTES: u64 = 65_536;
/// Segments that share an acknowledgement (RFC 1122, 4.2.3.2).
const SEGMENTS_PER_ACK: u32 = 2;

impl Network {
    /// Whether programs talk over byte streams.
    pub(crate) const fn is_sockets(&self) -> bool {
        !self.streams.is_empty()
    }

    fn copy_ps(&self, bytes: u64) -> u64 {
        let rate = self.host_config().stack.copy_gbps;
        rate.map_or(0, |rate| Pace::of_gbps(rate).of_bytes(bytes))
    }

    fn stream_window(&self) -> u64 {
        self.host_config().stack.window_bytes.unwrap_or(u64::MAX)
    }

    /// A program begins to write a message.
    pub(crate) fn begin_to_write(&mut self, id: u32) {
        let stream = &mut self.streams[id as usize];
        stream.left = stream.message_bytes;
        stream.piece = 0;
        self.go_on_writing(id);
    }

    /// A piece is copied: it may go. The next one follows, if there is room.
    pub(crate) fn go_on_writing(&mut self, id: u32) {
        let window = self.stream_window();
        let stream = &mut self.streams[id as usize];
        stream.written += stream.piece;
        stream.left -= stream.piece;
        let had_piece = stream.piece > 0;
        stream.piece = 0;
        let writer = stream.writer;
        let is_done = stream.left == 0;
        let room = (2 * window).saturating_sub(stream.written - stream.acked);
        stream.is_blocked = !is_done && room == 0;
        let piece = stream.left.min(PIECE_BYTES).min(room);
        if !is_done && piece > 0 {
            stream.piece = piece;
            let copy_ps = self.copy_ps(piece);
            let process = &mut self.processes[writer as usize];
            process.cpu_free_at = process.cpu_free_at.max(self.now) + copy_ps;
            let at = process.cpu_free_at;
            self.schedule(at, Event::Write { stream: id });
        }
        self.make_stream_ready(id, 0);
        if is_done && had_piece {
            self.handle_sent(writer, id, self.now);
        }
    }

    fn make_stream_ready(&mut self, id: u32, direction: u32) {
        let stream = &mut self.streams[id as usize];
        if stream.is_ready[direction as usize] {
            return;
        }
        stream.is_ready[direction as usize] = true;
        let host = if direction == 0 {
            stream.from
        } else {
            stream.to
        };
        self.hosts[host as usize].ports[0]
            .ready
            .push_back(2 * id + direction);
        self.wake_engine(host);
    }

    /// The next packet of a stream that is at its turn: a segment, or the other way an
    /// acknowledgement.
    pub(crate) fn next_segment(&mut self, turn: u32) -> Option<(Packet, Body)> {
        let (id, direction) = (turn / 2, turn % 2);
        let window = self.stream_window();
        let mss = u64::from(self.host_config().mtu_bytes);
        let stream = &mut self.streams[id as usize];
        let (body, bytes, source, destination) = if direction == 0 {
            let room = window.saturating_sub(stream.sent - stream.acked);
            let bytes = (stream.written - stream.sent).min(mss).min(room);
            if bytes == 0 {
                stream.is_ready[0] = false;
                return None;
            }
            stream.sent += bytes;
            let body = Body::Segment {
                stream: id,
                end: stream.sent,
            };
            (body, bytes as u32, stream.from, stream.to)
        } else {
            if !stream.owes_ack {
                stream.is_ready[1] = false;
                return None;
            }
            stream.owes_ack = false;
            let body = Body::Acknowledgement {
                stream: id,
                end: stream.arrived,
            };
            (body, 0, stream.to, stream.from)
        };
        let flow = FlowId::new(source, destination, id as u16);
        let mut packet = Packet::new(bytes, segment_bytes(bytes), flow);
        packet.priority = BEST_EFFORT;
        Some((packet, body))
    }

    /// A segment is in the receiver's memory.
    pub(crate) fn handle_segment(&mut self, id: u32, end: u64) {
        let stack = self.host_config().stack;
        let stream = &mut self.streams[id as usize];
        let bytes = end - stream.arrived;
        stream.arrived = end;
        stream.unacked_segments += 1;
        let is_last = end == stream.written;
        if stream.unacked_segments >= SEGMENTS_PER_ACK || is_last {
            stream.unacked_segments = 0;
            stream.owes_ack = true;
        }
        let owes_ack = stream.owes_ack;
        let (reader, to) = (stream.reader, stream.to);
        let whole = stream.arrived / stream.message_bytes - stream.messages_read;
        stream.messages_read += whole;
        self.hosts[to as usize].received_bytes += bytes;
        if owes_ack {
            self.make_stream_ready(id, 1);
        }
        let copy_ps = self.copy_ps(bytes);
        let process = &mut self.processes[reader as usize];
        process.received_bytes += bytes;
        if process.cpu_free_at <= self.now {
            process.cpu_free_at = self.now + stack.latency_ns * PS_PER_NS;
        }
        process.cpu_free_at += copy_ps;
        for _ in 0..whole {
            let at = self.processes[reader as usize].cpu_free_at;
            self.handle_message(reader, id, at);
        }
    }

    /// An acknowledgement is in the sender's memory.
    pub(crate) fn handle_stream_ack(&mut self, id: u32, end: u64) {
        let stream = &mut self.streams[id as usize];
        stream.acked = stream.acked.max(end);
        let is_blocked = core::mem::take(&mut stream.is_blocked);
        self.make_stream_ready(id, 0);
        if is_blocked {
            self.go_on_writing(id);
        }
    }
}
