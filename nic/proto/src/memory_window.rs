//! Memory windows: a remote key of its own for a part of a region (IBTA 10.6.7).
//!
//! Type 1 is bound to a protection domain. Type 2 here is type 2B: its key works only through the
//! queue pair that bound it, while that is of the window's protection domain, and can be
//! invalidated through it.

use urxe_wire::Qpn;

use crate::memory::{AccessError, PdId, RemoteAccess, RemoteRange, Via, WindowAccess, WindowBind};

/// The upper 24 bits of a remote key name the window, the others are the program's to choose.
const KEY_BITS: u32 = 8;

/// The type of a window, as `ibv_mw_type` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Bound to a protection domain.
    Type1,
    /// Bound to a queue pair (2B).
    Type2,
}

/// What a window opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bound {
    qp: Qpn,
    /// Local key of the region.
    lkey: u32,
    addr: u64,
    len: u64,
    access: WindowAccess,
}

/// What a binding needs to know of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindTarget {
    /// Its protection domain.
    pub pd: PdId,
    /// Whether windows may be bound to it.
    pub allows_binding: bool,
    /// Whether this host may write to it.
    pub is_writable: bool,
    /// Whether its addresses count from zero.
    pub is_zero_based: bool,
    /// Address of its first byte.
    pub base: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// A memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryWindow {
    pd: PdId,
    kind: WindowType,
    rkey: u32,
    bound: Option<Bound>,
}

impl MemoryWindow {
    /// A window that opens nothing yet.
    #[must_use]
    pub const fn new(pd: PdId, kind: WindowType, rkey: u32) -> Self {
        Self {
            pd,
            kind,
            rkey,
            bound: None,
        }
    }

    /// What names the window among the keys.
    #[must_use]
    pub const fn index_of(rkey: u32) -> u32 {
        rkey >> KEY_BITS
    }

    /// Its protection domain.
    #[must_use]
    pub const fn pd(&self) -> PdId {
        self.pd
    }

    /// Its remote key.
    #[must_use]
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Local key of the region that it is bound to.
    #[must_use]
    pub fn region(&self) -> Option<u32> {
        self.bound.map(|bound| bound.lkey)
    }

    /// Binds the window to `target`, the region that `bind` names; `None` if there is none.
    ///
    /// # Errors
    /// Why it is as it was.
    pub fn bind(
        &mut self,
        via: Via,
        bind: &WindowBind,
        target: Option<&BindTarget>,
    ) -> Result<(), AccessError> {
        if via.pd != self.pd {
            return Err(AccessError::WrongPd);
        }
        let bound = match self.kind {
            WindowType::Type1 if bind.len == 0 => None,
            // The key must change, and a window of type 2 be free (IBTA 10.6.7.2.2).
            WindowType::Type2
                if bind.len == 0 || self.bound.is_some() || bind.rkey == self.rkey =>
            {
                return Err(AccessError::WindowState);
            }
            _ => Some(self.bound_to(via, bind, target.ok_or(AccessError::UnknownKey)?)?),
        };
        self.bound = bound;
        self.rkey = bind.rkey;
        Ok(())
    }

    fn bound_to(
        &self,
        via: Via,
        bind: &WindowBind,
        target: &BindTarget,
    ) -> Result<Bound, AccessError> {
        let writes = WindowAccess::REMOTE_WRITE | WindowAccess::REMOTE_ATOMIC;
        let is_zero_based = bind.access.contains(WindowAccess::ZERO_BASED);
        if target.pd != self.pd {
            return Err(AccessError::WrongPd);
        }
        if !target.allows_binding
            || bind.access.intersects(writes) && !target.is_writable
            || self.kind == WindowType::Type1 && (is_zero_based || target.is_zero_based)
        {
            return Err(AccessError::Denied);
        }
        let offset = bind.addr.checked_sub(target.base);
        let end = offset.and_then(|offset| offset.checked_add(bind.len));
        if end.is_none_or(|end| end > target.len) {
            return Err(AccessError::OutOfBounds);
        }
        Ok(Bound {
            qp: via.qp,
            lkey: bind.lkey,
            addr: bind.addr,
            len: bind.len,
            access: bind.access,
        })
    }

    /// Makes the key invalid, for a request of, or to, the queue pair `via`.
    ///
    /// # Errors
    /// Why it stays valid.
    pub fn invalidate(&mut self, via: Via, rkey: u32) -> Result<(), AccessError> {
        if self.kind == WindowType::Type1 {
            return Err(AccessError::WindowState);
        }
        self.bound_for(via, rkey)?;
        self.bound = None;
        Ok(())
    }

    /// The queue pair is gone, and with it what it bound.
    pub fn forget_qp(&mut self, qp: Qpn) {
        if self.kind == WindowType::Type2 && self.bound.is_some_and(|bound| bound.qp == qp) {
            self.bound = None;
        }
    }

    /// What the window opens, if the key and the queue pair are right.
    fn bound_for(&self, via: Via, rkey: u32) -> Result<Bound, AccessError> {
        let bound = self
            .bound
            .filter(|_| rkey == self.rkey)
            .ok_or(AccessError::UnknownKey)?;
        if via.pd != self.pd {
            return Err(AccessError::WrongPd);
        }
        if self.kind == WindowType::Type2 && via.qp != bound.qp {
            return Err(AccessError::Denied);
        }
        Ok(bound)
    }

    /// Local key of the region and address in it of a range that a peer names with the window's
    /// key.
    ///
    /// # Errors
    /// Why it may not use the range for `access`.
    pub fn translate(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(u32, u64), AccessError> {
        let bound = self.bound_for(via, range.rkey)?;
        let right = match access {
            RemoteAccess::Read => WindowAccess::REMOTE_READ,
            RemoteAccess::Write => WindowAccess::REMOTE_WRITE,
            RemoteAccess::Atomic => WindowAccess::REMOTE_ATOMIC,
        };
        if !bound.access.contains(right) {
            return Err(AccessError::Denied);
        }
        let base = if bound.access.contains(WindowAccess::ZERO_BASED) {
            0
        } else {
            bound.addr
        };
        let offset = range.va.checked_sub(base).ok_or(AccessError::OutOfBounds)?;
        let end = offset.checked_add(u64::from(range.len));
        if end.is_none_or(|end| end > bound.len) {
            return Err(AccessError::OutOfBounds);
        }
        Ok((bound.lkey, bound.addr + offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIA: Via = Via {
        pd: PdId(1),
        qp: Qpn::new(7),
    };
    const REGION: BindTarget = BindTarget {
        pd: PdId(1),
        allows_binding: true,
        is_writable: true,
        is_zero_based: false,
        base: 0x1000,
        len: 0x1000,
    };
    const BIND: WindowBind = WindowBind {
        rkey: 0x501,
        lkey: 9,
        addr: 0x1100,
        len: 0x100,
        access: WindowAccess::REMOTE_READ,
    };

    fn window(kind: WindowType) -> MemoryWindow {
        MemoryWindow::new(PdId(1), kind, 0x500)
    }

    fn range(rkey: u32, va: u64, len: u32) -> RemoteRange {
        RemoteRange { rkey, va, len }
    }

    #[test]
    fn opens_its_part_of_the_region_and_no_more() {
        let mut window = window(WindowType::Type2);
        let read = RemoteAccess::Read;
        let all = range(0x501, 0x1100, 0x100);
        assert!(window.translate(VIA, all, read).is_err(), "not bound");
        window.bind(VIA, &BIND, Some(&REGION)).unwrap();
        assert_eq!(window.translate(VIA, all, read), Ok((9, 0x1100)));
        for (range, error) in [
            (range(0x500, 0x1100, 1), AccessError::UnknownKey),
            (range(0x501, 0x10ff, 1), AccessError::OutOfBounds),
            (range(0x501, 0x1101, 0x100), AccessError::OutOfBounds),
            (range(0x501, u64::MAX, 0x100), AccessError::OutOfBounds),
        ] {
            assert_eq!(window.translate(VIA, range, read), Err(error));
        }
        let write = window.translate(VIA, all, RemoteAccess::Write);
        assert_eq!(write, Err(AccessError::Denied));
    }

    #[test]
    fn type_2_is_of_a_queue_pair_and_type_1_of_a_protection_domain() {
        let other_qp = Via {
            qp: Qpn::new(8),
            ..VIA
        };
        let other_pd = Via { pd: PdId(2), ..VIA };
        for (kind, through_another) in [(WindowType::Type1, true), (WindowType::Type2, false)] {
            let mut window = window(kind);
            window.bind(VIA, &BIND, Some(&REGION)).unwrap();
            let use_it = |via| window.translate(via, range(0x501, 0x1100, 4), RemoteAccess::Read);
            assert_eq!(use_it(other_qp).is_ok(), through_another);
            assert_eq!(use_it(other_pd), Err(AccessError::WrongPd));
        }
    }

    #[test]
    fn a_zero_based_window_counts_from_its_start() {
        let mut window = window(WindowType::Type2);
        let bind = WindowBind {
            access: BIND.access | WindowAccess::ZERO_BASED,
            ..BIND
        };
        window.bind(VIA, &bind, Some(&REGION)).unwrap();
        let at = |va| window.translate(VIA, range(0x501, va, 4), RemoteAccess::Read);
        assert_eq!(at(8), Ok((9, 0x1108)));
        assert_eq!(at(0x1108), Err(AccessError::OutOfBounds));
    }

    #[test]
    fn a_binding_that_breaks_a_rule_changes_nothing() {
        let no_binding = BindTarget {
            allows_binding: false,
            ..REGION
        };
        let read_only = BindTarget {
            is_writable: false,
            ..REGION
        };
        let of_another = BindTarget {
            pd: PdId(2),
            ..REGION
        };
        let writes = WindowBind {
            access: WindowAccess::REMOTE_WRITE,
            ..BIND
        };
        let beyond = WindowBind { len: 0xf01, ..BIND };
        let same_key = WindowBind {
            rkey: 0x500,
            ..BIND
        };
        let empty = WindowBind { len: 0, ..BIND };
        for (bind, target, error) in [
            (BIND, Some(no_binding), AccessError::Denied),
            (BIND, Some(of_another), AccessError::WrongPd),
            (BIND, None, AccessError::UnknownKey),
            (writes, Some(read_only), AccessError::Denied),
            (beyond, Some(REGION), AccessError::OutOfBounds),
            (same_key, Some(REGION), AccessError::WindowState),
            (empty, Some(REGION), AccessError::WindowState),
        ] {
            let mut window = window(WindowType::Type2);
            assert_eq!(window.bind(VIA, &bind, target.as_ref()), Err(error));
            assert_eq!((window.region(), window.rkey()), (None, 0x500));
        }
    }

    #[test]
    fn type_2_is_invalidated_before_a_rebind_and_type_1_is_not() {
        let next = WindowBind {
            rkey: 0x502,
            ..BIND
        };
        let mut two = window(WindowType::Type2);
        two.bind(VIA, &BIND, Some(&REGION)).unwrap();
        let again = two.bind(VIA, &next, Some(&REGION));
        assert_eq!(again, Err(AccessError::WindowState));
        assert_eq!(two.invalidate(VIA, 0x500), Err(AccessError::UnknownKey));
        two.invalidate(VIA, 0x501).unwrap();
        assert_eq!(two.invalidate(VIA, 0x501), Err(AccessError::UnknownKey));
        two.bind(VIA, &next, Some(&REGION)).unwrap();

        let mut one = window(WindowType::Type1);
        one.bind(VIA, &BIND, Some(&REGION)).unwrap();
        one.bind(VIA, &next, Some(&REGION)).unwrap();
        assert_eq!(one.invalidate(VIA, 0x502), Err(AccessError::WindowState));
        let unbind = WindowBind {
            len: 0,
            rkey: 0x503,
            ..BIND
        };
        one.bind(VIA, &unbind, None).unwrap();
        assert_eq!(one.region(), None);
    }
}
