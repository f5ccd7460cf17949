//! What is in a packet, and how it is kept while the packet is under way.

use urxe_wire::Operation::{ReadResponseLast, ReadResponseOnly, SendLast, SendOnly};
use urxe_wire::{Aeth, Bth, Header, Reth};

/// What is in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// RoCE or InfiniBand. The payload has a length and no content.
    Rdma(Header),
    /// A NAK that says what of the packets behind the missing one was kept.
    Held {
        /// Its header.
        header: Header,
        /// Its payload, in network byte order.
        words: [u64; 3],
    },
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

impl Body {
    /// Whether the adapter tells the program of it, so that an entry of a completion queue follows
    /// the payload.
    pub(crate) fn completes(&self) -> bool {
        matches!(self, Self::Rdma(header) if matches!(
            header.bth.opcode.operation(),
            Some(SendLast | SendOnly | ReadResponseLast | ReadResponseOnly)
        ))
    }
}

/// A [`Body`] without the extension headers that nothing here sends, and which are most of a
/// [`Header`]: a cache line, and 176 bytes otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    Rdma { bth: Bth, more: More },
    Segment { stream: u32, end: u64 },
    Acknowledgement { stream: u32, end: u64 },
}

/// What follows the base header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum More {
    Nothing,
    Request(Reth),
    Answer(Aeth),
    Held(Aeth, [[u32; 2]; 3]),
}

impl Stored {
    pub(crate) fn new(body: &Body) -> Self {
        let stored = match *body {
            Body::Rdma(Header {
                bth, reth, aeth, ..
            }) => {
                let more = match (reth, aeth) {
                    (Some(reth), _) => More::Request(reth),
                    (None, Some(aeth)) => More::Answer(aeth),
                    (None, None) => More::Nothing,
                };
                Self::Rdma { bth, more }
            }
            Body::Held { header, words } => {
                let halves = words.map(|word| [(word >> 32) as u32, word as u32]);
                let more = header
                    .aeth
                    .map_or(More::Nothing, |aeth| More::Held(aeth, halves));
                Self::Rdma {
                    bth: header.bth,
                    more,
                }
            }
            Body::Segment { stream, end } => Self::Segment { stream, end },
            Body::Acknowledgement { stream, end } => Self::Acknowledgement { stream, end },
        };
        debug_assert_eq!(
            stored.body(),
            *body,
            "an extension header that is not stored"
        );
        stored
    }

    pub(crate) fn body(&self) -> Body {
        match *self {
            Self::Rdma { bth, more } => {
                let mut header = Header::new(bth);
                match more {
                    More::Nothing => {}
                    More::Request(reth) => header.reth = Some(reth),
                    More::Answer(aeth) => header.aeth = Some(aeth),
                    More::Held(aeth, halves) => {
                        header.aeth = Some(aeth);
                        let words =
                            halves.map(|[high, low]| u64::from(high) << 32 | u64::from(low));
                        return Body::Held { header, words };
                    }
                }
                Body::Rdma(header)
            }
            Self::Segment { stream, end } => Body::Segment { stream, end },
            Self::Acknowledgement { stream, end } => Body::Acknowledgement { stream, end },
        }
    }

    /// The queue pair that it is for.
    pub(crate) const fn queue_pair(&self) -> Option<urxe_wire::Qpn> {
        match self {
            Self::Rdma { bth, .. } => Some(bth.dest_qp),
            Self::Segment { .. } | Self::Acknowledgement { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::{Opcode, Operation, Psn, Qpn, Syndrome, Transport};

    use super::*;

    #[test]
    fn a_stored_body_is_a_cache_line_and_comes_out_as_it_went_in() {
        assert_eq!(size_of::<Stored>(), 64);
        let opcode = Opcode::new(Transport::Rc, Operation::WriteFirst);
        let plain = Header::new(Bth::new(opcode, Qpn::new(7), Psn::new(8)));
        let (mut request, mut answer) = (plain, plain);
        request.reth = Some(Reth {
            va: u64::MAX,
            rkey: 1,
            len: 2,
        });
        answer.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: 3,
        });
        let held = Body::Held {
            header: answer,
            words: [u64::MAX, 1 << 32, 5],
        };
        let (stream, end) = (4, u64::MAX - 1);
        let bodies = [
            Body::Rdma(plain),
            Body::Rdma(request),
            Body::Rdma(answer),
            held,
            Body::Segment { stream, end },
            Body::Acknowledgement { stream, end },
        ];
        for body in bodies {
            assert_eq!(Stored::new(&body).body(), body);
        }
    }
}
