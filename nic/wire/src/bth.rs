//! The base transport header, which begins every packet.

use core::ops::Range;

use crate::bytes;
use crate::error::ParseError;
use crate::opcode::Opcode;
use crate::pkey::Pkey;
use crate::psn::{PartialPsn, Psn};
use crate::qpn::Qpn;

const OPCODE: usize = 0;
const FLAGS: usize = 1;
const PKEY: Range<usize> = 2..4;
/// FECN, BECN and six reserved bits: the only BTH byte that may change on the way, hence masked in
/// the ICRC.
pub(crate) const CONGESTION: usize = 4;
const DEST_QP: Range<usize> = 5..8;
const ACK_REQUEST: usize = 8;
const PSN: Range<usize> = 9..12;

const SOLICITED: u8 = 0x80;
const MIGRATED: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const VERSION_MASK: u8 = 0x0f;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQUESTED: u8 = 0x80;
/// The next bits of the same byte are reserved by the specification: the first says that the
/// others, and the P_Key behind them, are [`Bth::acknowledges`].
const ACKNOWLEDGES: u8 = 0x40;
const ACKNOWLEDGED_HIGH: u8 = 0x3f;

/// Base transport header (IBTA vol 1, 9.2).
///
/// The pad count is not a field: it follows from the payload's length when the header is written,
/// and is stripped with the padding when a packet is read. The transport version is always 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bth {
    /// What kind of packet it is.
    pub opcode: Opcode,
    /// Whether the receiver of this message wants a solicited completion event.
    pub solicited: bool,
    /// The path migration state (MigReq): true for "migrated". Devices without path migration
    /// ignore it; Linux rxe sends 0.
    pub migrated: bool,
    /// The partition.
    pub pkey: Pkey,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification, set in CNPs.
    pub becn: bool,
    /// The queue pair it is for.
    pub dest_qp: Qpn,
    /// Whether the responder shall acknowledge this packet at once.
    pub ack_request: bool,
    /// Between two urxe, in the last packet of a request: all requests up to this one are done. It
    /// stands for an acknowledgement, which would be a packet before this one, and takes the place
    /// of the P_Key, which is the default one then. Other devices neither send nor understand it.
    pub acknowledges: Option<PartialPsn>,
    /// Its sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Length on the wire, bytes.
    pub const LEN: usize = 12;

    /// A header with all flags clear and the default partition.
    #[inline]
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode,
            solicited: false,
            migrated: false,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp,
            ack_request: false,
            acknowledges: None,
            psn,
        }
    }

    /// The destination QP of raw bytes, without judging the rest: enough to look up the queue pair
    /// that a packet is for.
    #[inline]
    pub fn peek_dest_qp(raw: &[u8; Self::LEN]) -> Qpn {
        Qpn::new(bytes::get(raw, DEST_QP) as u32)
    }

    /// Reads a header and the pad count, 0 to 3.
    ///
    /// # Errors
    /// [`ParseError::Opcode`] or [`ParseError::TransportVersion`].
    #[inline]
    pub fn parse(raw: &[u8; Self::LEN]) -> Result<(Self, usize), ParseError> {
        let flags = raw[FLAGS];
        let version = flags & VERSION_MASK;
        if version != 0 {
            return Err(ParseError::TransportVersion { version });
        }
        let mut pkey = bytes::get(raw, PKEY) as u16;
        let mut acknowledges = None;
        if raw[ACK_REQUEST] & ACKNOWLEDGES != 0 {
            let high = u32::from(raw[ACK_REQUEST] & ACKNOWLEDGED_HIGH);
            acknowledges = Some(PartialPsn::new(high << 16 | u32::from(pkey)));
            pkey = Pkey::DEFAULT.0;
        }
        let bth = Self {
            opcode: Opcode::try_from(raw[OPCODE])?,
            solicited: flags & SOLICITED != 0,
            migrated: flags & MIGRATED != 0,
            pkey: Pkey(pkey),
            fecn: raw[CONGESTION] & FECN != 0,
            becn: raw[CONGESTION] & BECN != 0,
            dest_qp: Qpn::new(bytes::get(raw, DEST_QP) as u32),
            ack_request: raw[ACK_REQUEST] & ACK_REQUESTED != 0,
            acknowledges,
            psn: Psn::new(bytes::get(raw, PSN) as u32),
        };
        Ok((bth, usize::from(flags >> PAD_SHIFT & 3)))
    }

    /// Whether a packet's header differs from that of the one `before` by its sequence number
    /// alone, which is one more.
    #[inline]
    pub fn follows(raw: &[u8; Self::LEN], before: &[u8; Self::LEN]) -> bool {
        let psn = Psn::new(bytes::get(before, PSN) as u32).next();
        raw[..PSN.start] == before[..PSN.start] && bytes::get(raw, PSN) as u32 == psn.get()
    }

    /// Writes another sequence number into the bytes of a header.
    #[inline]
    pub fn put_psn(raw: &mut [u8; Self::LEN], psn: Psn) {
        bytes::put(raw, PSN, u64::from(psn.get()));
    }

    /// The bytes on the wire, with a pad count of 0 to 3. Other reserved bits are zero.
    #[inline]
    pub fn emit(&self, pad: usize) -> [u8; Self::LEN] {
        let mut raw = [0; Self::LEN];
        raw[OPCODE] = self.opcode.code();
        raw[FLAGS] = bit(self.solicited, SOLICITED)
            | bit(self.migrated, MIGRATED)
            | (pad as u8 & 3) << PAD_SHIFT;
        raw[CONGESTION] = bit(self.fecn, FECN) | bit(self.becn, BECN);
        bytes::put(&mut raw, DEST_QP, u64::from(self.dest_qp.get()));
        raw[ACK_REQUEST] = bit(self.ack_request, ACK_REQUESTED);
        let mut pkey = u32::from(self.pkey.0);
        if let Some(acknowledged) = self.acknowledges {
            pkey = acknowledged.get();
            raw[ACK_REQUEST] |= ACKNOWLEDGES | (pkey >> 16) as u8;
        }
        bytes::put(&mut raw, PKEY, u64::from(pkey as u16));
        bytes::put(&mut raw, PSN, u64::from(self.psn.get()));
        raw
    }
}

#[inline]
const fn bit(set: bool, mask: u8) -> u8 {
    if set { mask } else { 0 }
}
