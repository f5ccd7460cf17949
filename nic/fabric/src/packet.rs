//! Packets under way, in one pool, so that a packet is a number everywhere else; and queues of them.

use alloc::vec::Vec;

use urxe_wire::Header;

/// No packet.
pub(crate) const NONE: u32 = u32::MAX;

/// What is in a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// RoCE or InfiniBand. The payload has a length and no content.
    Rdma(Header),
    /// A segment of a byte stream.
    Segment {
        /// Which stream, and in which direction.
        stream: u32,
        /// One past its last byte in the stream.
        end: u64,
    },
    /// An acknowledgement of a byte stream up to `end`.
    Acknowledgement {
        /// As for a segment.
        stream: u32,
        /// One past the last byte received.
        end: u64,
    },
}

/// A packet, as switches see it. What hosts see is its [`Body`], which the pool keeps apart, so that
/// little memory is touched at each hop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) payload_bytes: u32,
    /// What it takes of a link: with headers, preamble and gap.
    pub(crate) wire_bytes: u32,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    /// The port at which the switch that has it received it.
    pub(crate) ingress: u32,
    /// When its last bit has left the switch's pipeline.
    pub(crate) tail_at: u64,
    pub(crate) udp_source: u16,
    pub(crate) priority: u8,
    /// Whether switches may mark it.
    pub(crate) is_markable: bool,
    pub(crate) is_marked: bool,
    /// The next in its queue.
    next: u32,
}

impl Packet {
    pub(crate) const fn new(payload_bytes: u32, wire_bytes: u32) -> Self {
        Self {
            payload_bytes,
            wire_bytes,
            source: 0,
            destination: 0,
            ingress: 0,
            tail_at: 0,
            udp_source: 0,
            priority: 0,
            is_markable: false,
            is_marked: false,
            next: NONE,
        }
    }
}

/// All packets under way.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    bodies: Vec<Body>,
    free: Vec<u32>,
}

impl Pool {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "2^32 packets do not fit any memory"
    )]
    pub(crate) fn insert(&mut self, packet: Packet, body: Body) -> u32 {
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

    pub(crate) fn body(&self, id: u32) -> &Body {
        &self.bodies[id as usize]
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
    pub(crate) bytes: u64,
}

impl Fifo {
    pub(crate) const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
        bytes: 0,
    };

    pub(crate) const fn front(&self) -> Option<u32> {
        if self.head == NONE {
            None
        } else {
            Some(self.head)
        }
    }

    pub(crate) fn push(&mut self, pool: &mut Pool, id: u32) {
        let packet = pool.get_mut(id);
        packet.next = NONE;
        self.bytes += u64::from(packet.wire_bytes);
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
        self.bytes -= u64::from(packet.wire_bytes);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: Body = Body::Segment { stream: 0, end: 0 };

    #[test]
    fn queues_share_a_pool_and_keep_their_order() {
        let mut pool = Pool::default();
        let mut queues = [Fifo::EMPTY; 2];
        for bytes in 1..=6 {
            let id = pool.insert(Packet::new(0, bytes), BODY);
            queues[bytes as usize % 2].push(&mut pool, id);
        }
        assert_eq!((queues[0].bytes, queues[1].bytes), (12, 9));
        for expected in [1, 3, 5] {
            let id = queues[1].pop(&pool).unwrap();
            assert_eq!(pool.remove(id).wire_bytes, expected);
        }
        assert_eq!(queues[1].pop(&pool), None);
        assert_eq!(queues[1].bytes, 0);
        let reused = pool.insert(Packet::new(0, 7), BODY);
        queues[1].push(&mut pool, reused);
        assert_eq!(pool.peak(), 6);
    }
}
