//! What the protocol does to registered memory.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use urxe_proto::{
    AccessError, AtomicOp, BindTarget, LocalAccess, Memory, MemoryWindow, PdId, Placement,
    RemoteAccess, RemoteRange, Sge, Via, WindowBind,
};

use super::MemoryTable;
use super::region::{Access, Backing};
use crate::process::ahead::Ahead;
use crate::process::guard::{guarded, place, place_pieces, take};

impl Memory for MemoryTable {
    fn expect_message(&mut self, pd: PdId, sge: &Sge, bytes: u32) {
        let sge = *sge;
        self.ahead = Some(Ahead { pd, sge, bytes });
    }

    fn check_local(&self, pd: PdId, sge: &Sge, access: LocalAccess) -> Result<(), AccessError> {
        if sge.len == 0 {
            return Ok(());
        }
        self.locate_local(pd, sge, 0, sge.len as usize, access)
            .map(drop)
    }

    fn check_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        self.locate_remote(via, range, access).map(drop)
    }

    fn write_local(
        &mut self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let (region, to) = self.locate_local(pd, sge, offset, bytes.len(), LocalAccess::Write)?;
        if region.backing == Backing::Null {
            return Ok(());
        }
        region.check_present(to, bytes.len() as u64, true)?;
        // SAFETY: the range lies in a region that the program registered for writing.
        unsafe { place(to, bytes) }.or_else(|_| self.protected.place(to, &[bytes]))
    }

    fn read_local(
        &self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let from = self.local(pd, sge, offset, out.len(), LocalAccess::Read)?;
        // SAFETY: the range lies in a region that the program registered.
        unsafe { take(from, out) }
    }

    fn write_remote(
        &mut self,
        via: Via,
        range: RemoteRange,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let (region, to) = self.locate_remote(via, range, RemoteAccess::Write)?;
        if region.backing == Backing::Null {
            return Ok(());
        }
        region.check_present(to, range.len.into(), true)?;
        let bytes = &bytes[..range.len as usize];
        // SAFETY: the range lies in a region that the program registered for remote writing, and
        // `bytes` is as long as the range (checked by the caller's contract, and here by the
        // slice).
        unsafe { place(to, bytes) }.or_else(|_| self.protected.place(to, &[bytes]))
    }

    fn write_local_pieces(
        &mut self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        pieces: &[&[u8]],
    ) -> Result<(), AccessError> {
        let len = pieces.iter().map(|piece| piece.len()).sum();
        let (region, to) = self.locate_local(pd, sge, offset, len, LocalAccess::Write)?;
        if region.backing == Backing::Null {
            return Ok(());
        }
        region.check_present(to, len as u64, true)?;
        // SAFETY: the range lies in a region that the program registered for writing.
        unsafe { place_pieces(to, pieces) }.or_else(|_| self.protected.place(to, pieces))
    }

    fn write_remote_pieces(
        &mut self,
        via: Via,
        range: RemoteRange,
        pieces: &[&[u8]],
    ) -> Result<(), AccessError> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len != range.len as usize {
            return Err(AccessError::OutOfBounds);
        }
        let (region, to) = self.locate_remote(via, range, RemoteAccess::Write)?;
        if region.backing == Backing::Null {
            return Ok(());
        }
        region.check_present(to, range.len.into(), true)?;
        // SAFETY: the range lies in a region that the program registered for remote writing, and
        // the pieces are as long.
        unsafe { place_pieces(to, pieces) }.or_else(|_| self.protected.place(to, pieces))
    }

    fn atomic(&mut self, via: Via, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        if !va.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        let range = RemoteRange { rkey, va, len: 8 };
        let (region, at) = self.locate_remote(via, range, RemoteAccess::Atomic)?;
        if region.backing == Backing::Null {
            return Ok(0);
        }
        region.check_present(at, 8, true)?;
        if !at.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        // SAFETY: eight aligned bytes in a region registered for remote atomics.
        let cell = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        let mut original = 0;
        let run = || {
            original = match op {
                AtomicOp::FetchAdd { add } => cell.fetch_add(add, Ordering::AcqRel),
                AtomicOp::CompareSwap { compare, swap } => cell
                    .compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|old| old),
            };
        };
        // SAFETY: one instruction, and nothing to drop.
        if unsafe { guarded(run) }.is_ok() {
            return Ok(original);
        }
        self.protected.replace(at, |before| match op {
            AtomicOp::FetchAdd { add } => before.wrapping_add(add),
            AtomicOp::CompareSwap { compare, swap } if before == compare => swap,
            AtomicOp::CompareSwap { .. } => before,
        })
    }

    fn write_atomic(
        &mut self,
        via: Via,
        rkey: u32,
        va: u64,
        value: [u8; 8],
    ) -> Result<(), AccessError> {
        if !va.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        let range = RemoteRange { rkey, va, len: 8 };
        let (region, at) = self.locate_remote(via, range, RemoteAccess::Write)?;
        if region.backing == Backing::Null {
            return Ok(());
        }
        region.check_present(at, 8, true)?;
        if !at.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        // SAFETY: eight aligned bytes in a region registered for remote writing.
        let cell = unsafe { AtomicU64::from_ptr(at as *mut u64) };
        // SAFETY: one instruction, and nothing to drop.
        unsafe { guarded(|| cell.store(u64::from_ne_bytes(value), Ordering::Release)) }
            .or_else(|_| self.protected.place(at, &[&value]))
    }

    fn flush(
        &mut self,
        via: Via,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), AccessError> {
        let region = self.region(via.pd, rkey)?;
        if placement.contains(Placement::PERSISTENT)
            || !region.access.contains(Access::FLUSH_GLOBAL)
        {
            return Err(AccessError::Denied);
        }
        if let Some((va, len)) = range {
            region.translate(va, len.into())?;
        }
        // Bytes of earlier packets were written by whichever thread took them in, which then
        // released the lock of this table: threads of the host that see that this was answered see
        // them, too.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn bind_window(&mut self, via: Via, bind: &WindowBind) -> Result<(), AccessError> {
        let target = self.regions.get(&bind.lkey).map(|region| BindTarget {
            pd: region.pd,
            allows_binding: region.access.contains(Access::MW_BIND),
            is_writable: region.access.contains(Access::LOCAL_WRITE),
            is_zero_based: region.access.contains(Access::ZERO_BASED),
            base: region.base,
            len: region.len,
        });
        let window = self.windows.get_mut(&MemoryWindow::index_of(bind.rkey));
        window
            .ok_or(AccessError::UnknownKey)?
            .bind(via, bind, target.as_ref())
    }

    fn invalidate(&mut self, via: Via, rkey: u32) -> Result<(), AccessError> {
        // Of regions only those that a request registers can be invalidated (IBTA 10.6.3): verbs
        // for programs have none.
        let window = self.windows.get_mut(&MemoryWindow::index_of(rkey));
        window.ok_or(AccessError::UnknownKey)?.invalidate(via, rkey)
    }
}
