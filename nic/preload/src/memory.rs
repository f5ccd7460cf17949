//! Memory regions.
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use urxe_device::{Access, DeviceMemory, Mapping, Mutex};

use crate::abi::*;
use crate::convert;
use crate::errno::{Errno, Outcome};
use crate::handle::{Handle, Number};
use crate::pd;

/// What stands behind a memory region. It changes when the region is registered again.
type MrState = Mutex<Region>;

/// What is not in the C struct, or must not depend on what a program writes there.
pub(crate) struct Region {
    lkey: u32,
    base: u64,
    access: Access,
    /// Whether it is one of `ibv_alloc_null_mr`.
    is_null: bool,
    /// What is there as long as it is registered.
    backing: Option<Backing>,
}

pub(crate) type MrHandle = Handle<ibv_mr, MrState>;

/// What a region is made of.
pub(crate) struct Wanted {
    /// What the program sees as its address.
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    /// Where the bytes are in the process.
    pub(crate) host: u64,
    /// What work requests and peers call the first byte.
    pub(crate) base: u64,
    pub(crate) access: c_uint,
    pub(crate) backing: Option<Backing>,
}

/// Memory that is not the program's own.
pub(crate) enum Backing {
    /// Device memory, which other regions may name, too.
    DeviceMemory {
        /// Holds it.
        _memory: Arc<DeviceMemory>,
    },
    /// A part of a file, mapped for this region.
    Mapping {
        /// Holds it.
        _mapping: Mapping,
    },
}

/// Registers a region.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn new(pd: *mut ibv_pd, wanted: Wanted) -> Outcome<*mut ibv_mr> {
    let access = convert::access(wanted.access)?;
    // SAFETY: by the caller's promise.
    let state = unsafe { pd::known(pd) }?;
    let length = wanted.length as u64;
    let register = match &wanted.backing {
        Some(_) => urxe_device::Nic::register_own,
        None => urxe_device::Nic::register,
    };
    let keys = register(
        &state.nic,
        state.pd,
        wanted.host,
        length,
        wanted.base,
        access,
    )
    .map_err(|error| convert::errno(&error))?;
    let region = Region {
        lkey: keys.lkey,
        base: wanted.base,
        access,
        is_null: false,
        backing: wanted.backing,
    };
    // SAFETY: by the caller's promise.
    Ok(unsafe { give(pd, wanted.addr, wanted.length, keys, region) })
}

/// # Safety
/// `pd` is ours and live.
unsafe fn give(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    keys: urxe_device::MemoryRegion,
    region: Region,
) -> *mut ibv_mr {
    // SAFETY: by the caller's promise.
    let context = unsafe {
        pd::state(pd).users.add();
        (*pd).context
    };
    let mr = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: keys.lkey,
        lkey: keys.lkey,
        rkey: keys.rkey,
    };
    MrHandle::give(mr, Mutex::new(region))
}

/// `ibv_reg_mr`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Outcome<*mut ibv_mr> {
    let access = access.cast_unsigned();
    let is_zero_based = access & IBV_ACCESS_ZERO_BASED != 0;
    let base = if is_zero_based { 0 } else { addr.addr() as u64 };
    // SAFETY: by the caller's promise.
    unsafe { register_iova2(pd, addr, length, base, access) }
}

/// `ibv_reg_mr_iova`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> Outcome<*mut ibv_mr> {
    // SAFETY: by the caller's promise.
    unsafe { register_iova2(pd, addr, length, iova, access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova2`. The inline function of verbs.h calls it for `ibv_reg_mr`, too, if the flags
/// may hold optional ones, with the address as `iova`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn register_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Outcome<*mut ibv_mr> {
    let host = addr.addr() as u64;
    let is_zero_based = access & IBV_ACCESS_ZERO_BASED != 0;
    let wanted = Wanted {
        addr,
        length,
        host,
        base: if is_zero_based && iova == host {
            0
        } else {
            iova
        },
        access,
        backing: None,
    };
    // SAFETY: by the caller's promise.
    unsafe { new(pd, wanted) }
}

/// `ibv_alloc_null_mr`.
///
/// # Safety
/// `pd` is ours and live.
pub(crate) unsafe fn alloc_null(pd: *mut ibv_pd) -> Outcome<*mut ibv_mr> {
    // SAFETY: by the caller's promise.
    let state = unsafe { pd::known(pd) }?;
    let keys = state
        .nic
        .register_null(state.pd)
        .map_err(|error| convert::errno(&error))?;
    let region = Region {
        lkey: keys.lkey,
        base: 0,
        access: Access::LOCAL_WRITE,
        is_null: true,
        backing: None,
    };
    // SAFETY: by the caller's promise.
    Ok(unsafe { give(pd, std::ptr::null_mut(), usize::MAX, keys, region) })
}

/// Elements that advice may be about at most: what fits into an attribute of the kernel's
/// interface, whose length has 16 bits.
const ADVISED_MAX: u32 = (u16::MAX as usize / size_of::<ibv_sge>()) as u32;

/// `ibv_advise_mr`: brings on-demand memory in ahead of its use. Without the flag FLUSH that may
/// happen later or never, so it is only checked.
///
/// # Safety
/// `pd` is ours and live, `list` has `count` readable elements.
pub(crate) unsafe fn advise(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> Outcome<()> {
    let writes = match advice {
        IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH | IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => false,
        IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE => true,
        _ => return Err(Errno::OPNOTSUPP),
    };
    if flags & !IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0
        || count == 0
        || count > ADVISED_MAX
        || list.is_null()
    {
        return Err(Errno::INVAL);
    }
    let is_wanted_now = flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH != 0
        && advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    // SAFETY: by the caller's promise.
    let (state, list) = unsafe {
        (
            pd::state(pd),
            std::slice::from_raw_parts(list, count as usize),
        )
    };
    list.iter().try_for_each(|element| {
        state
            .nic
            .prefetch(state.pd, &convert::sge(element), writes, is_wanted_now)
            .map_err(|error| convert::errno(&error))
    })
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// `mr` is ours and live; no thread uses it any more.
pub(crate) unsafe fn deregister(mr: *mut ibv_mr) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        let pd = pd::state((*mr).pd);
        let lkey = MrHandle::state(mr).lock().lkey;
        Number::of(lkey).ends((*mr).handle)?;
        pd.nic
            .deregister(lkey)
            .map_err(|error| convert::errno(&error))?;
        pd.users.remove();
        drop(MrHandle::take_back(mr));
    }
    Ok(())
}

/// What `ibv_rereg_mr` is asked for.
struct Change {
    flags: c_uint,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
}

impl Change {
    const fn has(&self, flag: c_uint) -> bool {
        self.flags & flag != 0
    }

    /// Whether libibverbs would pass it on: the rest is what a device says.
    fn is_input(&self) -> bool {
        let lacks = |flag, is_missing: bool| self.has(flag) && is_missing;
        self.flags & !IBV_REREG_MR_FLAGS_SUPPORTED == 0
            && !lacks(
                IBV_REREG_MR_CHANGE_TRANSLATION,
                self.length == 0 || self.addr.is_null(),
            )
            && !lacks(IBV_REREG_MR_CHANGE_PD, self.pd.is_null())
            && (self.access == 0 || self.has(IBV_REREG_MR_CHANGE_ACCESS))
    }
}

/// `ibv_rereg_mr`: changes the region in place; its keys stay. It fails with -1, which is
/// `IBV_REREG_MR_ERR_INPUT`, for what libibverbs refuses itself, with `IBV_REREG_MR_ERR_CMD` for
/// what a device refuses; either way the region is as it was.
///
/// # Safety
/// `mr` is ours and live and no other thread uses it now, `pd` is null or a live one.
pub(crate) unsafe fn register_again(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> Outcome<c_int> {
    let change = Change {
        flags: flags.cast_unsigned(),
        pd,
        addr,
        length,
        access: access.cast_unsigned(),
    };
    // SAFETY: by the caller's promise.
    let mut region = unsafe { MrHandle::state(mr) }.lock();
    // libibverbs changes those of `ibv_reg_mr`, and lets a device say no for device memory.
    let is_of_another_kind =
        region.is_null || matches!(region.backing, Some(Backing::Mapping { .. }));
    if is_of_another_kind || !change.is_input() {
        return Err(Errno::INVAL);
    }
    // SAFETY: by the caller's promise.
    let changed = unsafe { apply(&mut *mr, &mut region, &change) };
    Ok(changed.map_or_else(
        |errno| {
            errno.set();
            IBV_REREG_MR_ERR_CMD
        },
        |()| 0,
    ))
}

/// # Safety
/// The region is ours and live, and the protection domain of `change` is null or live.
unsafe fn apply(public: &mut ibv_mr, region: &mut Region, change: &Change) -> Outcome<()> {
    Number::of(region.lkey).is_of(public.handle)?;
    if change.flags == 0 || region.backing.is_some() {
        return Err(Errno::INVAL);
    }
    let new_pd = if change.has(IBV_REREG_MR_CHANGE_PD) {
        change.pd
    } else {
        public.pd
    };
    // SAFETY: the program's protection domain is live, and ours if its context is.
    if unsafe { (*new_pd).context } != public.context {
        return Err(Errno::INVAL);
    }
    let (addr, length, base) = if change.has(IBV_REREG_MR_CHANGE_TRANSLATION) {
        (change.addr, change.length, change.addr.addr() as u64)
    } else {
        (public.addr, public.length, region.base)
    };
    let access = if change.has(IBV_REREG_MR_CHANGE_ACCESS) {
        convert::access(change.access)?
    } else {
        region.access
    };
    // SAFETY: both are ours and live.
    let (old_pd, new_pd_state) = unsafe { (pd::state(public.pd), pd::known(new_pd)?) };
    let at = (addr.addr() as u64, length as u64, base);
    new_pd_state
        .nic
        .register_again(region.lkey, new_pd_state.pd, at, access)
        .map_err(|error| convert::errno(&error))?;
    new_pd_state.users.add();
    old_pd.users.remove();
    region.base = base;
    region.access = access;
    public.pd = new_pd;
    public.addr = addr;
    public.length = length;
    Ok(())
}
