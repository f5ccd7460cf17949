//! What an adapter fetched of the message that a queue pair sends, and has not sent: how much it
//! asks memory for next, and when.

use urxe_wire::Psn;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    /// The packet that goes on with the message. Another one begins anew, as after a loss.
    next: Psn,
    /// Of the message being sent, what was not asked for.
    left_bytes: u64,
    here_bytes: u64,
    /// When it is there; a packet behind it waits as well, for packets of a queue pair keep their
    /// order.
    pub(crate) ready_at: u64,
    /// When the last packet has passed the adapter's memory.
    pub(crate) passed_at: u64,
}

/// A packet of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) psn: Psn,
    /// Where it begins in its message.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) message_bytes: u64,
}

impl Gathered {
    pub(crate) const NOTHING: Self = Self {
        next: Psn::new(0),
        left_bytes: 0,
        here_bytes: 0,
        ready_at: 0,
        passed_at: 0,
    };

    /// What was there is not sent: the next packet came with the doorbell.
    pub(crate) const fn drop_rest(&mut self) {
        self.here_bytes = 0;
    }

    /// A packet is to leave: how much has to be asked for before it may.
    pub(crate) fn take(&mut self, piece: Piece, unit_bytes: u64) -> u64 {
        if piece.psn != self.next || piece.offset == 0 {
            self.left_bytes = piece.message_bytes.saturating_sub(piece.offset);
            self.here_bytes = 0;
        }
        self.next = piece.psn.next();
        let missing_bytes = piece.bytes.saturating_sub(self.here_bytes);
        let asked_bytes = if missing_bytes == 0 {
            0
        } else {
            self.left_bytes.min(unit_bytes).max(missing_bytes)
        };
        self.left_bytes = self.left_bytes.saturating_sub(asked_bytes);
        self.here_bytes = self.here_bytes + asked_bytes - piece.bytes;
        asked_bytes
    }

    /// Whether all of the next packet is there.
    pub(crate) const fn has_next(&self, packet_bytes: u64) -> bool {
        self.here_bytes >= packet_bytes || self.here_bytes > 0 && self.left_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const PACKET_BYTES: u64 = 1_024;

    fn piece(number: u64, message_bytes: u64) -> Piece {
        let offset = number * PACKET_BYTES;
        Piece {
            psn: Psn::new(number as u32),
            offset,
            bytes: PACKET_BYTES.min(message_bytes - offset),
            message_bytes,
        }
    }

    /// What is asked for before each of these packets of a message.
    fn asked(
        gathered: &mut Gathered,
        packets: impl IntoIterator<Item = u64>,
        message_bytes: u64,
        unit_bytes: u64,
    ) -> Vec<u64> {
        let packets = packets.into_iter();
        packets
            .map(|number| gathered.take(piece(number, message_bytes), unit_bytes))
            .collect()
    }

    #[test]
    fn a_message_that_goes_on_after_a_loss_is_asked_for_in_units() {
        let (message_bytes, unit_bytes) = (16 * PACKET_BYTES, 4 * PACKET_BYTES);
        let mut gathered = Gathered::NOTHING;
        asked(&mut gathered, 0..16, message_bytes, unit_bytes);
        let again = asked(&mut gathered, 5..16, message_bytes, unit_bytes);
        assert_eq!(again, [4096, 0, 0, 0, 4096, 0, 0, 0, 3072, 0, 0]);
        // The packets behind the loss were there, but are fetched with it.
        asked(&mut gathered, 0..6, message_bytes, unit_bytes);
        let again = asked(&mut gathered, 4..9, message_bytes, unit_bytes);
        assert_eq!(again, [4096, 0, 0, 0, 4096]);
    }

    #[test]
    fn every_byte_is_asked_for_once_whatever_the_unit() {
        for unit_bytes in [1024, 1500, 2500, 4095, 4096, 5000, 1 << 20] {
            for message_bytes in [1, 1024, 1025, 10_000, 64 * PACKET_BYTES] {
                let packets = message_bytes.div_ceil(PACKET_BYTES);
                let mut gathered = Gathered::NOTHING;
                let asked = asked(&mut gathered, 0..packets, message_bytes, unit_bytes);
                assert_eq!(asked.iter().sum::<u64>(), message_bytes, "{unit_bytes}");
                assert_eq!(gathered.here_bytes, 0);
            }
        }
    }

    #[test]
    fn a_turn_ends_where_the_next_packet_is_not_all_there() {
        let message_bytes = 16 * PACKET_BYTES;
        let mut gathered = Gathered::NOTHING;
        // Units of two and a half packets, so of two and three of them by turns.
        let goes_on = (0..16).map(|number| {
            gathered.take(piece(number, message_bytes), 2_560);
            gathered.has_next(PACKET_BYTES)
        });
        let turns = goes_on.collect::<Vec<bool>>();
        assert_eq!(turns[..5], [true, false, true, true, false]);
        assert!(!turns[15], "the message has ended");
    }
}
