//! What a TERMINATE message says was wrong, as a table (RFC 5040, 4.8; RFC 5041, 7.2; RFC 5044, 8;
//! RFC 6581, 8). The codes of all layers are in IANA's registry, by RFC 6580:
//! <https://www.iana.org/assignments/rddp/>.

/// The layer that found it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Layer {
    /// RDMAP.
    Rdmap = 0,
    /// DDP.
    Ddp = 1,
    /// MPA ("LLP").
    Mpa = 2,
}

/// What was wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are those of the RFCs")]
pub enum Fault {
    RdmapCatastrophic,
    ProtectionInvalidStag,
    ProtectionBounds,
    ProtectionAccess,
    ProtectionNotAssociated,
    ProtectionOffsetWrap,
    ProtectionCannotInvalidate,
    ProtectionUnspecified,
    OperationVersion,
    OperationUnexpectedOpcode,
    OperationCatastrophicStream,
    OperationCatastrophicGlobal,
    OperationCannotInvalidate,
    OperationUnspecified,
    DdpCatastrophic,
    TaggedInvalidStag,
    TaggedBounds,
    TaggedNotAssociated,
    TaggedOffsetWrap,
    TaggedVersion,
    UntaggedQueue,
    UntaggedNoBuffer,
    UntaggedMsnRange,
    UntaggedOffset,
    UntaggedTooLong,
    UntaggedVersion,
    MpaConnectionLost,
    MpaCrc,
    MpaMarker,
    MpaSetupFrame,
    MpaCatastrophic,
    MpaInsufficientIrd,
    MpaNoMatchingRtr,
    /// None that is defined: layer, type and code as they are on the wire.
    Unknown {
        layer: u8,
        kind: u8,
        code: u8,
    },
}

/// Fault, layer, error type, error code.
type Row = (Fault, u8, u8, u8);

const TABLE: [Row; 33] = [
    (Fault::RdmapCatastrophic, 0, 0, 0x00),
    (Fault::ProtectionInvalidStag, 0, 1, 0x00),
    (Fault::ProtectionBounds, 0, 1, 0x01),
    (Fault::ProtectionAccess, 0, 1, 0x02),
    (Fault::ProtectionNotAssociated, 0, 1, 0x03),
    (Fault::ProtectionOffsetWrap, 0, 1, 0x04),
    (Fault::ProtectionCannotInvalidate, 0, 1, 0x09),
    (Fault::ProtectionUnspecified, 0, 1, 0xff),
    (Fault::OperationVersion, 0, 2, 0x05),
    (Fault::OperationUnexpectedOpcode, 0, 2, 0x06),
    (Fault::OperationCatastrophicStream, 0, 2, 0x07),
    (Fault::OperationCatastrophicGlobal, 0, 2, 0x08),
    (Fault::OperationCannotInvalidate, 0, 2, 0x09),
    (Fault::OperationUnspecified, 0, 2, 0xff),
    (Fault::DdpCatastrophic, 1, 0, 0x00),
    (Fault::TaggedInvalidStag, 1, 1, 0x00),
    (Fault::TaggedBounds, 1, 1, 0x01),
    (Fault::TaggedNotAssociated, 1, 1, 0x02),
    (Fault::TaggedOffsetWrap, 1, 1, 0x03),
    (Fault::TaggedVersion, 1, 1, 0x04),
    (Fault::UntaggedQueue, 1, 2, 0x01),
    (Fault::UntaggedNoBuffer, 1, 2, 0x02),
    (Fault::UntaggedMsnRange, 1, 2, 0x03),
    (Fault::UntaggedOffset, 1, 2, 0x04),
    (Fault::UntaggedTooLong, 1, 2, 0x05),
    (Fault::UntaggedVersion, 1, 2, 0x06),
    (Fault::MpaConnectionLost, 2, 0, 0x01),
    (Fault::MpaCrc, 2, 0, 0x02),
    (Fault::MpaMarker, 2, 0, 0x03),
    (Fault::MpaSetupFrame, 2, 0, 0x04),
    (Fault::MpaCatastrophic, 2, 0, 0x05),
    (Fault::MpaInsufficientIrd, 2, 0, 0x06),
    (Fault::MpaNoMatchingRtr, 2, 0, 0x07),
];

impl Fault {
    /// All that are defined.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(fault, ..)| *fault)
    }

    /// What layer, type and code stand for.
    #[must_use]
    pub fn from_wire(layer: u8, kind: u8, code: u8) -> Self {
        let row = TABLE
            .iter()
            .find(|row| (row.1, row.2, row.3) == (layer, kind, code));
        row.map_or(Self::Unknown { layer, kind, code }, |row| row.0)
    }

    /// Layer, type (below 16 both) and code.
    #[must_use]
    pub fn to_wire(self) -> (u8, u8, u8) {
        if let Self::Unknown { layer, kind, code } = self {
            return (layer & 0xf, kind & 0xf, code);
        }
        let row = TABLE.iter().find(|row| row.0 == self);
        row.map_or((0, 0, 0), |row| (row.1, row.2, row.3))
    }

    /// The layer that found it, if it is one.
    #[must_use]
    pub fn layer(self) -> Option<Layer> {
        match self.to_wire().0 {
            0 => Some(Layer::Rdmap),
            1 => Some(Layer::Ddp),
            2 => Some(Layer::Mpa),
            _ => None,
        }
    }

    /// Whether the receiver of the TERMINATE reached for memory that it may not.
    #[must_use]
    pub fn is_about_access(self) -> bool {
        matches!(self.to_wire(), (0 | 1, 1, _))
    }
}
