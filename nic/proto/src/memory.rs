//! How the state machines reach memory: through a trait, with every access checked by key,
//! protection domain, bounds and rights at the moment of the access.

use urxe_wire::Qpn;

use crate::sge::Sge;

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

/// The queue pair through which a peer reaches memory. A window of type 2 is bound to one (IBTA
/// 10.6.7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Via {
    /// Its protection domain; of an XRC target, that of the shared receive queue that the request
    /// names.
    pub pd: PdId,
    /// Its number.
    pub qp: Qpn,
}

bitflags::bitflags! {
    /// What a memory window lets a peer do. Bit values are those of `enum ibv_access_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WindowAccess: u8 {
        /// RDMA WRITE.
        const REMOTE_WRITE = 1 << 1;
        /// RDMA READ.
        const REMOTE_READ = 1 << 2;
        /// Atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Addresses in the window count from zero.
        const ZERO_BASED = 1 << 5;
    }
}

bitflags::bitflags! {
    /// What a FLUSH guarantees of data that was written before. Bit values are those of the wire
    /// and of `enum ibv_placement_type`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Placement: u8 {
        /// It is visible to all of the host.
        const GLOBAL = 1 << 0;
        /// It survives a loss of power.
        const PERSISTENT = 1 << 1;
    }
}

/// How a memory window is to be bound (IBTA 10.6.7.2). A window of type 1 and length 0 is unbound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowBind {
    /// Its next remote key: the upper 24 bits name the window, the program chooses the others anew.
    pub rkey: u32,
    /// Local key of the region that it opens.
    pub lkey: u32,
    /// Address of its first byte, in the region's terms.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// What it lets a peer do.
    pub access: WindowAccess,
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
    /// A memory window is not in the state that the operation needs, or of another kind.
    WindowState,
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

    /// Whether the peer of the queue pair `via` may use `range` for `access`.
    ///
    /// # Errors
    /// Why not.
    fn check_remote(
        &self,
        via: Via,
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
        via: Via,
        range: RemoteRange,
        bytes: &[u8],
    ) -> Result<(), AccessError>;

    /// Places `pieces`, which are as long as each other, one behind the other at `offset` bytes
    /// into `sge`.
    ///
    /// # Errors
    /// Why not all of it was placed; some of it may have been.
    fn write_local_pieces(
        &mut self,
        pd: PdId,
        sge: &Sge,
        offset: u32,
        pieces: &[&[u8]],
    ) -> Result<(), AccessError> {
        let mut at = offset;
        for piece in pieces {
            self.write_local(pd, sge, at, piece)?;
            at += u32::try_from(piece.len()).map_err(|_| AccessError::OutOfBounds)?;
        }
        Ok(())
    }

    /// Places `pieces`, which are as long as each other and `range.len` long together, one behind
    /// the other at `range.va` for the peer.
    ///
    /// # Errors
    /// Why not all of it was placed; some of it may have been.
    fn write_remote_pieces(
        &mut self,
        via: Via,
        range: RemoteRange,
        pieces: &[&[u8]],
    ) -> Result<(), AccessError> {
        let mut va = range.va;
        for piece in pieces {
            let len = u32::try_from(piece.len()).map_err(|_| AccessError::OutOfBounds)?;
            self.write_remote(via, RemoteRange { va, len, ..range }, piece)?;
            va = va.wrapping_add(u64::from(len));
        }
        Ok(())
    }

    /// A message of `bytes` bytes is likely to be placed in `sge` next: a hint, for a device that
    /// can make use of it.
    #[expect(unused_variables, reason = "nothing need be done")]
    fn expect_message(&mut self, pd: PdId, sge: &Sge, bytes: u32) {}

    /// Performs an atomic on the 8 bytes at `va` and returns the old value (host byte order).
    ///
    /// # Errors
    /// Why nothing was done.
    fn atomic(&mut self, via: Via, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, AccessError>;

    /// Stores 8 bytes at `va` for the peer at once, so that no reader sees a part of them (ATOMIC
    /// WRITE).
    ///
    /// # Errors
    /// Why nothing was done.
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
        self.write_remote(via, RemoteRange { rkey, va, len: 8 }, &value)
    }

    /// Sees to it that what the peer wrote to `range` before is where `placement` says; without a
    /// range, all of what the key opens. Memory that does not know of it grants it to no peer.
    ///
    /// # Errors
    /// Why it was not done.
    #[expect(unused_variables, reason = "nobody may")]
    fn flush(
        &mut self,
        via: Via,
        rkey: u32,
        range: Option<(u64, u32)>,
        placement: Placement,
    ) -> Result<(), AccessError> {
        Err(AccessError::Denied)
    }

    /// Binds a memory window, for a work request of the queue pair `via`.
    ///
    /// # Errors
    /// Why the window is as it was.
    fn bind_window(&mut self, via: Via, bind: &WindowBind) -> Result<(), AccessError>;

    /// Invalidates the remote key of a window of type 2 (SEND with invalidate, or a local
    /// invalidation).
    ///
    /// # Errors
    /// Why the key stays valid.
    fn invalidate(&mut self, via: Via, rkey: u32) -> Result<(), AccessError>;
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

/// Calls `each(sge, offset in it, length)` for the pieces that make up `len` bytes of the list,
/// `offset` bytes from its start.
///
/// # Errors
/// [`AccessError::OutOfBounds`] when the list is too short, or what `each` says.
pub fn for_each_piece(
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
