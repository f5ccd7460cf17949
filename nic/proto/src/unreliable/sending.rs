//! What an unreliable queue pair sends: requests in the order of posting, one packet after the
//! other.
//!
//! A request completes once its last packet was handed out *and* the caller came back for the next
//! one: until then the packet's payload is borrowed from it.

use alloc::collections::VecDeque;

use urxe_wire::{Deth, Psn, Qpn, Transport};

use crate::connection::Connection;
use crate::memory::{LocalAccess, Memory};
use crate::qp::{Failure, Outbox};
use crate::rc::requester::{Planned, carry_out};
use crate::send_queue::{SendQueue, Wqe};
use crate::verbs::{AddressVector, Payload, SendOp, SendRequest, SendTarget, Transmit, WcStatus};

/// A Q_Key with this bit stands for the sender's own (IBTA 10.2.5).
const QKEY_IS_OWN: u32 = 1 << 31;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
struct Recipient {
    address: AddressVector,
    qp: Qpn,
    qkey: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct UnreliableSender {
    queue: SendQueue,
    /// Of a datagram queue pair, one for each request of the queue.
    recipients: VecDeque<Recipient>,
    next: Psn,
    /// Packets of the oldest request that were handed out.
    handed: u32,
}

impl UnreliableSender {
    pub(crate) fn new(first: Psn) -> Self {
        Self {
            queue: SendQueue::default(),
            recipients: VecDeque::new(),
            next: first,
            handed: 0,
        }
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    pub(crate) const fn next_psn(&self) -> Psn {
        self.next
    }

    pub(crate) fn has_started(&self) -> bool {
        self.queue.front().is_some_and(|wqe| wqe.is_started())
    }

    pub(crate) fn post(&mut self, request: &SendRequest<'_>, length: u32) {
        self.queue
            .push(Wqe::new(request, length), SendTarget::Connection);
        if let SendTarget::Datagram { address, qp, qkey } = request.target {
            self.recipients.push_back(Recipient { address, qp, qkey });
        }
    }

    /// The next packet; new requests start only while `may_start`.
    pub(crate) fn plan<M: Memory>(
        &mut self,
        connection: &Connection,
        may_start: bool,
        memory: &mut M,
        out: &mut Outbox,
    ) -> Option<Planned> {
        loop {
            let wqe = self.queue.front()?;
            if !wqe.is_started() {
                if !may_start {
                    return None;
                }
                if let Err(status) = self.start(connection, memory) {
                    self.fail(connection.qp, status, out);
                    return None;
                }
            } else if self.handed < wqe.packets {
                return self.plan_packet(connection);
            } else {
                self.complete(connection.qp, WcStatus::Success, out);
            }
        }
    }

    fn start<M: Memory>(
        &mut self,
        connection: &Connection,
        memory: &mut M,
    ) -> Result<(), WcStatus> {
        let next = self.next;
        let Some(wqe) = self.queue.front_mut() else {
            return Ok(());
        };
        carry_out(&wqe.op, connection.via(), memory).map_err(|_| WcStatus::MwBind)?;
        wqe.sges()
            .iter()
            .try_for_each(|sge| memory.check_local(connection.pd, sge, LocalAccess::Read))
            .map_err(|_| WcStatus::LocalProtection)?;
        wqe.start(next, connection.mtu_bytes);
        self.next = wqe.end();
        Ok(())
    }

    fn plan_packet(&mut self, connection: &Connection) -> Option<Planned> {
        let wqe = self.queue.front()?;
        let is_last = self.handed + 1 == wqe.packets;
        let operation = wqe.packet_operation(self.handed);
        let mut header = connection.header(operation, wqe.first.add(self.handed));
        header.reth = wqe.reth(self.handed, connection.mtu_bytes);
        if is_last {
            if let SendOp::SendImm(immediate) | SendOp::WriteImm { immediate, .. } = wqe.op {
                header.immediate = Some(immediate);
            }
            header.bth.solicited = wqe.solicited;
        }
        if connection.transport == Transport::Ud {
            let recipient = self.recipients.front()?;
            header.bth.dest_qp = recipient.qp;
            header.deth = Some(Deth {
                qkey: if recipient.qkey & QKEY_IS_OWN == 0 {
                    recipient.qkey
                } else {
                    connection.qkey
                },
                src_qp: connection.qp,
            });
        }
        let planned = Planned {
            position: self.queue.front_position(),
            header,
            offset: wqe.bytes_before(self.handed, connection.mtu_bytes),
            len: wqe.packet_len(self.handed, connection.mtu_bytes),
            more: 0,
            ends: is_last,
            is_again: false,
        };
        self.handed += 1;
        Some(planned)
    }

    /// The packet that was planned, with its payload.
    pub(crate) fn packet(&self, planned: &Planned) -> Transmit<'_> {
        let wqe = self.queue.get(planned.position);
        Transmit {
            address: self.recipients.front().map(|recipient| &recipient.address),
            header: planned.header,
            payload: wqe.map_or(Payload::Empty, |wqe| {
                wqe.payload(planned.offset, planned.len)
            }),
        }
    }

    /// Ends the oldest request.
    fn complete(&mut self, qp: Qpn, status: WcStatus, out: &mut Outbox) {
        self.handed = 0;
        self.recipients.pop_front();
        if let Some(wqe) = self.queue.pop_front()
            && (wqe.signaled || status != WcStatus::Success)
        {
            out.completions.push_back(wqe.completion(qp, status));
        }
    }

    /// Fails the oldest request, and stops the send queue.
    pub(crate) fn fail(&mut self, qp: Qpn, status: WcStatus, out: &mut Outbox) {
        self.complete(qp, status, out);
        out.failure = out.failure.max(Failure::SendQueue);
    }

    /// Completes all requests as flushed, but one whose packets have all been handed out.
    pub(crate) fn flush(&mut self, qp: Qpn, out: &mut Outbox) {
        while let Some(wqe) = self.queue.front() {
            let is_sent = wqe.is_started() && self.handed == wqe.packets;
            let status = if is_sent {
                WcStatus::Success
            } else {
                WcStatus::WrFlush
            };
            self.complete(qp, status, out);
        }
    }

    /// Panics with a description if the state contradicts itself.
    pub(crate) fn check_invariants(&self, transport: Transport) {
        let sent = self.queue.front().map_or(0, |wqe| wqe.packets);
        assert!(self.handed <= sent, "more packets than the message has");
        let started = self.queue.iter().filter(|wqe| wqe.is_started()).count();
        assert!(started <= 1, "a request started before its turn");
        if transport == Transport::Ud {
            assert_eq!(self.recipients.len(), self.queue.len());
        }
    }
}
