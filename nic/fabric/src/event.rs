//! What happens at some point in time.

use alloc::vec::Vec;

/// Something that happens at some point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet came in at a port.
    Arrive { port: u32, packet: u32 },
    /// The wire of a port is free.
    Free { port: u32 },
    /// A packet has passed the adapter's pipeline, and enters the queue of a port.
    Enter { port: u32, packet: u32 },
    /// The adapter of a host may start another packet.
    Engine { host: u32 },
    /// A packet is in the memory of its host.
    Receive { host: u32, packet: u32 },
    /// A packet has reached the socket of an adapter in software.
    Deliver { host: u32, packet: u32 },
    /// Software looks whether a batch still goes on.
    Look { host: u32 },
    /// A timer of a connection.
    Timer { connection: u32 },
    /// A program rings the doorbell for a message.
    Post { channel: u32 },
    /// A program copies on what it writes to a byte stream.
    Write { stream: u32 },
    /// A program starts.
    Start { process: u32 },
    /// The next flow arrives.
    Flow,
    /// A flow starts whose time has come.
    Message { index: u32 },
    /// A pause, or its end, reaches a port.
    Pause { port: u32, priority: u8, on: bool },
    /// Credits reach a port.
    Credit { port: u32, bytes: u32 },
    /// Something breaks, or works again.
    Incident { index: u32, begins: bool },
    /// Routing has noticed.
    Reroute,
    /// Time to note queues and rates.
    Sample,
    /// What was received from now on counts.
    Count,
    /// Time to look for circles of pauses.
    Watch,
}

/// An event in a word: which it is (5 bits), its port or host (27), and the rest (32). With its
/// time it is 16 bytes, of which there are as many as packets on wires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed(u64);

const KIND_SHIFT: u32 = 59;
const PLACE_SHIFT: u32 = 32;
/// Ports and hosts at most.
pub(crate) const PLACES_MAX: u32 = 1 << (KIND_SHIFT - PLACE_SHIFT);

/// Kinds of events of which there are many for each packet.
pub(crate) const ARRIVE: u64 = 0;
pub(crate) const FREE: u64 = 1;
pub(crate) const ENTER: u64 = 2;
pub(crate) const ENGINE: u64 = 3;
pub(crate) const RECEIVE: u64 = 4;

impl Packed {
    /// Which event it is: [`ARRIVE`] and so on.
    #[inline]
    pub(crate) const fn kind(self) -> u64 {
        self.0 >> KIND_SHIFT
    }

    /// Its port or host.
    #[inline]
    pub(crate) const fn place(self) -> u32 {
        (self.0 >> PLACE_SHIFT) as u32 & (PLACES_MAX - 1)
    }

    /// Its packet.
    #[inline]
    pub(crate) const fn packet(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    const fn of(kind: u64, place: u32, rest: u32) -> Self {
        debug_assert!(place < PLACES_MAX);
        Self(kind << KIND_SHIFT | (place as u64) << PLACE_SHIFT | rest as u64)
    }

    #[inline]
    pub(crate) const fn new(event: Event) -> Self {
        match event {
            Event::Arrive { port, packet } => Self::of(ARRIVE, port, packet),
            Event::Free { port } => Self::of(FREE, port, 0),
            Event::Enter { port, packet } => Self::of(ENTER, port, packet),
            Event::Engine { host } => Self::of(ENGINE, host, 0),
            Event::Receive { host, packet } => Self::of(RECEIVE, host, packet),
            Event::Deliver { host, packet } => Self::of(5, host, packet),
            Event::Timer { connection } => Self::of(6, 0, connection),
            Event::Post { channel } => Self::of(7, 0, channel),
            Event::Write { stream } => Self::of(8, 0, stream),
            Event::Start { process } => Self::of(9, 0, process),
            Event::Flow => Self::of(10, 0, 0),
            Event::Message { index } => Self::of(11, 0, index),
            Event::Pause { port, priority, on } => {
                Self::of(12, port, (priority as u32) << 1 | on as u32)
            }
            Event::Credit { port, bytes } => Self::of(13, port, bytes),
            Event::Incident { index, begins } => Self::of(14, begins as u32, index),
            Event::Reroute => Self::of(15, 0, 0),
            Event::Sample => Self::of(16, 0, 0),
            Event::Count => Self::of(17, 0, 0),
            Event::Watch => Self::of(18, 0, 0),
            Event::Look { host } => Self::of(19, host, 0),
        }
    }

    #[inline]
    pub(crate) const fn event(self) -> Event {
        let place = self.place();
        let rest = self.0 as u32;
        let (port, host, packet) = (place, place, rest);
        match self.kind() {
            ARRIVE => Event::Arrive { port, packet },
            FREE => Event::Free { port },
            ENTER => Event::Enter { port, packet },
            ENGINE => Event::Engine { host },
            RECEIVE => Event::Receive { host, packet },
            5 => Event::Deliver { host, packet },
            6 => Event::Timer { connection: rest },
            7 => Event::Post { channel: rest },
            8 => Event::Write { stream: rest },
            9 => Event::Start { process: rest },
            10 => Event::Flow,
            11 => Event::Message { index: rest },
            12 => Event::Pause {
                port,
                priority: (rest >> 1) as u8,
                on: rest & 1 != 0,
            },
            13 => Event::Credit { port, bytes: rest },
            14 => Event::Incident {
                index: rest,
                begins: place != 0,
            },
            15 => Event::Reroute,
            16 => Event::Sample,
            17 => Event::Count,
            18 => Event::Watch,
            _ => Event::Look { host: port },
        }
    }
}

/// Kinds of events of which [`Ahead`] keeps what they name.
const KINDS: usize = 8;

/// What the events of a window lead to, by which it is loaded before its time: see
/// [`crate::ahead`]. Empty between two windows, and kept for its capacity.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// By kind, the places and packets of events: no processor could foresee which is the next.
    events: [Vec<(u32, u32)>; KINDS],
    /// Ports by which packets will leave, or that they came to.
    pub(crate) ports: Vec<u32>,
    /// Packets that leave, or behind which others will wait.
    pub(crate) packets: Vec<u32>,
    pub(crate) connections: Vec<u32>,
}

impl Ahead {
    #[inline]
    pub(crate) fn push(&mut self, event: Packed) {
        let kind = (event.kind() as usize).min(KINDS - 1);
        self.events[kind].push((event.place(), event.packet()));
    }

    /// Places and packets of the events of one of the first kinds.
    #[inline]
    pub(crate) fn of(&self, kind: u64) -> &[(u32, u32)] {
        &self.events[kind as usize % KINDS]
    }

    pub(crate) fn clear(&mut self) {
        self.events.iter_mut().for_each(Vec::clear);
        self.ports.clear();
        self.packets.clear();
        self.connections.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_word_and_comes_out_as_it_went_in() {
        assert_eq!(size_of::<(u64, Packed)>(), 16);
        let (port, host, packet) = (PLACES_MAX - 1, PLACES_MAX - 2, u32::MAX);
        let events = [
            Event::Arrive { port, packet },
            Event::Free { port },
            Event::Enter { port, packet },
            Event::Engine { host },
            Event::Receive { host, packet },
            Event::Deliver { host, packet },
            Event::Timer { connection: 1 },
            Event::Post { channel: 2 },
            Event::Write { stream: 3 },
            Event::Start { process: 4 },
            Event::Flow,
            Event::Message { index: 5 },
            Event::Pause {
                port,
                priority: 7,
                on: true,
            },
            Event::Pause {
                port,
                priority: 6,
                on: false,
            },
            Event::Credit { port, bytes: 6 },
            Event::Incident {
                index: 7,
                begins: true,
            },
            Event::Incident {
                index: 8,
                begins: false,
            },
            Event::Reroute,
            Event::Sample,
            Event::Count,
            Event::Watch,
        ];
        for event in events {
            assert_eq!(Packed::new(event).event(), event);
        }
    }
}
