//! Bare go-back-N, as the specification has it and hardware does it: what recovery is held against.
//! A window of fixed size, one NAK for a gap, everything again from there, and a timeout when
//! nothing is heard.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use urxe_sim::{LinkConfig, Random};

/// Payload of a packet, and what it takes on the wire, bytes.
const PAYLOAD_BYTES: u64 = 4_096;
const WIRE_BYTES: u64 = PAYLOAD_BYTES + 32 + 66;
/// Of the timeout 14, which most programs set.
const TIMEOUT_NS: u64 = 4_096 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Packet of this number reaches the receiver.
    Data(u64),
    /// Everything before this number is received; if the flag is set, this one is missing.
    Answer(u64, bool),
    /// The wire is free.
    Free,
    /// The timeout that was started at the time.
    Timeout(u64),
}

/// See the module.
pub struct GoBackN {
    link: LinkConfig,
    loss_ppm: u32,
    window_packets: u64,
    random: Random,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    now_ns: u64,
    free_at_ns: u64,
    unacked: u64,
    next: u64,
    heard_at_ns: u64,
    expected: u64,
    gap_reported: bool,
}

impl GoBackN {
    pub fn new(link: LinkConfig, loss_ppm: u32, window_bytes: u64) -> Self {
        Self {
            link,
            loss_ppm,
            window_packets: window_bytes / PAYLOAD_BYTES,
            random: Random::new(1),
            events: BinaryHeap::new(),
            now_ns: 0,
            free_at_ns: 0,
            unacked: 0,
            next: 0,
            heard_at_ns: 0,
            expected: 0,
            gap_reported: false,
        }
    }

    /// How long it takes for so many packets to be acknowledged.
    pub fn transfer_ns(&mut self, packets: u64) -> u64 {
        self.at(TIMEOUT_NS, Event::Timeout(0));
        while self.unacked < packets {
            while self.next < packets.min(self.unacked + self.window_packets)
                && self.free_at_ns <= self.now_ns
            {
                self.send();
            }
            let Reverse((now_ns, event)) = self.events.pop().expect("a timeout is always set");
            self.now_ns = now_ns;
            self.handle(event);
        }
        self.now_ns
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.events.push(Reverse((at_ns, event)));
    }

    fn is_lost(&mut self) -> bool {
        self.random.chance(self.loss_ppm)
    }

    fn send(&mut self) {
        self.free_at_ns = self.now_ns + WIRE_BYTES * 8_000 / self.link.rate_mbps;
        if !self.is_lost() {
            let arrives_ns = self.free_at_ns + self.link.delay_ns;
            self.at(arrives_ns, Event::Data(self.next));
        }
        self.at(self.free_at_ns, Event::Free);
        self.next += 1;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Free => {}
            Event::Data(number) if number > self.expected && self.gap_reported => {}
            Event::Data(number) => {
                self.gap_reported = number > self.expected;
                self.expected += u64::from(number == self.expected);
                if !self.is_lost() {
                    let arrives_ns = self.now_ns + self.link.delay_ns;
                    self.at(arrives_ns, Event::Answer(self.expected, self.gap_reported));
                }
            }
            Event::Answer(end, is_missing) => {
                if end > self.unacked {
                    self.heard(end);
                }
                if is_missing && end == self.unacked {
                    self.next = end;
                }
                self.next = self.next.max(self.unacked);
            }
            Event::Timeout(started_ns) => {
                if started_ns == self.heard_at_ns {
                    self.next = self.unacked;
                    self.heard(self.unacked);
                }
            }
        }
    }

    /// Something new was heard, or the wait starts anew.
    fn heard(&mut self, end: u64) {
        self.unacked = end;
        // One timeout for each time that something was heard.
        if self.heard_at_ns != self.now_ns {
            self.heard_at_ns = self.now_ns;
            self.at(self.now_ns + TIMEOUT_NS, Event::Timeout(self.now_ns));
        }
    }
}
