//! What enhanced set-up says of the connection (RFC 6581, 9): the first 4 bytes of private data.

use crate::bytes::u16_at;

/// The highest value of the fields IRD and ORD. It is no count: it stands for "not negotiated here"
/// (RFC 6581, 9.1).
pub const IRD_ORD_MAX: u16 = 0x3fff;

/// The largest IRD and ORD that can be said.
pub const IRD_ORD_LARGEST: u16 = IRD_ORD_MAX - 1;

/// Control flags A and B stand above IRD, C and D above ORD.
const FLAG_HIGH: u16 = 0x8000;
const FLAG_LOW: u16 = 0x4000;

/// As much of IRD or ORD as can be said.
const fn said(count: u16) -> u16 {
    if count > IRD_ORD_MAX {
        IRD_ORD_LARGEST
    } else {
        count
    }
}

/// First frames ("ready to receive") that an end can send, or, in a reply, is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rtr {
    /// A FULPDU of no bytes (control flag B): nothing of DDP and RDMAP is in it.
    pub fulpdu: bool,
    /// An RDMA WRITE of no bytes (control flag C).
    pub write: bool,
    /// An RDMA READ of no bytes (control flag D).
    pub read: bool,
}

/// IRD, ORD and the control flags.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Enhanced {
    /// Whether either end may send first, once an RTR frame went (control flag A).
    pub is_peer_to_peer: bool,
    /// RTR frames.
    pub rtr: Rtr,
    /// READs and atomics that the sender of the frame answers at a time.
    pub ird: u16,
    /// READs and atomics that the sender of the frame has outstanding at most.
    pub ord: u16,
}

const fn flag(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

impl Enhanced {
    /// Length on the wire, bytes.
    pub const LEN: usize = 4;

    /// Reads it.
    #[must_use]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        let (ird, ord) = (u16_at(raw, 0), u16_at(raw, 2));
        Self {
            is_peer_to_peer: ird & FLAG_HIGH != 0,
            rtr: Rtr {
                fulpdu: ird & FLAG_LOW != 0,
                write: ord & FLAG_HIGH != 0,
                read: ord & FLAG_LOW != 0,
            },
            ird: ird & IRD_ORD_MAX,
            ord: ord & IRD_ORD_MAX,
        }
    }

    /// The bytes on the wire. IRD and ORD above [`IRD_ORD_MAX`] are said as [`IRD_ORD_LARGEST`].
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let ird = said(self.ird)
            | flag(self.is_peer_to_peer, FLAG_HIGH)
            | flag(self.rtr.fulpdu, FLAG_LOW);
        let ord = said(self.ord) | flag(self.rtr.write, FLAG_HIGH) | flag(self.rtr.read, FLAG_LOW);
        let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
        [a, b, c, d]
    }
}
