//! A link in one direction: packets wait for the wire, take time on it, and arrive later.

use alloc::vec::Vec;

use urxe_proto::Instant;

use crate::fault::Rule;

/// Bytes of headers around a UDP payload that the wire carries: Ethernet 14 + FCS 4 + preamble and
/// gap 20, IPv4 20, UDP 8. What IPv6 has more is not worth a difference here.
const AROUND_BYTES: u64 = 14 + 4 + 20 + 20 + 8;
/// Of these, what counts against the MTU: IPv4 and UDP.
const IP_UDP_BYTES: usize = 28;

/// What a link is like.
#[derive(Clone, Copy, Debug)]
pub struct LinkConfig {
    /// Time from the last bit's departure to its arrival.
    pub delay_ns: u64,
    /// Mbit/s.
    pub rate_mbps: u64,
    /// Largest IP packet, bytes.
    pub mtu_bytes: usize,
    /// A queue in front of the wire that takes so many bytes, and loses what finds it full. `None`:
    /// a host that sends waits until the wire is free.
    pub queue_bytes: Option<u64>,
}

impl Default for LinkConfig {
    /// 10 Gbit/s, 5 us, and packets of the largest RoCE MTU.
    fn default() -> Self {
        Self {
            delay_ns: 5_000,
            rate_mbps: 10_000,
            mtu_bytes: 4_300,
            queue_bytes: None,
        }
    }
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets put on the wire.
    pub packets: u64,
    /// UDP payload bytes put on the wire.
    pub bytes: u64,
    /// Packets that rules dropped.
    pub dropped: u64,
    /// Packets longer than the MTU, which are lost.
    pub too_long: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Link {
    /// What it is like.
    pub config: LinkConfig,
    /// What it does to packets.
    pub rules: Vec<Rule>,
    /// Its counters.
    pub stats: LinkStats,
    free_at: Instant,
}

impl Link {
    pub(crate) fn new(config: LinkConfig) -> Self {
        Self {
            config,
            rules: Vec::new(),
            stats: LinkStats::default(),
            free_at: Instant::default(),
        }
    }

    /// When the next packet may be sent.
    pub(crate) fn free_at(&self) -> Instant {
        if self.config.queue_bytes.is_some() {
            Instant::default()
        } else {
            self.free_at
        }
    }

    /// Puts a packet on the wire, or into the queue in front of it. Returns when it arrives; `None`
    /// if it is too long, or the queue full.
    pub(crate) fn carry(&mut self, now: Instant, udp_payload_len: usize) -> Option<Instant> {
        let wire_bytes = udp_payload_len as u64 + AROUND_BYTES;
        let waiting_bytes = self.free_at.since(now) * self.config.rate_mbps / 8_000;
        let room_bytes = self.config.queue_bytes.unwrap_or(u64::MAX);
        if waiting_bytes.saturating_add(wire_bytes) > room_bytes {
            self.stats.overflowed += 1;
            return None;
        }
        let serialization_ns = (8_000 * wire_bytes).div_ceil(self.config.rate_mbps.max(1));
        self.free_at = self.free_at.max(now).after(serialization_ns);
        self.stats.packets += 1;
        self.stats.bytes += udp_payload_len as u64;
        if udp_payload_len + IP_UDP_BYTES > self.config.mtu_bytes {
            self.stats.too_long += 1;
            return None;
        }
        Some(self.free_at.after(self.config.delay_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_queue_for_the_wire_and_then_travel() {
        let mut link = Link::new(LinkConfig {
            delay_ns: 1_000,
            rate_mbps: 1_000,
            mtu_bytes: 1_500,
            queue_bytes: None,
        });
        let now = Instant::from_nanos(10);
        // 34 + 66 bytes at 1 bit/ns.
        assert_eq!(
            link.carry(now, 34),
            Some(Instant::from_nanos(10 + 800 + 1_000))
        );
        assert_eq!(
            link.carry(now, 34),
            Some(Instant::from_nanos(10 + 1_600 + 1_000))
        );
        assert_eq!(link.free_at(), Instant::from_nanos(1_610));
    }

    #[test]
    fn a_packet_that_finds_the_queue_full_is_lost() {
        let mut link = Link::new(LinkConfig {
            rate_mbps: 1_000,
            queue_bytes: Some(200),
            ..LinkConfig::default()
        });
        let now = Instant::from_nanos(10);
        assert!(link.carry(now, 34).is_some());
        assert!(link.carry(now, 34).is_some());
        assert_eq!(link.free_at(), Instant::default(), "nobody has to wait");
        assert_eq!(link.carry(now, 34), None);
        assert_eq!(link.stats.overflowed, 1);
        assert!(link.carry(now.after(800), 34).is_some());
    }

    #[test]
    fn a_packet_above_the_mtu_is_lost() {
        let mut link = Link::new(LinkConfig {
            mtu_bytes: 1_500,
            ..LinkConfig::default()
        });
        assert!(link.carry(Instant::default(), 1_472).is_some());
        assert!(link.carry(Instant::default(), 1_473).is_none());
        assert_eq!(link.stats.too_long, 1);
    }
}
