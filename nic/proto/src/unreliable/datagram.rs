//! What a datagram queue pair receives (IBTA 9.8.3): whole messages, each from any peer.
//!
//! A datagram that no receive waits for, that shows the wrong Q_Key or that does not fit is dropped
//! in silence. A stranger must not be able to stop the queue pair, nor to use up its receives.

use urxe_wire::Packet;

use crate::connection::Connection;
use crate::memory::{Memory, scatter};
use crate::qp::{Failure, Outbox, QpStats};
use crate::receive_queue::ReceiveQueue;
use crate::verbs::{Completion, DatagramHeader, WcStatus};

/// Bytes of the global route header that precede each received datagram.
pub const GRH_BYTES: usize = 40;

/// A datagram and what came with it.
pub(crate) struct Arrival<'a> {
    pub(crate) packet: &'a Packet<'a>,
    pub(crate) grh: &'a [u8; GRH_BYTES],
}

/// Takes in a datagram for a queue pair with the Q_Key in `connection`.
pub(crate) fn receive<M: Memory>(
    connection: &Connection,
    arrival: &Arrival<'_>,
    receives: &mut ReceiveQueue,
    memory: &mut M,
    out: &mut Outbox,
    stats: &mut QpStats,
) {
    let Arrival { packet, grh } = arrival;
    let Some(deth) = packet.header.deth else {
        stats.dropped += 1;
        return;
    };
    if deth.qkey != connection.qkey {
        stats.bad_qkey += 1;
        return;
    }
    let Some(front) = receives.front() else {
        stats.out_of_buffer += 1;
        return;
    };
    let len = GRH_BYTES + packet.payload.len();
    if len as u64 > front.capacity {
        stats.too_long += 1;
        return;
    }
    let Some(wqe) = receives.pop_front() else {
        return;
    };
    let header_len = u32::try_from(GRH_BYTES).unwrap_or(u32::MAX);
    let placed = scatter(memory, wqe.pd, &wqe.sges, 0, *grh)
        .and_then(|()| scatter(memory, wqe.pd, &wqe.sges, header_len, packet.payload));
    if placed.is_err() {
        out.completions
            .push_back(wqe.completion(connection.qp, WcStatus::LocalProtection));
        out.failure = Failure::QueuePair;
        return;
    }
    out.completions.push_back(Completion {
        byte_len: u32::try_from(len).unwrap_or(u32::MAX),
        immediate: packet.header.immediate,
        solicited: packet.header.bth.solicited,
        source_qp: Some(deth.src_qp),
        header: DatagramHeader::of(grh),
        ..wqe.completion(connection.qp, WcStatus::Success)
    });
}
