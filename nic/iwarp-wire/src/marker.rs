//! Markers (RFC 5044, 4.2 and 4.3): 4 bytes at every 512th of the stream, counted from the first
//! byte after the set-up frame of that direction, markers included. The first thing there is a
//! marker.

use crate::bytes::u16_at;

/// Bytes of the stream from the beginning of a marker to that of the next.
pub const MARKER_INTERVAL: u64 = 512;

/// A marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Marker {
    /// Bytes of the stream back to the length of the FPDU that it is in; 0 for one that stands
    /// before the length (FPDUPTR).
    pub back: u16,
}

impl Marker {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Reads a marker. Its first two bytes are reserved, and not looked at.
    #[must_use]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            back: u16_at(raw, 2),
        }
    }

    /// The bytes on the wire.
    #[must_use]
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let [high, low] = self.back.to_be_bytes();
        [0, 0, high, low]
    }
}

/// Where one direction of a stream stands between its markers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marking {
    position: u64,
}

impl Marking {
    /// At the first byte after the set-up frame.
    #[must_use]
    pub const fn new() -> Self {
        Self { position: 0 }
    }

    /// Bytes from here to the next marker; 0 where a marker is due.
    #[must_use]
    pub fn until_marker(&self) -> usize {
        let past = self.position % MARKER_INTERVAL;
        let left = if past == 0 { 0 } else { MARKER_INTERVAL - past };
        usize::try_from(left).unwrap_or(0)
    }

    /// Goes on by so many bytes, those of markers included.
    pub const fn pass(&mut self, bytes: usize) {
        self.position += bytes as u64;
    }
}
