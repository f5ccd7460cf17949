//! What byte streams need of registered memory besides: bytes that a peer reads, and CRCs of what
//! is there, taken in place.

use urxe_iwarp::StreamMemory;
use urxe_iwarp_wire::Crc32c;
use urxe_proto::{AccessError, LocalAccess, PdId, RemoteAccess, RemoteRange, Sge, Via};

use super::MemoryTable;
use crate::process::guard::{guarded, take};

impl StreamMemory for MemoryTable {
    fn read_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        if out.len() != range.len as usize {
            return Err(AccessError::OutOfBounds);
        }
        let from = self.remote(via, range, access)?;
        // SAFETY: the range lies in a region that the program registered, and `out` is as long.
        unsafe { take(from, out) }
    }

    fn checksum_local(&self, pd: PdId, sge: &Sge, crc: &mut Crc32c) -> Result<(), AccessError> {
        let len = sge.len as usize;
        if len == 0 {
            return Ok(());
        }
        let from = self.local(pd, sge, 0, len, LocalAccess::Read)?;
        // SAFETY: the range lies in a region that the program registered.
        unsafe { checksum(from, len, crc) }
    }

    fn checksum_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
        crc: &mut Crc32c,
    ) -> Result<(), AccessError> {
        let len = range.len as usize;
        if len == 0 {
            return Ok(());
        }
        let from = self.remote(via, range, access)?;
        // SAFETY: as above.
        unsafe { checksum(from, len, crc) }
    }
}

/// Continues a CRC with bytes at an address of the process, which may be gone. An optimised CRC of
/// bytes that change meanwhile is some CRC, and no more.
///
/// # Safety
/// The memory must be of a program that expects to be read.
unsafe fn checksum(from: u64, len: usize, crc: &mut Crc32c) -> Result<(), AccessError> {
    let mut next = *crc;
    // SAFETY: the caller's promise. The CRC takes no lock once it has chosen its instructions
    // ([`prepare`]), and has nothing to drop.
    unsafe { guarded(|| next.update(std::slice::from_raw_parts(from as *const u8, len)))? };
    *crc = next;
    Ok(())
}

/// Lets the CRC find out which instructions the processor has, before it is taken of memory that
/// may be gone.
pub(crate) fn prepare() {
    for len in [1, 64, 4096] {
        let mut crc = Crc32c::new();
        crc.update(&[0; 4096][..len]);
        std::hint::black_box(crc.finish());
    }
}
