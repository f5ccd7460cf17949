//! A host's registered memory: byte vectors at made-up addresses.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use urxe_proto::{
    AccessError, AtomicOp, BindTarget, LocalAccess, Memory, MemoryWindow, PdId, Placement,
    RemoteAccess, RemoteRange, Sge, Via, WindowBind, WindowType,
};

/// What may be done with a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    clippy::struct_excessive_bools,
    reason = "as the flags of ibv_reg_mr"
)]
pub struct Rights {
    pub local_write: bool,
    pub remote_read: bool,
    pub remote_write: bool,
    pub remote_atomic: bool,
    pub bind_windows: bool,
    pub flush: Placement,
}

impl Rights {
    /// Everything.
    pub const ALL: Self = Self {
        local_write: true,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
        bind_windows: true,
        flush: Placement::all(),
    };
}

/// A registered region.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its protection domain.
    pub pd: PdId,
    /// What may be done with it.
    pub rights: Rights,
    /// Address of its first byte.
    pub va: u64,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl Region {
    fn range(&self, va: u64, len: usize) -> Option<core::ops::Range<usize>> {
        let start = usize::try_from(va.checked_sub(self.va)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.bytes.len()).then_some(start..end)
    }
}

/// Memory of one host. The local and the remote key of a region are the same number.
#[derive(Clone, Debug, Default)]
pub struct VecMemory {
    regions: BTreeMap<u32, Region>,
    windows: BTreeMap<u32, MemoryWindow>,
    next_va: u64,
    next_key: u32,
    expected: Option<(Sge, u32)>,
    flushed: Vec<Flushed>,
}

/// What was flushed: the key, the address and length if not all, and what was guaranteed.
type Flushed = (u32, Option<(u64, u32)>, Placement);

impl VecMemory {
    /// What the last [`Memory::expect_message`] said: where, and how many bytes.
    #[must_use]
    pub const fn expected(&self) -> Option<(Sge, u32)> {
        self.expected
    }

    /// What was flushed, in this order.
    #[must_use]
    pub fn flushed(&self) -> &[Flushed] {
        &self.flushed
    }

    /// Registers `bytes` and returns the key. Addresses of regions do not touch.
    pub fn register(&mut self, pd: PdId, rights: Rights, bytes: Vec<u8>) -> u32 {
        let key = 0x1000 + self.next_key;
        self.next_key += 7;
        let va = 0x10_0000 + self.next_va;
        self.next_va += (bytes.len() as u64).next_multiple_of(4096) + 4096;
        self.regions.insert(
            key,
            Region {
                pd,
                rights,
                va,
                bytes,
            },
        );
        key
    }

    /// Makes a memory window and returns its remote key.
    pub fn alloc_window(&mut self, pd: PdId, kind: WindowType) -> u32 {
        // Far from the keys of regions.
        let rkey = 0x8000_0000 + (u32::try_from(self.windows.len()).unwrap_or(0) << 8);
        let window = MemoryWindow::new(pd, kind, rkey);
        self.windows.insert(MemoryWindow::index_of(rkey), window);
        rkey
    }

    /// Deregisters a region.
    pub fn deregister(&mut self, key: u32) -> Option<Region> {
        self.regions.remove(&key)
    }

    /// A region.
    #[must_use]
    pub fn region(&self, key: u32) -> Option<&Region> {
        self.regions.get(&key)
    }

    /// Its content, empty if there is no such region.
    #[must_use]
    pub fn bytes(&self, key: u32) -> &[u8] {
        self.regions.get(&key).map_or(&[], |region| &region.bytes)
    }

    /// The address `offset` bytes into a region.
    #[must_use]
    pub fn va(&self, key: u32, offset: u64) -> u64 {
        self.regions
            .get(&key)
            .map_or(0, |region| region.va + offset)
    }

    /// All regions by key.
    pub fn regions(&self) -> impl Iterator<Item = (u32, &Region)> {
        self.regions.iter().map(|(key, region)| (*key, region))
    }

    /// The bytes that a peer may read, for the answer to an RDMA READ.
    ///
    /// # Errors
    /// Why it may not.
    pub fn read_remote(&self, via: Via, range: RemoteRange) -> Result<&[u8], AccessError> {
        self.bytes_for(via, range, RemoteAccess::Read)
    }

    /// The bytes that a peer may use for `access`.
    ///
    /// # Errors
    /// Why it may not.
    pub fn bytes_for(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<&[u8], AccessError> {
        let (key, range) = self.remote(via, range, access)?;
        Ok(&self.bytes(key)[range])
    }

    fn lookup(
        &self,
        pd: PdId,
        key: u32,
        va: u64,
        len: usize,
    ) -> Result<(&Region, core::ops::Range<usize>), AccessError> {
        let region = self.regions.get(&key).ok_or(AccessError::UnknownKey)?;
        if region.pd != pd {
            return Err(AccessError::WrongPd);
        }
        Ok((
            region,
            region.range(va, len).ok_or(AccessError::OutOfBounds)?,
        ))
    }

    fn local(
        &self,
        pd: PdId,
        sge: &Sge,
        access: LocalAccess,
    ) -> Result<core::ops::Range<usize>, AccessError> {
        let (region, range) = self.lookup(pd, sge.lkey, sge.addr, sge.len as usize)?;
        if access == LocalAccess::Write && !region.rights.local_write {
            return Err(AccessError::Denied);
        }
        Ok(range)
    }

    fn remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(u32, core::ops::Range<usize>), AccessError> {
        if let Some(window) = self.windows.get(&MemoryWindow::index_of(range.rkey)) {
            let (key, va) = window.translate(via, range, access)?;
            let (_, bytes) = self.lookup(via.pd, key, va, range.len as usize)?;
            return Ok((key, bytes));
        }
        let (region, bytes) = self.lookup(via.pd, range.rkey, range.va, range.len as usize)?;
        let allowed = match access {
            RemoteAccess::Read => region.rights.remote_read,
            RemoteAccess::Write => region.rights.remote_write,
            RemoteAccess::Atomic => region.rights.remote_atomic,
        };
        if allowed {
            Ok((range.rkey, bytes))
        } else {
            Err(AccessError::Denied)
        }
    }

    fn slice_mut(&mut self, key: u32, range: core::ops::Range<usize>) -> &mut [u8] {
        self.regions
            .get_mut(&key)
            .map_or(&mut [], |region| &mut region.bytes[range])
    }
}

/// The part of `whole` that is `len` bytes at `offset`.
fn part(whole: &Sge, offset: u32, len: usize) -> Result<Sge, AccessError> {
    let len = u32::try_from(len).map_err(|_| AccessError::OutOfBounds)?;
    if offset.checked_add(len).is_none_or(|end| end > whole.len) {
        return Err(AccessError::OutOfBounds);
    }
    Ok(Sge {
        addr: whole.addr + u64::from(offset),
        len,
        lkey: whole.lkey,
    })
}

impl Memory for VecMemory {
    fn expect_message(&mut self, _pd: PdId, sge: &Sge, bytes: u32) {
        self.expected = Some((*sge, bytes));
    }

    fn check_local(&self, pd: PdId, sge: &Sge, access: LocalAccess) -> Result<(), AccessError> {
        self.local(pd, sge, access).map(|_| ())
    }

    fn check_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        self.remote(via, range, access).map(|_| ())
    }

    fn write_local(
        &mut self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let piece = part(sge, offset, bytes.len())?;
        let range = self.local(pd, &piece, LocalAccess::Write)?;
        self.slice_mut(sge.lkey, range).copy_from_slice(bytes);
        Ok(())
    }

    fn read_local(
        &self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let piece = part(sge, offset, out.len())?;
        let range = self.local(pd, &piece, LocalAccess::Read)?;
        out.copy_from_slice(&self.bytes(sge.lkey)[range]);
        Ok(())
    }

    fn write_remote(
        &mut self,
        via: Via,
        range: RemoteRange,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        assert_eq!(
            range.len as usize,
            bytes.len(),
            "the contract of Memory::write_remote"
        );
        let (key, place) = self.remote(via, range, RemoteAccess::Write)?;
        self.slice_mut(key, place).copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(&mut self, via: Via, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError> {
        if !va.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        let range = RemoteRange { rkey, va, len: 8 };
        let (key, place) = self.remote(via, range, RemoteAccess::Atomic)?;
        let slot = self.slice_mut(key, place);
        let mut raw = [0; 8];
        raw.copy_from_slice(slot);
        let old = u64::from_ne_bytes(raw);
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        };
        slot.copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }

    fn flush(
        &mut self,
        via: Via,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), AccessError> {
        let region = self.regions.get(&rkey).ok_or(AccessError::UnknownKey)?;
        let (va, len) = range.unwrap_or((region.va, 0));
        let (region, _) = self.lookup(via.pd, rkey, va, len as usize)?;
        if !region.rights.flush.contains(placement) {
            return Err(AccessError::Denied);
        }
        self.flushed.push((rkey, range, placement));
        Ok(())
    }

    fn bind_window(&mut self, via: Via, bind: &WindowBind) -> Result<(), AccessError> {
        let target = self.regions.get(&bind.lkey).map(|region| BindTarget {
            pd: region.pd,
            allows_binding: region.rights.bind_windows,
            is_writable: region.rights.local_write,
            is_zero_based: false,
            base: region.va,
            len: region.bytes.len() as u64,
        });
        let index = MemoryWindow::index_of(bind.rkey);
        let window = self.windows.get_mut(&index);
        window
            .ok_or(AccessError::UnknownKey)?
            .bind(via, bind, target.as_ref())
    }

    fn invalidate(&mut self, via: Via, rkey: u32) -> Result<(), AccessError> {
        let window = self.windows.get_mut(&MemoryWindow::index_of(rkey));
        window.ok_or(AccessError::UnknownKey)?.invalidate(via, rkey)
    }
}
