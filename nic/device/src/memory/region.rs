//! A region: which of the process's memory a key opens, for which queue pairs and for what.

use urxe_proto::{AccessError, PdId};

use super::mapped::{self, Use};
use crate::process::error::Error;
use crate::process::odp;

bitflags::bitflags! {
    /// Rights to a region. Bit values are those of `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// This host's queue pairs may place data in it.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may RDMA WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may RDMA READ.
        const REMOTE_READ = 1 << 2;
        /// Peers may use atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Addresses in the region count from zero.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging: the memory need not be there before it is accessed. No region of ours
        /// is pinned; one without this right promises, though, to stay mapped, and is not asked
        /// each time.
        const ON_DEMAND = 1 << 6;
        /// A hint for the bus; without meaning here.
        const HUGE_PAGES = 1 << 7;
        /// Peers may FLUSH what they wrote, so that all of the host sees it. That it survives a
        /// loss of power (`IBV_ACCESS_FLUSH_PERSISTENT`) no memory of a process promises.
        const FLUSH_GLOBAL = 1 << 8;
        /// Optional flags (`IBV_ACCESS_OPTIONAL_RANGE`), which a device may ignore.
        const OPTIONAL = 0x3ff0_0000;
    }
}

impl Access {
    /// What memory is pinned for: for writing if any of these is asked for (`ib_access_writable` of
    /// Linux).
    const fn used_for(self) -> Use {
        let writing = Self::LOCAL_WRITE
            .union(Self::REMOTE_WRITE)
            .union(Self::REMOTE_ATOMIC)
            .union(Self::MW_BIND);
        if self.intersects(writing) {
            Use::Writes
        } else {
            Use::Reads
        }
    }
}

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pd(pub(crate) u32);

impl Pd {
    pub(crate) const fn id(self) -> PdId {
        PdId(self.0)
    }
}

/// A registered region, as the program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Key for the program's own work requests.
    pub lkey: u32,
    /// Key for peers.
    pub rkey: u32,
}

/// What is behind a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// Memory that the program promised to keep mapped; an access finds out if it did not
    /// (`crate::process::guard`).
    Mapped,
    /// Memory that may be missing when it is accessed, and is brought in then.
    OnDemand,
    /// Nothing: reads as zeros, what is written is dropped.
    Null,
}

/// A region, as the device sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(super) backing: Backing,
    pub(super) pd: PdId,
    /// Address in the process.
    pub(super) host: u64,
    /// Address by which work requests and peers name the first byte.
    pub(super) base: u64,
    pub(super) len: u64,
    pub(super) access: Access,
}

impl Region {
    /// A region of the process's memory, which has to be there unless it is on-demand. Nothing is
    /// touched or locked.
    ///
    /// # Errors
    /// [`Error::Invalid`], or [`AccessError::Fault`] for memory that is not mapped with the rights
    /// that are asked for.
    pub(crate) fn new(
        pd: Pd,
        host: u64,
        len: u64,
        base: u64,
        access: Access,
    ) -> Result<Self, Error> {
        let region = Self::of_device(pd, host, len, base, access)?;
        if region.backing == Backing::Mapped {
            check_memory(host, host + len, access)?;
        }
        Ok(region)
    }

    /// The same for memory that the device itself has mapped: it is there, and may be no bytes of
    /// it.
    pub(crate) fn of_device(
        pd: Pd,
        host: u64,
        len: u64,
        base: u64,
        access: Access,
    ) -> Result<Self, Error> {
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(Error::Invalid(
                "remote write and remote atomic access need local write access".into(),
            ));
        }
        if host.checked_add(len).is_none() || base.checked_add(len).is_none() {
            return Err(Error::Invalid(format!(
                "{len} bytes at {host:#x} wrap around"
            )));
        }
        let backing = if access.contains(Access::ON_DEMAND) {
            Backing::OnDemand
        } else {
            Backing::Mapped
        };
        Ok(Self {
            backing,
            pd: pd.id(),
            host,
            base,
            len,
            access,
        })
    }

    /// The process's address of `len` bytes at `va`.
    pub(super) fn translate(&self, va: u64, len: u64) -> Result<u64, AccessError> {
        let offset = va.checked_sub(self.base).ok_or(AccessError::OutOfBounds)?;
        let end = offset.checked_add(len).ok_or(AccessError::OutOfBounds)?;
        if end > self.len {
            return Err(AccessError::OutOfBounds);
        }
        match self.backing {
            Backing::Mapped | Backing::OnDemand => Ok(self.host + offset),
            Backing::Null => odp::zeros(len),
        }
    }

    /// Whether `len` bytes at the process's address `at` can be accessed now.
    pub(super) fn check_present(&self, at: u64, len: u64, writes: bool) -> Result<(), AccessError> {
        if self.backing == Backing::OnDemand && !odp::fault_in(at, len, writes) {
            return Err(AccessError::Fault);
        }
        Ok(())
    }
}

/// Refuses what `ib_umem_get` of Linux refuses: memory is a number of whole pages, those that have
/// a part of it, and all of them have to be mapped. No bytes have no page, unless they lie amid
/// one.
fn check_memory(host: u64, end: u64, access: Access) -> Result<(), Error> {
    let page = odp::page_bytes();
    if end.checked_next_multiple_of(page).is_none() || host == end && host.is_multiple_of(page) {
        return Err(Error::Invalid(format!(
            "there are no pages from {host:#x} to {end:#x}"
        )));
    }
    if mapped::is_accessible(host..end.max(host + 1), access.used_for()) {
        Ok(())
    } else {
        Err(AccessError::Fault.into())
    }
}
