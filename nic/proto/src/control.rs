//! Congestion control as an interface: what a queue pair tells it, and what it answers.
//!
//! The algorithms are in a crate of their own, and a caller gives one to a queue pair. One kind is
//! there only while there is congestion, and acts on notifications of the peer
//! ([`crate::QueuePair::set_notified_control`]). Others are always there
//! ([`crate::QueuePair::set_congestion_control`]): they see what acknowledgements bring back
//! ([`Feedback`]), which the caller has from its adapter and its switches.

use alloc::boxed::Box;
use core::fmt::Debug;

use crate::time::Instant;

/// What one switch on the way of a packet wrote into it as it left there (in-band network
/// telemetry, INT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// When the packet left, nanoseconds of the switch's own clock.
    pub at_ns: u64,
    /// What waited at the port behind it, bytes of the wire.
    pub queue_bytes: u64,
    /// What had left by the port since the beginning, bytes of the wire.
    pub sent_bytes: u64,
    /// The rate of the port, bits per second.
    pub rate_bps: u64,
}

/// What an acknowledgement brings back of the path, about the last packet that had come when it was
/// sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Feedback<'a> {
    /// From the packet's leaving until the acknowledgement came, by the adapter's clock,
    /// nanoseconds.
    pub round_trip_ns: u64,
    /// The part of it that the packet and its acknowledgement were in the peer, nanoseconds.
    pub remote_ns: u64,
    /// Switches that the packet passed.
    pub hops: u32,
    /// Packets that came since the last acknowledgement.
    pub packets: u32,
    /// Those of them with the mark "congestion experienced".
    pub marked: u32,
    /// What each switch on the way of the packet wrote into it, the first first; empty without INT.
    pub path: &'a [Hop],
}

/// An acknowledgement came.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged<'a> {
    /// Data acknowledged since the beginning, in bytes of full packets.
    pub acknowledged_bytes: u64,
    /// Data sent since the beginning, likewise, without what was sent again.
    pub sent_bytes: u64,
    /// What it brings back.
    pub feedback: Feedback<'a>,
}

/// How a loss was found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The peer, or a later answer, told of a gap.
    Gap,
    /// Nothing was heard for long.
    Silence,
}

/// Congestion control of one queue pair. It reads no clock: `now` is an argument, and never goes
/// back.
///
/// For each packet of data the queue pair asks [`Self::may_send`], and tells of it by
/// [`Self::handle_sent`]. What is under way is bounded by [`Self::window_bytes`].
pub trait CongestionControl: Debug + Send + Sync {
    // ---- inputs ------------------------------------------------------------------------------

    /// An acknowledgement came.
    fn handle_acknowledged(&mut self, now: Instant, event: &Acknowledged<'_>);

    /// A congestion notification packet (CNP) came.
    fn handle_notification(&mut self, now: Instant);

    /// Something was lost.
    fn handle_loss(&mut self, now: Instant, loss: Loss);

    /// A packet of so many bytes, from its BTH to its ICRC, was sent.
    fn handle_sent(&mut self, now: Instant, bytes: u32);

    /// The time that [`Self::poll_timeout`] gave has come. Harmless if called early.
    fn handle_timeout(&mut self, now: Instant);

    // ---- outputs -----------------------------------------------------------------------------

    /// Whether a packet may go now, as far as the rate is concerned. If not, [`Self::poll_timeout`]
    /// tells when.
    fn may_send(&mut self, now: Instant) -> bool;

    /// When the next packet may go, if one was refused.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The rate as of the last call, bits per second; `None`: none limits it.
    fn rate_bps(&self) -> Option<u64>;

    /// What may be under way, bytes of data; `None`: the queue pair's own window limits it. A part
    /// of a packet counts as a whole one.
    fn window_bytes(&self) -> Option<u64>;

    /// Whether it limits nothing any more, and may be given up.
    fn is_idle(&self) -> bool {
        false
    }

    /// In how many packets it wants an acknowledgement at least; `None`: as the queue pair asks
    /// for them anyway.
    fn packets_per_acknowledgement(&self) -> Option<u32> {
        None
    }

    /// A copy.
    fn boxed_clone(&self) -> Box<dyn CongestionControl>;
}

/// Congestion control that a queue pair has only while there is congestion: from a notification of
/// its peer until it [is idle](CongestionControl::is_idle).
pub trait NotifiedControl: Debug + Send + Sync {
    /// Least time between two notifications that the queue pair sends to its own peer, nanoseconds.
    fn notification_interval_ns(&self) -> u64;

    /// The first notification came, and counts as handled. The queue pair sends at `measured_bps`
    /// bits per second, by its window and its round trip, if those are known.
    fn begin(&self, now: Instant, measured_bps: Option<u64>) -> Box<dyn CongestionControl>;
}

impl Clone for Box<dyn CongestionControl> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
