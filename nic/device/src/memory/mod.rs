//! Memory regions: which of the process's memory a key opens, for which queue pairs and for what.
//! Everything that reads or writes a program's memory does it here, after a check of key,
//! protection domain, bounds and rights.

mod access;
pub(crate) mod checksums;
pub(crate) mod dm;
mod mapped;
pub(crate) mod mapping;
mod protected;
mod region;

use rustc_hash::FxHashMap;
use urxe_proto::{
    AccessError, LocalAccess, MemoryWindow, PdId, RemoteAccess, RemoteRange, Sge, Via, WindowType,
};

use urxe_wire::Qpn;

use crate::process::ahead::{self, Ahead};
use crate::process::error::Error;
use crate::process::odp;
use region::Backing;

pub(crate) use protected::{Offer, Protected};
pub(crate) use region::Region;
pub use region::{Access, MemoryRegion, Pd};

/// Memory windows of an opened device, at most.
pub(crate) const WINDOWS_MAX: usize = 1 << 16;

/// All regions of an opened device.
#[derive(Debug, Default)]
pub(crate) struct MemoryTable {
    regions: FxHashMap<u32, Region>,
    /// Memory windows, by what names them in their keys.
    windows: FxHashMap<u32, MemoryWindow>,
    next_pd: u32,
    regions_per_pd: FxHashMap<PdId, u32>,
    /// Where the next message is expected.
    ahead: Option<Ahead>,
    /// What of it the program has protected.
    pub(crate) protected: Protected,
}

impl MemoryTable {
    /// Brings the memory that the next message is expected in into the cache. There is nothing else
    /// to do.
    #[inline]
    pub(crate) fn look_ahead(&mut self) {
        if let Some(Ahead { pd, sge, bytes }) = self.ahead.take() {
            let bytes = bytes.min(sge.len);
            if let Ok((_, at)) = self.locate_local(pd, &sge, 0, bytes as usize, LocalAccess::Write)
            {
                ahead::expect_message(at, bytes);
            }
        }
    }

    pub(crate) fn alloc_pd(&mut self) -> Pd {
        self.next_pd += 1;
        let pd = Pd(self.next_pd);
        self.regions_per_pd.insert(pd.id(), 0);
        pd
    }

    pub(crate) fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        match self.regions_per_pd.get(&pd.id()) {
            None => Err(Error::Gone("the protection domain")),
            Some(0) => {
                self.regions_per_pd.remove(&pd.id());
                Ok(())
            }
            Some(_) => Err(Error::Busy("the protection domain")),
        }
    }

    /// Counts an object that keeps the protection domain in use.
    pub(crate) fn use_pd(&mut self, pd: Pd) -> Result<(), Error> {
        let users = self.regions_per_pd.get_mut(&pd.id());
        *users.ok_or(Error::Gone("the protection domain"))? += 1;
        Ok(())
    }

    pub(crate) fn release_pd(&mut self, pd: PdId) {
        if let Some(users) = self.regions_per_pd.get_mut(&pd) {
            *users = users.saturating_sub(1);
        }
    }

    /// Makes the region `lkey` another one, with the same keys.
    pub(crate) fn register_again(&mut self, lkey: u32, new: Region) -> Result<(), Error> {
        let pd = Pd(new.pd.0);
        self.check_unbound(lkey)?;
        self.use_pd(pd)?;
        match self.regions.get_mut(&lkey) {
            Some(region) => {
                let old = std::mem::replace(region, new);
                self.release_pd(old.pd);
                Ok(())
            }
            None => {
                self.release_pd(pd.id());
                Err(Error::Gone("the memory region"))
            }
        }
    }

    /// A region at all addresses that reads as zeros and forgets what is written.
    pub(crate) fn register_null(&mut self, pd: Pd) -> Result<MemoryRegion, Error> {
        self.register(Region {
            backing: Backing::Null,
            pd: pd.id(),
            host: 0,
            base: 0,
            len: u64::MAX,
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
        })
    }

    pub(crate) fn register(&mut self, region: Region) -> Result<MemoryRegion, Error> {
        let key = self.fresh_key()?;
        self.protected.forget_refused();
        self.use_pd(Pd(region.pd.0))?;
        self.regions.insert(key, region);
        Ok(MemoryRegion {
            lkey: key,
            rkey: key,
        })
    }

    /// Prepares the memory behind `sge` for access (`ibv_advise_mr`). With `is_wanted_now` it is
    /// there when this returns.
    pub(crate) fn prefetch(
        &self,
        pd: Pd,
        sge: &Sge,
        writes: bool,
        is_wanted_now: bool,
    ) -> Result<(), Error> {
        let (region, at) = self.locate_local(
            pd.id(),
            sge,
            0,
            sge.len as usize,
            if writes {
                LocalAccess::Write
            } else {
                LocalAccess::Read
            },
        )?;
        match region.backing {
            // Only on-demand regions may be prefetched (`man ibv_advise_mr`).
            Backing::Mapped | Backing::Null => Err(Error::Invalid(
                "only on-demand regions may be prefetched".into(),
            )),
            Backing::OnDemand if !is_wanted_now || odp::fault_in(at, sge.len.into(), writes) => {
                Ok(())
            }
            Backing::OnDemand => Err(AccessError::Fault.into()),
        }
    }

    /// Keys are random: a key that can be guessed opens memory to every program that can reach the
    /// port (ReDMArk, USENIX Security 2021).
    fn fresh_key(&self) -> Result<u32, Error> {
        loop {
            let key = crate::process::random::random_u32()?;
            // Zero means "no key" to programs.
            let is_window = self.windows.contains_key(&MemoryWindow::index_of(key));
            if key != 0 && !is_window && !self.regions.contains_key(&key) {
                return Ok(key);
            }
        }
    }

    pub(crate) fn alloc_window(&mut self, pd: Pd, kind: WindowType) -> Result<u32, Error> {
        if self.windows.len() >= WINDOWS_MAX {
            return Err(Error::Exhausted("memory windows"));
        }
        self.use_pd(pd)?;
        loop {
            let rkey = self.fresh_key()?;
            let index = MemoryWindow::index_of(rkey);
            // No region may have a key that the window's can become.
            let is_taken = |key: &u32| MemoryWindow::index_of(*key) == index;
            if index != 0 && !self.regions.keys().any(is_taken) {
                let window = MemoryWindow::new(pd.id(), kind, rkey);
                self.windows.insert(index, window);
                return Ok(rkey);
            }
        }
    }

    pub(crate) fn dealloc_window(&mut self, rkey: u32) -> Result<(), Error> {
        let window = self.windows.remove(&MemoryWindow::index_of(rkey));
        let window = window.ok_or(Error::Gone("the memory window"))?;
        self.release_pd(window.pd());
        Ok(())
    }

    /// Unbinds what was bound to a queue pair that is destroyed.
    pub(crate) fn forget_qp(&mut self, qp: Qpn) {
        for window in self.windows.values_mut() {
            window.forget_qp(qp);
        }
    }

    pub(crate) fn deregister(&mut self, lkey: u32) -> Result<(), Error> {
        self.check_unbound(lkey)?;
        let region = self
            .regions
            .remove(&lkey)
            .ok_or(Error::Gone("the memory region"))?;
        self.release_pd(region.pd);
        Ok(())
    }

    /// Refuses while windows are bound to the region.
    fn check_unbound(&self, lkey: u32) -> Result<(), Error> {
        let is_bound = |window: &MemoryWindow| window.region() == Some(lkey);
        if self.windows.values().any(is_bound) {
            return Err(Error::Busy("the memory region"));
        }
        Ok(())
    }

    fn region(&self, pd: PdId, key: u32) -> Result<&Region, AccessError> {
        let region = self.regions.get(&key).ok_or(AccessError::UnknownKey)?;
        if region.pd == pd {
            Ok(region)
        } else {
            Err(AccessError::WrongPd)
        }
    }

    /// The region and the process's address of `len` bytes at `offset` into `sge`.
    fn locate_local(
        &self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        len: usize,
        access: LocalAccess,
    ) -> Result<(&Region, u64), AccessError> {
        let region = self.region(pd, sge.lkey)?;
        if access == LocalAccess::Write && !region.access.contains(Access::LOCAL_WRITE) {
            return Err(AccessError::Denied);
        }
        if u64::from(offset) + len as u64 > u64::from(sge.len) {
            return Err(AccessError::OutOfBounds);
        }
        let va = sge
            .addr
            .checked_add(u64::from(offset))
            .ok_or(AccessError::OutOfBounds)?;
        Ok((region, region.translate(va, len as u64)?))
    }

    /// The process's address of `len` bytes at `offset` into `sge`, for an access that happens now.
    pub(crate) fn local(
        &self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        len: usize,
        access: LocalAccess,
    ) -> Result<u64, AccessError> {
        let (region, at) = self.locate_local(pd, sge, offset, len, access)?;
        region.check_present(at, len as u64, access == LocalAccess::Write)?;
        Ok(at)
    }

    /// The region and the process's address of a range that a peer names.
    fn locate_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(&Region, u64), AccessError> {
        let Some(region) = self.regions.get(&range.rkey) else {
            return self.through_window(via, range, access);
        };
        if region.pd != via.pd {
            return Err(AccessError::WrongPd);
        }
        let right = match access {
            RemoteAccess::Read => Access::REMOTE_READ,
            RemoteAccess::Write => Access::REMOTE_WRITE,
            RemoteAccess::Atomic => Access::REMOTE_ATOMIC,
        };
        if !region.access.contains(right) {
            return Err(AccessError::Denied);
        }
        let at = region.translate(range.va, u64::from(range.len))?;
        Ok((region, at))
    }

    /// The process's address of a range that a peer names, for an access that happens now.
    pub(crate) fn remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<u64, AccessError> {
        let (region, at) = self.locate_remote(via, range, access)?;
        region.check_present(at, range.len.into(), access != RemoteAccess::Read)?;
        Ok(at)
    }

    #[cold]
    fn through_window(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(&Region, u64), AccessError> {
        let window = self.windows.get(&MemoryWindow::index_of(range.rkey));
        let (lkey, va) = window
            .ok_or(AccessError::UnknownKey)?
            .translate(via, range, access)?;
        let region = self.region(via.pd, lkey)?;
        Ok((region, region.translate(va, u64::from(range.len))?))
    }
}

#[cfg(test)]
mod tests;
