//! Atomic requests and responses (RFC 7306, 5.1 and 5.2). Of the operations with masks, those whose
//! masks say "all of it, as one number" are known: they are what verbs programs ask for.

use crate::bytes::{put, u32_at, u64_at};
use crate::error::{ParseError, check_len};

const FETCH_ADD: u8 = 0;
const COMPARE_SWAP: u8 = 2;
const OPERATION_MASK: u32 = 0xf;
/// Every bit takes part.
const ALL_BITS: u64 = u64::MAX;
/// No carry stops anywhere: one addition of 64 bits.
const NO_FIELDS: u64 = 0;
/// A bit of the mask stops the carry out of its position. None goes on from this one anyway.
const LAST_BIT: u64 = 1 << 63;

/// What an atomic does with the 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOperation {
    /// Adds.
    FetchAdd {
        /// What.
        add: u64,
    },
    /// Stores `swap` if the value is `compare`.
    CompareSwap {
        /// What to compare with.
        compare: u64,
        /// What to store.
        swap: u64,
    },
}

/// An atomic request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicRequest {
    /// What to do.
    pub operation: AtomicOperation,
    /// Comes back in the response.
    pub id: u32,
    /// STag of the buffer.
    pub stag: u32,
    /// Offset in it, a multiple of 8.
    pub offset: u64,
}

impl AtomicRequest {
    /// Length on the wire, bytes.
    pub const LEN: usize = 52;

    /// Reads it.
    ///
    /// # Errors
    /// [`ParseError::Length`]; [`ParseError::AtomicOperation`], also for masks that ask for parts.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        check_len(bytes, Self::LEN)?;
        let code = bytes[3] & 0xf;
        let (data, mask) = (u64_at(bytes, 20), u64_at(bytes, 28));
        let (compare, compare_mask) = (u64_at(bytes, 36), u64_at(bytes, 44));
        let operation = match code {
            FETCH_ADD if mask & !LAST_BIT == NO_FIELDS => AtomicOperation::FetchAdd { add: data },
            COMPARE_SWAP if mask == ALL_BITS && compare_mask == ALL_BITS => {
                AtomicOperation::CompareSwap {
                    compare,
                    swap: data,
                }
            }
            _ => return Err(ParseError::AtomicOperation { code }),
        };
        Ok(Self {
            operation,
            id: u32_at(bytes, 4),
            stag: u32_at(bytes, 8),
            offset: u64_at(bytes, 12),
        })
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let (code, data, mask, compare, compare_mask) = match self.operation {
            AtomicOperation::FetchAdd { add } => (FETCH_ADD, add, NO_FIELDS, 0, 0),
            AtomicOperation::CompareSwap { compare, swap } => {
                (COMPARE_SWAP, swap, ALL_BITS, compare, ALL_BITS)
            }
        };
        let mut out = [0; Self::LEN];
        put(
            &mut out,
            0,
            &(u32::from(code) & OPERATION_MASK).to_be_bytes(),
        );
        put(&mut out, 4, &self.id.to_be_bytes());
        put(&mut out, 8, &self.stag.to_be_bytes());
        put(&mut out, 12, &self.offset.to_be_bytes());
        put(&mut out, 20, &data.to_be_bytes());
        put(&mut out, 28, &mask.to_be_bytes());
        put(&mut out, 36, &compare.to_be_bytes());
        put(&mut out, 44, &compare_mask.to_be_bytes());
        out
    }
}

/// An atomic response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicResponse {
    /// That of the request.
    pub id: u32,
    /// The value before.
    pub original: u64,
}

impl AtomicResponse {
    /// Length on the wire, bytes.
    pub const LEN: usize = 12;

    /// Reads it.
    ///
    /// # Errors
    /// [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        check_len(bytes, Self::LEN)?;
        Ok(Self {
            id: u32_at(bytes, 0),
            original: u64_at(bytes, 4),
        })
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, &self.id.to_be_bytes());
        put(&mut out, 4, &self.original.to_be_bytes());
        out
    }
}
