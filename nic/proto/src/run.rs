//! Packets in a row that hardly differ: the middle of a long message, or WRITEs of one length one
//! behind the other. What is the same of all of them is found out once.

use crate::verbs::{Payload, Transmit};

/// A packet to send, and how many more like it follow.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The first packet.
    pub first: Transmit<'a>,
    /// Packets behind it. Each differs from the one before by its PSN, which is one more, and by
    /// its payload, which is as long and the next bytes of the same memory: of one element of a
    /// list ([`Payload::Local`]), or of a range that the peer may read ([`Payload::Remote`]). If
    /// they are WRITEs, their addresses follow each other likewise. Their headers have no other
    /// extensions but XRC's.
    pub more: u32,
}

impl<'a> Run<'a> {
    /// A packet without others like it.
    #[must_use]
    pub const fn single(first: Transmit<'a>) -> Self {
        Self { first, more: 0 }
    }

    /// The packet at `index`: 0 is the first, and `more` the last.
    #[inline]
    #[must_use]
    pub fn packet(&self, index: u32) -> Transmit<'a> {
        let mut packet = self.first;
        packet.header.bth.psn = packet.header.bth.psn.add(index);
        if let Some(reth) = &mut packet.header.reth {
            let before = u64::from(index) * u64::from(reth.len);
            reth.va = reth.va.wrapping_add(before);
        }
        match &mut packet.payload {
            Payload::Local { offset, len, .. } => *offset += index * *len,
            Payload::Remote { va, len, .. } => *va += u64::from(index) * u64::from(*len),
            Payload::Empty | Payload::Bytes(_) | Payload::Words(_) => {}
        }
        packet
    }
}
