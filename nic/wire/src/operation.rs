//! What a packet asks or answers, independent of the transport service.

/// The operation of a packet: the low five bits of its opcode (IBTA vol 1, table 38).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "the names are those of the specification; the crate's opcode table explains them"
)]
pub enum Operation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImm = 0x03,
    SendOnly = 0x04,
    SendOnlyImm = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImm = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImm = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
}

use Operation::*;

impl Operation {
    /// Every operation, in the order of its code.
    pub const ALL: [Self; 25] = [
        SendFirst,
        SendMiddle,
        SendLast,
        SendLastImm,
        SendOnly,
        SendOnlyImm,
        WriteFirst,
        WriteMiddle,
        WriteLast,
        WriteLastImm,
        WriteOnly,
        WriteOnlyImm,
        ReadRequest,
        ReadResponseFirst,
        ReadResponseMiddle,
        ReadResponseLast,
        ReadResponseOnly,
        Acknowledge,
        AtomicAcknowledge,
        CompareSwap,
        FetchAdd,
        SendLastInvalidate,
        SendOnlyInvalidate,
        Flush,
        AtomicWrite,
    ];

    /// The operation with this five-bit code; `None` for the reserved ones (0x15, 0x18 to 0x1b,
    /// 0x1e and 0x1f).
    #[inline]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x00..=0x14 => Self::ALL[code as usize],
            0x16 => SendLastInvalidate,
            0x17 => SendOnlyInvalidate,
            0x1c => Flush,
            0x1d => AtomicWrite,
            _ => return None,
        })
    }

    /// The five-bit code.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether a requester sends it.
    #[inline]
    pub const fn is_request(self) -> bool {
        !self.is_response()
    }

    /// Whether a responder sends it: read responses and acknowledgements.
    #[inline]
    pub const fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Acknowledge | AtomicAcknowledge)
    }

    /// Whether it is the first of several packets of a message or read response.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self, SendFirst | WriteFirst | ReadResponseFirst)
    }

    /// Whether it is neither the first nor the last packet of a message or read response.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(self, SendMiddle | WriteMiddle | ReadResponseMiddle)
    }

    /// Whether it is the last of several packets of a message or read response.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(
            self,
            SendLast
                | SendLastImm
                | SendLastInvalidate
                | WriteLast
                | WriteLastImm
                | ReadResponseLast
        )
    }

    /// Whether it is the only packet of a message, read response or acknowledgement.
    #[inline]
    pub const fn is_only(self) -> bool {
        !(self.is_first() || self.is_middle() || self.is_last())
    }

    /// Whether it is part of a SEND.
    #[inline]
    pub const fn is_send(self) -> bool {
        matches!(
            self,
            SendFirst
                | SendMiddle
                | SendLast
                | SendLastImm
                | SendLastInvalidate
                | SendOnly
                | SendOnlyImm
                | SendOnlyInvalidate
        )
    }

    /// Whether it is part of an RDMA WRITE.
    #[inline]
    pub const fn is_write(self) -> bool {
        matches!(
            self,
            WriteFirst | WriteMiddle | WriteLast | WriteLastImm | WriteOnly | WriteOnlyImm
        )
    }

    /// Whether it is part of the answer to an RDMA READ.
    #[inline]
    pub const fn is_read_response(self) -> bool {
        matches!(
            self,
            ReadResponseFirst | ReadResponseMiddle | ReadResponseLast | ReadResponseOnly
        )
    }

    /// Whether it asks for an atomic operation.
    #[inline]
    pub const fn is_atomic(self) -> bool {
        matches!(self, CompareSwap | FetchAdd)
    }

    /// Whether it is a request whose response acknowledges it: that of a READ, an atomic, a FLUSH
    /// or an ATOMIC WRITE. Those of the last two are READ responses without data.
    #[inline]
    pub const fn has_response(self) -> bool {
        matches!(
            self,
            ReadRequest | CompareSwap | FetchAdd | Flush | AtomicWrite
        )
    }

    /// Whether it carries immediate data.
    #[inline]
    pub const fn has_immediate(self) -> bool {
        matches!(
            self,
            SendLastImm | SendOnlyImm | WriteLastImm | WriteOnlyImm
        )
    }

    /// Whether it carries an RDMA extended header.
    #[inline]
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            WriteFirst | WriteOnly | WriteOnlyImm | ReadRequest | Flush | AtomicWrite
        )
    }

    /// Whether it carries an acknowledge extended header: all responses but the middle of a read.
    #[inline]
    pub const fn has_aeth(self) -> bool {
        matches!(
            self,
            ReadResponseFirst
                | ReadResponseLast
                | ReadResponseOnly
                | Acknowledge
                | AtomicAcknowledge
        )
    }

    /// Whether it names an rkey for the receiver to invalidate.
    #[inline]
    pub const fn has_invalidate(self) -> bool {
        matches!(self, SendLastInvalidate | SendOnlyInvalidate)
    }

    /// Whether data may follow its headers. Requests for a read, an atomic or a flush and
    /// acknowledgements carry none.
    #[inline]
    pub const fn carries_payload(self) -> bool {
        self.is_send() || self.is_write() || self.is_read_response() || matches!(self, AtomicWrite)
    }

    /// Whether a new message, read response or acknowledgement begins with it.
    #[inline]
    pub const fn starts_message(self) -> bool {
        self.is_first() || self.is_only()
    }

    /// Whether its message, read response or acknowledgement is complete with it.
    #[inline]
    pub const fn ends_message(self) -> bool {
        self.is_last() || self.is_only()
    }
}
