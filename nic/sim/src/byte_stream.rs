//! One direction of a byte stream, as a TCP socket shows it: bytes stay in order, and how they were
//! written says nothing of how they can be read.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use urxe_proto::Instant;

use crate::random::Random;

/// How a stream behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamShape {
    /// Bytes that are on their way or wait to be read at most: more is not taken.
    pub capacity_bytes: usize,
    /// Longest piece that travels at a time, bytes.
    pub piece_bytes: usize,
    /// Least time on the way, nanoseconds.
    pub delay_min_ns: u64,
    /// Most time on the way, nanoseconds. A piece waits for those before it, too.
    pub delay_max_ns: u64,
}

/// One direction of a stream.
#[derive(Clone, Debug)]
pub struct ByteStream {
    shape: StreamShape,
    random: Random,
    /// Pieces on their way, and when they arrive.
    pieces: VecDeque<(Instant, Vec<u8>)>,
    arrived: VecDeque<u8>,
    bytes: usize,
    /// When the last piece arrives.
    last: Instant,
    is_closed: bool,
}

impl ByteStream {
    /// An empty stream whose cuts and delays come from `seed`.
    #[must_use]
    pub fn new(shape: StreamShape, seed: u64) -> Self {
        Self {
            shape,
            random: Random::new(seed),
            pieces: VecDeque::new(),
            arrived: VecDeque::new(),
            bytes: 0,
            last: Instant::default(),
            is_closed: false,
        }
    }

    /// Takes a part of `bytes`, or all of them; how many.
    pub fn write(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if self.is_closed {
            return 0;
        }
        let room = self.shape.capacity_bytes - self.bytes;
        let taken = room.min(bytes.len());
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let len = rest
                .len()
                .min(1 + self.random.index(self.shape.piece_bytes));
            let (piece, later) = rest.split_at(len);
            rest = later;
            let (min, max) = (self.shape.delay_min_ns, self.shape.delay_max_ns);
            let arrival = now.after(self.random.between(min, max));
            self.last = self.last.max(arrival);
            self.pieces.push_back((self.last, piece.to_vec()));
        }
        self.bytes += taken;
        taken
    }

    /// Ends the stream behind what was written.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// When the next piece arrives, if one is on its way.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        self.pieces.front().map(|(arrival, _)| *arrival)
    }

    /// Reads some of what has arrived by `now`, at most `max` bytes; nothing if there is none.
    pub fn read(&mut self, now: Instant, max: usize) -> Vec<u8> {
        while let Some((arrival, _)) = self.pieces.front()
            && *arrival <= now
            && let Some((_, piece)) = self.pieces.pop_front()
        {
            self.arrived.extend(piece);
        }
        let most = self.arrived.len().min(max);
        let len = if most == 0 {
            0
        } else {
            1 + self.random.index(most)
        };
        self.bytes -= len;
        self.arrived.drain(..len).collect()
    }

    /// Whether it was closed and all of it was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.is_closed && self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_after_their_delay_and_no_more_than_fit() {
        let shape = StreamShape {
            capacity_bytes: 1000,
            piece_bytes: 64,
            delay_min_ns: 10,
            delay_max_ns: 500,
        };
        let sent: Vec<u8> = (0..5000).map(|n: u32| n.to_le_bytes()[0]).collect();
        for seed in 0..20 {
            let mut stream = ByteStream::new(shape, seed);
            let (mut now, mut written, mut got) = (Instant::default(), 0, Vec::new());
            while got.len() < sent.len() {
                let taken = stream.write(now, &sent[written..]);
                written += taken;
                assert!(written - got.len() <= 1000);
                assert!(stream.read(now, 0).is_empty());
                if let Some(arrival) = stream.next_arrival() {
                    assert!(arrival.since(now) <= 500);
                    now = now.max(arrival);
                }
                got.extend(stream.read(now, 300));
            }
            assert!(got == sent, "seed {seed}");
            stream.close();
            assert!(stream.is_at_end() && stream.write(now, &[1]) == 0);
        }
    }
}
