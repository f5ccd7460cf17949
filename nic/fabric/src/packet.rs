//! Packets under way, in one pool, so that a packet is a number everywhere else; and queues of
//! them.

use alloc::vec::Vec;
use core::hint::black_box;

use crate::body::{Body, Stored};

/// No packet.
pub(crate) const NONE: u32 = u32::MAX;

/// A packet, as switches see it: half a cache line, which is most of what a hop costs. What hosts
/// see is its [`Body`], which the pool keeps apart in a line of its own.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(crate) struct Packet {
    /// When its last bit has left the switch's pipeline.
    pub(crate) tail_at: u64,
    pub(crate) flow: FlowId,
    /// What it takes of a link: with headers, preamble and gap.
    pub(crate) wire_bytes: u32,
    /// The port at which the switch that has it received it.
    pub(crate) ingress: u32,
    /// The next in its queue; on a cable, see [`HAS_WAY`], the port by which it will go on.
    next: u32,
    pub(crate) payload_bytes: u16,
    pub(crate) priority: u8,
    /// See [`MARKABLE`] and the others.
    flags: u8,
}

/// Switches may mark it.
pub(crate) const MARKABLE: u8 = 1;
/// A switch did.
pub(crate) const MARKED: u8 = 2;
/// It says that one before it is missing.
pub(crate) const NAK: u8 = 4;
/// It is the last of a batch of software.
pub(crate) const LAST: u8 = 8;
/// An entry of a completion queue follows its payload.
pub(crate) const COMPLETES: u8 = 16;
/// It is on a cable, and knows how it will leave the switch there.
const HAS_WAY: u8 = 32;

impl Packet {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no MTU is above 9000 bytes"
    )]
    pub(crate) const fn new(payload_bytes: u32, wire_bytes: u32, flow: FlowId) -> Self {
        Self {
            tail_at: 0,
            flow,
            wire_bytes,
            ingress: 0,
            next: NONE,
            payload_bytes: payload_bytes as u16,
            priority: 0,
            flags: 0,
        }
    }

    pub(crate) const fn set(&mut self, flag: u8) {
        self.flags |= flag;
    }

    pub(crate) const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// It will leave the switch at the end of its cable by this port.
    pub(crate) const fn set_way(&mut self, port: u32) {
        self.next = port;
        self.flags |= HAS_WAY;
    }

    /// Forgets and tells the port by which it was to leave the switch that it came to.
    pub(crate) const fn take_way(&mut self) -> Option<u32> {
        let way = if self.is(HAS_WAY) {
            Some(self.next)
        } else {
            None
        };
        self.flags &= !HAS_WAY;
        way
    }
}

/// What switches tell flows apart by: two hosts, and the UDP source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowId(u64);

impl FlowId {
    /// Of hosts below 2^24.
    pub(crate) const fn new(source: u32, destination: u32, udp_source: u16) -> Self {
        Self((source as u64) << 40 | (destination as u64) << 16 | udp_source as u64)
    }

    pub(crate) const fn source(self) -> u32 {
        (self.0 >> 40) as u32
    }

    pub(crate) const fn destination(self) -> u32 {
        (self.0 >> 16) as u32 & 0xff_ffff
    }

    pub(crate) const fn udp_source(self) -> u16 {
        self.0 as u16
    }

    /// As a number, by which ways are chosen.
    pub(crate) const fn number(self, with_port: bool) -> u64 {
        if with_port { self.0 } else { self.0 & !0xffff }
    }
}

/// All packets under way.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    bodies: Vec<Stored>,
    free: Vec<u32>,
}

impl Pool {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "2^32 packets do not fit any memory"
    )]
    pub(crate) fn insert(&mut self, mut packet: Packet, body: &Body) -> u32 {
        if body.completes() {
            packet.set(COMPLETES);
        }
        let body = Stored::new(body);
        if let Some(id) = self.free.pop() {
            self.packets[id as usize] = packet;
            self.bodies[id as usize] = body;
            return id;
        }
        self.packets.push(packet);
        self.bodies.push(body);
        (self.packets.len() - 1) as u32
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> &Packet {
        &self.packets[id as usize]
    }

    pub(crate) fn body(&self, id: u32) -> Body {
        self.bodies[id as usize].body()
    }

    /// The queue pair that a packet is for.
    #[inline]
    pub(crate) fn queue_pair(&self, id: u32) -> Option<urxe_wire::Qpn> {
        self.bodies[id as usize].queue_pair()
    }

    /// Loads what switches see of a packet, if there is one.
    #[inline]
    pub(crate) fn load(&self, id: u32) -> u64 {
        self.packets.get(id as usize).map_or(0, |it| it.tail_at)
    }

    /// Loads all of what hosts see of a packet, which may be in two cache lines.
    #[inline]
    pub(crate) fn load_body(&self, id: u32) {
        black_box(self.bodies.get(id as usize).copied());
    }

    /// The port at which a packet came to its switch, if there is one.
    #[inline]
    pub(crate) fn ingress(&self, id: u32) -> u32 {
        self.packets.get(id as usize).map_or(NONE, |it| it.ingress)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: u32) -> Packet {
        self.free.push(id);
        self.packets[id as usize]
    }

    /// The most that ever were under way at the same time.
    pub(crate) fn peak(&self) -> usize {
        self.packets.len()
    }
}

/// A queue of packets of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fifo {
    head: u32,
    tail: u32,
    /// Of all packets in it, on the wire.
    bytes: u32,
}

impl Fifo {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        bytes: 0,
    };

    /// Of all packets in it, on the wire.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(crate) const fn front(&self) -> Option<u32> {
        if self.head == NONE {
            None
        } else {
            Some(self.head)
        }
    }

    /// The first and the last packet in it, and anything if it is empty: what to load ahead.
    pub(crate) const fn ends(&self) -> (u32, u32) {
        (self.head, self.tail)
    }

    pub(crate) fn push(&mut self, pool: &mut Pool, id: u32) {
        let packet = pool.get_mut(id);
        packet.next = NONE;
        self.bytes += packet.wire_bytes;
        if self.head == NONE {
            self.head = id;
        } else {
            pool.get_mut(self.tail).next = id;
        }
        self.tail = id;
    }

    /// All packets in it, the first first.
    pub(crate) fn iter<'a>(&self, pool: &'a Pool) -> impl Iterator<Item = &'a Packet> + use<'a> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            if at == NONE {
                return None;
            }
            let packet = pool.get(at);
            at = packet.next;
            Some(packet)
        })
    }

    pub(crate) fn pop(&mut self, pool: &Pool) -> Option<u32> {
        let id = self.front()?;
        let packet = pool.get(id);
        self.head = packet.next;
        self.bytes -= packet.wire_bytes;
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: Body = Body::Segment { stream: 0, end: 0 };
    const FLOW: FlowId = FlowId::new(1, 2, 3);

    #[test]
    fn a_packet_is_half_a_cache_line_and_knows_whose_it_is() {
        assert_eq!(size_of::<Packet>(), 32);
        let flow = FlowId::new(0xab_cdef, 0x12_3456, 0xc001);
        assert_eq!(
            (flow.source(), flow.destination(), flow.udp_source()),
            (0xab_cdef, 0x12_3456, 0xc001)
        );
        let other = FlowId::new(0xab_cdef, 0x12_3456, 0xc002);
        assert_ne!(flow.number(true), other.number(true));
        assert_eq!(flow.number(false), other.number(false));
    }

    #[test]
    fn queues_share_a_pool_and_keep_their_order() {
        let mut pool = Pool::default();
        let mut queues = [Fifo::EMPTY; 2];
        for bytes in 1..=6 {
            let id = pool.insert(Packet::new(0, bytes, FLOW), &BODY);
            queues[bytes as usize % 2].push(&mut pool, id);
        }
        assert_eq!((queues[0].bytes, queues[1].bytes), (12, 9));
        for expected in [1, 3, 5] {
            let id = queues[1].pop(&pool).unwrap();
            assert_eq!(pool.remove(id).wire_bytes, expected);
        }
        assert_eq!(queues[1].pop(&pool), None);
        assert_eq!(queues[1].bytes, 0);
        let reused = pool.insert(Packet::new(0, 7, FLOW), &BODY);
        queues[1].push(&mut pool, reused);
        assert_eq!(pool.peak(), 6);
    }
}
