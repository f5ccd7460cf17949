//! The framing of an FPDU (RFC 5044, 4.1): a length of 2 bytes, the ULPDU, padding to a multiple
//! of 4 bytes, and a CRC of 4. The CRC is there, as zeros, without CRCs, too. Markers count for
//! neither length nor padding.

use crate::crc::Crc32c;
use crate::marker::{MARKER_INTERVAL, Marker, Marking};

/// Bytes before the ULPDU.
pub const HEADER_LEN: usize = 2;

/// Longest ULPDU that is sent, bytes (RFC 5044, 4.5: the FPDU, markers included, stays below 64
/// KiB).
pub const MAX_ULPDU_LEN: usize = 64 * 1024 - 768;

/// The least MULPDU, whatever the segment size is (RFC 5044, 4.5).
pub const MIN_MULPDU: usize = 128;

/// Bytes of padding behind a ULPDU of `ulpdu_len` bytes, 0 to 3.
#[must_use]
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (HEADER_LEN + ulpdu_len).wrapping_neg() % 4
}

/// Bytes of an FPDU without markers.
#[must_use]
pub const fn len(ulpdu_len: usize) -> usize {
    HEADER_LEN + ulpdu_len + pad_len(ulpdu_len) + Crc32c::LEN
}

/// The longest ULPDU whose FPDU fits in a TCP segment of `segment_len` bytes, whatever markers fall
/// in it (RFC 5044, 4.5: the effective maximum segment size less 6, a marker for each 512 bytes
/// begun, and what is no whole word).
#[must_use]
pub fn mulpdu(segment_len: usize, has_markers: bool) -> usize {
    let interval = usize::try_from(MARKER_INTERVAL).unwrap_or(usize::MAX);
    let markers = if has_markers {
        segment_len.div_ceil(interval) * Marker::LEN
    } else {
        0
    };
    let overhead = HEADER_LEN + Crc32c::LEN + markers + segment_len % 4;
    segment_len
        .saturating_sub(overhead)
        .clamp(MIN_MULPDU, MAX_ULPDU_LEN)
}

/// Puts an FPDU without markers together and hands it to `sink`, piece by piece. `ulpdu` are pieces
/// of the ULPDU.
///
/// # Panics
/// If the ULPDU is longer than 65,535 bytes, the most that the length can say.
pub fn emit(ulpdu: &[&[u8]], has_crc: bool, mut sink: impl FnMut(&[u8])) {
    let total: usize = ulpdu.iter().map(|piece| piece.len()).sum();
    let len = u16::try_from(total).expect("a ULPDU has at most 65,535 bytes");
    let mut crc = Crc32c::new();
    let mut put = |bytes: &[u8]| {
        crc.update(bytes);
        sink(bytes);
    };
    put(&len.to_be_bytes());
    ulpdu.iter().for_each(|piece| put(piece));
    put(&[0; 3][..pad_len(total)]);
    let crc = if has_crc {
        crc.finish()
    } else {
        [0; Crc32c::LEN]
    };
    sink(&crc);
}

/// Puts an FPDU with markers together and hands it to `sink`, piece by piece. `ulpdu` are pieces
/// of the ULPDU. Markers count for the CRC, also one that stands before it or before the length.
///
/// # Panics
/// If the ULPDU is longer than 65,535 bytes, the most that the length can say.
pub fn emit_marked(marking: &mut Marking, ulpdu: &[&[u8]], has_crc: bool, sink: impl FnMut(&[u8])) {
    let total: usize = ulpdu.iter().map(|piece| piece.len()).sum();
    let len = u16::try_from(total).expect("a ULPDU has at most 65,535 bytes");
    let mut writer = MarkedWriter {
        marking,
        crc: Crc32c::new(),
        back: 0,
        sink,
    };
    writer.put(&len.to_be_bytes());
    ulpdu.iter().for_each(|piece| writer.put(piece));
    writer.put(&[0; 3][..pad_len(total)]);
    writer.put_due_marker();
    let crc = writer.crc.finish();
    writer.put(if has_crc { &crc } else { &[0; Crc32c::LEN] });
}

struct MarkedWriter<'a, F> {
    marking: &'a mut Marking,
    crc: Crc32c,
    /// Bytes since the beginning of the length.
    back: u16,
    sink: F,
}

impl<F: FnMut(&[u8])> MarkedWriter<'_, F> {
    fn put(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.put_due_marker();
            let room = self.marking.until_marker();
            let (piece, later) = rest.split_at(room.min(rest.len()));
            rest = later;
            self.pass(piece);
            self.back = self
                .back
                .wrapping_add(u16::try_from(piece.len()).unwrap_or(0));
        }
    }

    fn put_due_marker(&mut self) {
        if self.marking.until_marker() > 0 {
            return;
        }
        self.pass(&Marker { back: self.back }.emit());
        if self.back > 0 {
            self.back = self
                .back
                .wrapping_add(u16::try_from(Marker::LEN).unwrap_or(0));
        }
    }

    fn pass(&mut self, piece: &[u8]) {
        self.crc.update(piece);
        (self.sink)(piece);
        self.marking.pass(piece.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_fpdu_fits_in_its_segment() {
        for segment in 200..3000 {
            let plain = len(mulpdu(segment, false));
            assert!(plain <= segment && plain + 4 > segment - segment % 4);
            let markers = segment.div_ceil(512) * Marker::LEN;
            assert!(len(mulpdu(segment, true)) + markers <= segment);
        }
        assert_eq!(mulpdu(1460, false), 1454);
        // RFC 5044, 4.5: EMSS - (6 + 4 * ceiling(EMSS / 512) + EMSS mod 4).
        assert_eq!(mulpdu(1460, true), 1460 - 6 - 12);
        assert_eq!(mulpdu(1 << 20, false), MAX_ULPDU_LEN);
    }

    #[test]
    fn an_fpdu_is_whole_words() {
        assert_eq!((pad_len(0), len(0)), (2, 8));
        assert_eq!((pad_len(18), len(18)), (0, 24));
        assert!((0..100).all(|ulpdu| len(ulpdu).is_multiple_of(4) && pad_len(ulpdu) < 4));
    }
}
