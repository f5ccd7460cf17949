//! What a byte stream needs of memory beyond [`Memory`]: where bytes are to go before they are
//! there, and the CRC of what is in memory.

use urxe_iwarp_wire::Crc32c;
use urxe_proto::{AccessError, Memory, PdId, RemoteAccess, RemoteRange, Sge, Via};

use crate::constants::CHECKSUM_BYTES;

/// A range of memory that was checked for writing when it was handed out. It is not to be kept: a
/// region may be deregistered at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a buffer of a receive request, or of a READ of this host.
    Local {
        /// The protection domain that the element was checked for.
        pd: PdId,
        /// The range.
        sge: Sge,
    },
    /// In a buffer that the peer may write.
    Remote {
        /// The queue pair through which it does.
        via: Via,
        /// The range.
        range: RemoteRange,
    },
}

impl Place {
    /// Bytes of it.
    #[must_use]
    pub const fn len(&self) -> u32 {
        match self {
            Self::Local { sge, .. } => sge.len,
            Self::Remote { range, .. } => range.len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `len` bytes of it.
    pub(crate) fn first(mut self, bytes: u32) -> Self {
        match &mut self {
            Self::Local { sge, .. } => sge.len = sge.len.min(bytes),
            Self::Remote { range, .. } => range.len = range.len.min(bytes),
        }
        self
    }
}

/// The memory that queue pairs over byte streams reach. The defaults copy for a CRC; memory that
/// can be read in place does better.
pub trait StreamMemory: Memory {
    /// Takes `out.len()` bytes, which are `range.len`, of what the peer of `via` may use for
    /// `access`.
    ///
    /// # Errors
    /// Why nothing was taken.
    fn read_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
        out: &mut [u8],
    ) -> Result<(), AccessError>;

    /// Continues a CRC with the bytes of `sge`.
    ///
    /// # Errors
    /// Why not.
    fn checksum_local(&self, pd: PdId, sge: &Sge, crc: &mut Crc32c) -> Result<(), AccessError> {
        let mut buffer = [0; CHECKSUM_BYTES];
        let mut at = 0;
        while at < sge.len {
            let out = part(&mut buffer, sge.len - at);
            self.read_local(pd, sge, at, out)?;
            crc.update(out);
            at += length(out);
        }
        Ok(())
    }

    /// Continues a CRC with the bytes of `range`, which the peer of `via` may use for `access`.
    ///
    /// # Errors
    /// Why not.
    fn checksum_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
        crc: &mut Crc32c,
    ) -> Result<(), AccessError> {
        let mut buffer = [0; CHECKSUM_BYTES];
        let mut at = 0;
        while at < range.len {
            let out = part(&mut buffer, range.len - at);
            let now = RemoteRange {
                va: range.va.wrapping_add(at.into()),
                len: length(out),
                ..range
            };
            self.read_remote(via, now, access, out)?;
            crc.update(out);
            at += now.len;
        }
        Ok(())
    }
}

/// As much of the buffer as there is left to read.
fn part(buffer: &mut [u8], left: u32) -> &mut [u8] {
    let len = buffer.len().min(left as usize);
    &mut buffer[..len]
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
