//! The transport services.

use crate::operation::Operation;

/// The transport service of a packet: the high three bits of its opcode. Reliable datagram (0x40)
/// has no implementation anywhere and is treated as reserved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0x00,
    /// Unreliable connection.
    Uc = 0x20,
    /// Unreliable datagram.
    Ud = 0x60,
    /// Extended reliable connection (IBTA annex A14).
    Xrc = 0xa0,
}

impl Transport {
    /// Every transport service.
    pub const ALL: [Self; 4] = [Self::Rc, Self::Uc, Self::Ud, Self::Xrc];

    /// Whether the specification defines `operation` for this service (IBTA vol 1, table 38 and
    /// annex A14).
    #[inline]
    pub const fn defines(self, operation: Operation) -> bool {
        use Operation::{AtomicWrite, Flush, SendOnly, SendOnlyImm};
        match self {
            Self::Rc => true,
            // Linux has the two newest for reliable connections alone.
            Self::Xrc => !matches!(operation, Flush | AtomicWrite),
            Self::Uc => {
                (operation.is_send() || operation.is_write()) && !operation.has_invalidate()
            }
            Self::Ud => matches!(operation, SendOnly | SendOnlyImm),
        }
    }
}
