//! All the headers of a packet together, in the order of the wire.

use crate::aeth::Aeth;
use crate::atomic_ack_eth::AtomicAckEth;
use crate::atomic_eth::AtomicEth;
use crate::bth::Bth;
use crate::deth::Deth;
use crate::error::{EmitError, ParseError, Part};
use crate::feth::Feth;
use crate::ieth::Ieth;
use crate::immediate::Immediate;
use crate::opcode::Opcode;
use crate::operation::Operation;
use crate::reth::Reth;
use crate::transport::Transport;
use crate::xrceth::XrcEth;

/// The most bytes that [`Header::emit`] writes: an XRC atomic request.
pub const MAX_HEADER_LEN: usize = Bth::LEN + XrcEth::LEN + AtomicEth::LEN;

/// How many zero bytes follow a payload of `payload_len` bytes to make it whole words, 0 to 3.
#[inline]
pub const fn pad_len(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

/// A set of extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Extensions(u16);

impl Extensions {
    /// Datagram extended header.
    pub const DETH: Self = Self(1 << 0);
    /// XRC extended header.
    pub const XRCETH: Self = Self(1 << 1);
    /// FLUSH extended header.
    pub const FETH: Self = Self(1 << 2);
    /// RDMA extended header.
    pub const RETH: Self = Self(1 << 3);
    /// Atomic extended header.
    pub const ATOMIC: Self = Self(1 << 4);
    /// Acknowledge extended header.
    pub const AETH: Self = Self(1 << 5);
    /// Atomic acknowledge extended header.
    pub const ATOMIC_ACK: Self = Self(1 << 6);
    /// Immediate data.
    pub const IMMEDIATE: Self = Self(1 << 7);
    /// Invalidate extended header.
    pub const IETH: Self = Self(1 << 8);

    /// The extension headers that packets with this opcode have (IBTA vol 1, table 38).
    #[inline]
    pub const fn of(opcode: Opcode) -> Self {
        match opcode {
            Opcode::Queue {
                transport,
                operation,
            } => Self(BY_OPCODE[(transport as u8 | operation.code()) as usize]),
            Opcode::Cnp => Self(0),
        }
    }

    /// Whether all of `other` are in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Their length on the wire, bytes.
    #[inline]
    pub const fn len_bytes(self) -> usize {
        let [low, high] = &LEN_BY_HALF;
        (low[(self.0 & 31) as usize] + high[(self.0 >> 5 & 31) as usize]) as usize
    }

    #[inline]
    const fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self(0) }
    }
}

/// The extension headers of every opcode byte, so that the hot path looks them up.
static BY_OPCODE: [u16; 256] = {
    let mut table = [0; 256];
    let mut row = 0;
    while row < Transport::ALL.len() * Operation::ALL.len() {
        let transport = Transport::ALL[row / Operation::ALL.len()];
        let operation = Operation::ALL[row % Operation::ALL.len()];
        table[(transport as u8 | operation.code()) as usize] = extensions(transport, operation).0;
        row += 1;
    }
    table
};

const fn extensions(transport: Transport, operation: Operation) -> Extensions {
    let service = match transport {
        Transport::Rc | Transport::Uc => Extensions(0),
        Transport::Ud => Extensions::DETH,
        Transport::Xrc => Extensions::XRCETH.only_if(operation.is_request()),
    };
    Extensions(
        service.0
            | Extensions::FETH
                .only_if(matches!(operation, Operation::Flush))
                .0
            | Extensions::RETH.only_if(operation.has_reth()).0
            | Extensions::ATOMIC.only_if(operation.is_atomic()).0
            | Extensions::AETH.only_if(operation.has_aeth()).0
            | Extensions::ATOMIC_ACK
                .only_if(matches!(operation, Operation::AtomicAcknowledge))
                .0
            | Extensions::IMMEDIATE.only_if(operation.has_immediate()).0
            | Extensions::IETH.only_if(operation.has_invalidate()).0,
    )
}

/// Lengths in the order of the bits of [`Extensions`], which is the order on the wire.
const LENGTHS: [usize; 9] = [
    Deth::LEN,
    XrcEth::LEN,
    Feth::LEN,
    Reth::LEN,
    AtomicEth::LEN,
    Aeth::LEN,
    AtomicAckEth::LEN,
    Immediate::LEN,
    Ieth::LEN,
];

/// The summed lengths of every subset of the first five, and of the others, extension headers.
static LEN_BY_HALF: [[u8; 32]; 2] = {
    let mut table = [[0; 32]; 2];
    let mut at = 0;
    while at < 32 * LENGTHS.len() {
        let (subset, bit) = (at / LENGTHS.len(), at % LENGTHS.len());
        if subset >> (bit % 5) & 1 != 0 {
            table[bit / 5][subset] += LENGTHS[bit] as u8;
        }
        at += 1;
    }
    table
};

/// What precedes the payload: the base transport header and the extension headers that its opcode
/// calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each field is documented by its type")]
pub struct Header {
    pub bth: Bth,
    pub deth: Option<Deth>,
    pub xrceth: Option<XrcEth>,
    pub feth: Option<Feth>,
    pub reth: Option<Reth>,
    pub atomic: Option<AtomicEth>,
    pub aeth: Option<Aeth>,
    pub atomic_ack: Option<AtomicAckEth>,
    pub immediate: Option<Immediate>,
    pub ieth: Option<Ieth>,
}

impl Header {
    /// A header without extension headers.
    #[inline]
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            deth: None,
            xrceth: None,
            feth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            immediate: None,
            ieth: None,
        }
    }

    /// The extension headers present.
    #[inline]
    pub const fn extensions(&self) -> Extensions {
        Extensions(
            Extensions::DETH.only_if(self.deth.is_some()).0
                | Extensions::XRCETH.only_if(self.xrceth.is_some()).0
                | Extensions::FETH.only_if(self.feth.is_some()).0
                | Extensions::RETH.only_if(self.reth.is_some()).0
                | Extensions::ATOMIC.only_if(self.atomic.is_some()).0
                | Extensions::AETH.only_if(self.aeth.is_some()).0
                | Extensions::ATOMIC_ACK.only_if(self.atomic_ack.is_some()).0
                | Extensions::IMMEDIATE.only_if(self.immediate.is_some()).0
                | Extensions::IETH.only_if(self.ieth.is_some()).0,
        )
    }

    /// Length on the wire, bytes.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        Bth::LEN + self.extensions().len_bytes()
    }

    /// Writes the headers of a packet with `payload_len` bytes of payload to the start of `out` and
    /// returns their length. After them belong the payload, [`pad_len`] zero bytes and the ICRC.
    ///
    /// # Errors
    /// If `out` is too short (at most [`MAX_HEADER_LEN`] bytes are needed), or the extension
    /// headers do not go with the opcode. `out` is unchanged then.
    #[inline]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        if let Opcode::Queue {
            transport,
            operation,
        } = self.bth.opcode
            && !transport.defines(operation)
        {
            return Err(EmitError::UndefinedOpcode {
                transport,
                operation,
            });
        }
        let extensions = self.extensions();
        if extensions != Extensions::of(self.bth.opcode) {
            return Err(EmitError::WrongExtensions {
                opcode: self.bth.opcode.code(),
            });
        }
        let len = Bth::LEN + extensions.len_bytes();
        if out.len() < len {
            return Err(EmitError::BufferTooShort {
                needed: len,
                available: out.len(),
            });
        }
        let mut rest = out;
        put(&mut rest, &self.bth.emit(pad_len(payload_len)));
        if extensions == Extensions::default() {
            return Ok(len);
        }
        if let Some(deth) = &self.deth {
            put(&mut rest, &deth.emit());
        }
        if let Some(xrceth) = &self.xrceth {
            put(&mut rest, &xrceth.emit());
        }
        if let Some(feth) = &self.feth {
            put(&mut rest, &feth.emit());
        }
        if let Some(reth) = &self.reth {
            put(&mut rest, &reth.emit());
        }
        if let Some(atomic) = &self.atomic {
            put(&mut rest, &atomic.emit());
        }
        if let Some(aeth) = &self.aeth {
            put(&mut rest, &aeth.emit());
        }
        if let Some(atomic_ack) = &self.atomic_ack {
            put(&mut rest, &atomic_ack.emit());
        }
        if let Some(immediate) = &self.immediate {
            put(&mut rest, &immediate.emit());
        }
        if let Some(ieth) = &self.ieth {
            put(&mut rest, &ieth.emit());
        }
        Ok(len)
    }

    /// Reads the headers at the start of a UDP payload. Returns them, the pad count, and the bytes
    /// after them.
    ///
    /// # Errors
    /// All of [`ParseError`] but those about the payload.
    #[inline]
    pub(crate) fn parse(raw: &[u8]) -> Result<(Self, usize, &[u8]), ParseError> {
        let mut input = Input {
            rest: raw,
            total_len: raw.len(),
        };
        let (bth, pad) = Bth::parse(input.take(Part::Bth)?)?;
        let mut header = Self::new(bth);
        let extensions = Extensions::of(bth.opcode);
        if extensions == Extensions::default() {
            return Ok((header, pad, input.rest));
        }
        if extensions.contains(Extensions::DETH) {
            header.deth = Some(Deth::parse(input.take(Part::Deth)?));
        }
        if extensions.contains(Extensions::XRCETH) {
            header.xrceth = Some(XrcEth::parse(input.take(Part::XrcEth)?));
        }
        if extensions.contains(Extensions::FETH) {
            header.feth = Some(Feth::parse(input.take(Part::Feth)?));
        }
        if extensions.contains(Extensions::RETH) {
            header.reth = Some(Reth::parse(input.take(Part::Reth)?));
        }
        if extensions.contains(Extensions::ATOMIC) {
            header.atomic = Some(AtomicEth::parse(input.take(Part::AtomicEth)?));
        }
        if extensions.contains(Extensions::AETH) {
            header.aeth = Some(Aeth::parse(input.take(Part::Aeth)?)?);
        }
        if extensions.contains(Extensions::ATOMIC_ACK) {
            header.atomic_ack = Some(AtomicAckEth::parse(input.take(Part::AtomicAckEth)?));
        }
        if extensions.contains(Extensions::IMMEDIATE) {
            header.immediate = Some(Immediate::parse(input.take(Part::Immediate)?));
        }
        if extensions.contains(Extensions::IETH) {
            header.ieth = Some(Ieth::parse(input.take(Part::Ieth)?));
        }
        Ok((header, pad, input.rest))
    }
}

struct Input<'a> {
    rest: &'a [u8],
    total_len: usize,
}

impl<'a> Input<'a> {
    #[inline(always)]
    fn take<const N: usize>(&mut self, part: Part) -> Result<&'a [u8; N], ParseError> {
        let Some((head, rest)) = self.rest.split_first_chunk() else {
            let needed = self.total_len - self.rest.len() + N;
            return Err(ParseError::TooShort {
                part,
                needed,
                available: self.total_len,
            });
        };
        self.rest = rest;
        Ok(head)
    }
}

/// Writes `bytes` to the start of `rest` and moves it past them. The caller has checked that they
/// fit.
#[inline(always)]
fn put<const N: usize>(rest: &mut &mut [u8], bytes: &[u8; N]) {
    if let Some((head, tail)) = core::mem::take(rest).split_first_chunk_mut() {
        *head = *bytes;
        *rest = tail;
    }
}
