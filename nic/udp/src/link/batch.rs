//! Frames that are taken together: those of a stream are alike but for their payload.

use std::ops::Range;

use super::header::{ETHERNET_BYTES, HEADER_BYTES};

/// Frames that are taken as one batch, at most: as many as the kernel joins of UDP.
const JOINED_MAX: usize = 64;
/// Where the header tells the length of the payload.
const LENGTH: Range<usize> = ETHERNET_BYTES + 4..ETHERNET_BYTES + 6;

/// Header and payload of a frame that is there as a whole. What is behind the payload fills short
/// frames up.
pub(super) fn split(frame: &[u8]) -> Option<(&[u8; HEADER_BYTES], &[u8])> {
    let (header, rest) = frame.split_first_chunk()?;
    let length = u16::from_be_bytes([header[LENGTH.start], header[LENGTH.start + 1]]);
    Some((header, rest.get(..length.into())?))
}

/// What was taken of a batch.
#[derive(Debug)]
pub(super) struct Batch {
    header: [u8; HEADER_BYTES],
    /// Bytes of all payloads.
    pub(super) len: usize,
    /// Bytes of each but the last.
    pub(super) stride: usize,
    /// The first did not fit.
    pub(super) is_cut: bool,
    count: usize,
}

impl Batch {
    /// With the first payload, in `bytes`.
    pub(super) fn begin(header: &[u8; HEADER_BYTES], payload: &[u8], bytes: &mut [u8]) -> Self {
        let len = payload.len().min(bytes.len());
        bytes[..len].copy_from_slice(&payload[..len]);
        Self {
            header: *header,
            len,
            stride: len,
            is_cut: len < payload.len(),
            count: 1,
        }
    }

    /// Adds a payload, if it is one of the batch: of the same length, or the last, which is
    /// shorter.
    pub(super) fn add(
        &mut self,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        bytes: &mut [u8],
    ) -> bool {
        let is_alike = header[..LENGTH.start] == self.header[..LENGTH.start]
            && header[LENGTH.end..] == self.header[LENGTH.end..];
        let is_open =
            self.count < JOINED_MAX && !self.is_cut && self.len == self.count * self.stride;
        let has_length = (1..=self.stride).contains(&payload.len());
        let Some(room) = bytes.get_mut(self.len..self.len + payload.len()) else {
            return false;
        };
        if !(is_alike && is_open && has_length) {
            return false;
        }
        room.copy_from_slice(payload);
        self.len += payload.len();
        self.count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(from: u8, payload: &[u8]) -> Vec<u8> {
        let mut header = [0; HEADER_BYTES];
        header[6] = from;
        let length = u16::try_from(payload.len()).unwrap();
        header[LENGTH].copy_from_slice(&length.to_be_bytes());
        [&header[..], payload].concat()
    }

    /// How many frames are taken as one batch, with the room that there is.
    fn taken(frames: &[Vec<u8>], room: usize) -> (usize, Vec<u8>, usize) {
        let mut bytes = vec![0; room];
        let mut batch: Option<Batch> = None;
        let mut count = 0;
        for frame in frames {
            let (header, payload) = split(frame).unwrap();
            let is_one = match &mut batch {
                None => {
                    batch = Some(Batch::begin(header, payload, &mut bytes));
                    true
                }
                Some(batch) => batch.add(header, payload, &mut bytes),
            };
            if !is_one {
                break;
            }
            count += 1;
        }
        let batch = batch.unwrap();
        bytes.truncate(batch.len);
        (count, bytes, batch.stride)
    }

    #[test]
    fn frames_of_one_length_and_a_shorter_one_are_a_batch() {
        let frames = [[1; 8], [2; 8]].map(|payload| frame(1, &payload));
        let last = frame(1, &[3; 5]);
        let all = [&frames[..], &[last, frame(1, &[4; 8])]].concat();
        let expected = [&[1; 8][..], &[2; 8], &[3; 5]].concat();
        assert_eq!(taken(&all, 100), (3, expected, 8));
    }

    #[test]
    fn others_begin_another_batch() {
        let first = frame(1, &[1; 8]);
        for other in [frame(2, &[1; 8]), frame(1, &[1; 9]), frame(1, &[])] {
            assert_eq!(taken(&[first.clone(), other], 100), (1, vec![1; 8], 8));
        }
        assert_eq!(taken(&[first.clone(), first.clone()], 15).0, 1, "no room");
        let empty = frame(1, &[]);
        assert_eq!(taken(&[empty.clone(), empty], 100), (1, vec![], 0));
        let many = vec![first; JOINED_MAX + 9];
        assert_eq!(taken(&many, 10_000).0, JOINED_MAX);
    }

    #[test]
    fn what_fills_a_frame_up_is_none_of_its_payload_and_a_cut_one_is_none() {
        let mut frame = frame(1, &[7; 20]);
        frame.extend([9; 6]);
        assert_eq!(split(&frame).unwrap().1, [7; 20]);
        for len in 0..HEADER_BYTES + 20 {
            assert_eq!(split(&frame[..len]), None, "{len}");
        }
    }
}
