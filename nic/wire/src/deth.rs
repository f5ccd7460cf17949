//! The datagram extended header: the queue pair that sent a datagram, and the key to its receiver's
//! queue.

use core::ops::Range;

use crate::bytes;
use crate::qpn::Qpn;

const QKEY: Range<usize> = 0..4;
const SRC_QP: Range<usize> = 5..8;

/// Datagram extended transport header (IBTA vol 1, 9.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deth {
    /// Must equal the Q_Key of the receiving QP.
    pub qkey: u32,
    /// The sending QP.
    pub src_qp: Qpn,
}

impl Deth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 8;

    /// Reads a header.
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Self {
        Self {
            qkey: bytes::get(raw, QKEY) as u32,
            src_qp: Qpn::new(bytes::get(raw, SRC_QP) as u32),
        }
    }

    /// The bytes on the wire.
    #[inline]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        bytes::put(&mut raw, QKEY, u64::from(self.qkey));
        bytes::put(&mut raw, SRC_QP, u64::from(self.src_qp.get()));
        raw
    }
}
