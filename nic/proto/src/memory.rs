//! How the state machines reach memory: through a trait, with every access checked by key,
//! protection domain, bounds and rights at the moment of the access.

use crate::verbs::Sge;

/// Identifies a protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// What a local scatter/gather element is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalAccess {
    /// Data is taken from it.
    Read,
    /// Data is placed in it.
    Write,
}

/// What a peer wants to do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// An atomic.
    Atomic,
}

/// A range that a peer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRange {
    /// Remote key presented by the peer.
    pub rkey: u32,
    /// Virtual address of the first byte.
    pub va: u64,
    /// Length in bytes.
    pub len: u32,
}

/// An atomic operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Store `swap` if the value equals `compare`.
    CompareSwap {
        /// Value to compare with.
        compare: u64,
        /// Value to store.
        swap: u64,
    },
    /// Add, wrapping.
    FetchAdd {
        /// Value to add.
        add: u64,
    },
}

/// Why an access was refused. No memory was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// No region has this key.
    UnknownKey,
    /// The region belongs to another protection domain.
    WrongPd,
    /// The range is not inside the region.
    OutOfBounds,
    /// The region does not grant the right.
    Denied,
    /// An atomic's address is not a multiple of 8.
    Misaligned,
    /// The memory behind the region is gone (unmapped by the program).
    Fault,
}

/// The memory that queue pairs of one device reach.
///
/// Every method validates key, protection domain, bounds and rights by itself: a region may be
/// deregistered between any two packets.
pub trait Memory {
    /// Whether `sge` may be used for `access` by a queue pair of `pd`.
    ///
    /// # Errors
    /// Why not.
    fn check_local(&self, pd: PdId, sge: &Sge, access: LocalAccess) -> Result<(), AccessError>;

    /// Whether the peer of a queue pair of `pd` may use `range` for `access`.
    ///
    /// # Errors
    /// Why not.
    fn check_remote(
        &self,
        pd: PdId,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(), AccessError>;

    /// Places `bytes` at `offset` bytes into `sge`.
    ///
    /// # Errors
    /// Why nothing was placed.
    fn write_local(
        &mut self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError>;

    /// Takes `out.len()` bytes from `offset` bytes into `sge`.
    ///
    /// # Errors
    /// Why nothing was taken.
    fn read_local(
        &self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        out: &mut [u8],
    ) -> Result<(), AccessError>;

    /// Places `bytes` at `range.va` for the peer (RDMA WRITE); `bytes` is `range.len` long.
    ///
    /// # Errors
    /// Why nothing was placed.
    fn write_remote(
        &mut self,
        pd: PdId,
        range: RemoteRange,
        bytes: &[u8],
    ) -> Result<(), AccessError>;

    /// Performs an atomic on the 8 bytes at `va` and returns the old value (host byte order).
    ///
    /// # Errors
    /// Why nothing was done.
    fn atomic(&mut self, pd: PdId, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError>;

    /// Invalidates a remote key (SEND with invalidate).
    ///
    /// # Errors
    /// Why the key stays valid.
    fn invalidate(&mut self, pd: PdId, rkey: u32) -> Result<(), AccessError>;
}

/// Places `bytes` into a scatter list, `offset` bytes from its start.
///
/// # Errors
/// [`AccessError::OutOfBounds`] when the list is too short, or what the memory says.
pub fn scatter<M: Memory>(
    memory: &mut M,
    pd: PdId,
    sges: &[Sge],
    offset: u32,
    bytes: &[u8],
) -> Result<(), AccessError> {
    let mut rest = bytes;
    for_each_piece(sges, offset, bytes.len(), |sge, at, len| {
        let (now, later) = rest.split_at(len);
        rest = later;
        memory.write_local(pd, sge, at, now)
    })
}

/// Takes `out.len()` bytes from a gather list, `offset` bytes from its start.
///
/// # Errors
/// [`AccessError::OutOfBounds`] when the list is too short, or what the memory says.
pub fn gather<M: Memory>(
    memory: &M,
    pd: PdId,
    sges: &[Sge],
    offset: u32,
    out: &mut [u8],
) -> Result<(), AccessError> {
    let mut done = 0;
    for_each_piece(sges, offset, out.len(), |sge, at, len| {
        let piece = &mut out[done..done + len];
        done += len;
        memory.read_local(pd, sge, at, piece)
    })
}

/// Calls `each(sge, offset in it, length)` for the pieces that make up `len` bytes of the list.
fn for_each_piece(
    sges: &[Sge],
    offset: u32,
    len: usize,
    mut each: impl FnMut(&Sge, u32, usize) -> Result<(), AccessError>,
) -> Result<(), AccessError> {
    let mut skip = offset;
    let mut left = len;
    for sge in sges {
        if left == 0 {
            break;
        }
        if skip >= sge.len {
            skip -= sge.len;
            continue;
        }
        let piece = left.min((sge.len - skip) as usize);
        each(sge, skip, piece)?;
        left -= piece;
        skip = 0;
    }
    if left == 0 {
        Ok(())
    } else {
        Err(AccessError::OutOfBounds)
    }
}
