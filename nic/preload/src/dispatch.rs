//! The table through which libibverbs itself calls the driver of a context.
//!
//! A function of libibverbs that is newer than this library, and so not one of ours
//! ([`crate::exports`]), reaches a context of ours through a private pointer in it. What lies
//! behind that pointer changes with every release. So it is made by the installed library. The
//! constructor that it has for its drivers fills the table with functions for every verb of this
//! release, which answer `EOPNOTSUPP`, each in the way of its verb.
//!
//! Source: `_verbs_init_and_alloc_context` and `verbs_uninit_context`, which rdma-core's driver
//! interface has had with these arguments since release 20 (libibverbs/driver.h).
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::ptr::NonNull;

use crate::abi::*;
use crate::next::{Next, call_next};

/// Bytes that the library may use for its own form of a context; that of release 65 has 736.
const ROOM: usize = 8192;
/// `RDMA_DRIVER_UNKNOWN` of the kernel's <rdma/ib_user_ioctl_verbs.h>.
const DRIVER_UNKNOWN: u32 = 0;
const NO_DESCRIPTOR: c_int = -1;

const WORD: usize = size_of::<usize>();

/// A context that libibverbs made for its own use. Freed when dropped.
pub(crate) struct Dispatch {
    /// Its `verbs_context`, longer or shorter than the one we were built with.
    made: NonNull<usize>,
    /// Where in it the public context begins, in words. All that came before that lies at the same
    /// distance in every release.
    context: usize,
}

// SAFETY: what it points to is written before it is made and never after, and libibverbs's
// functions there may be called from any thread.
unsafe impl Send for Dispatch {}
// SAFETY: as above.
unsafe impl Sync for Dispatch {}

impl Dispatch {
    /// Lets libibverbs make one. `None` if there is no libibverbs with such a constructor.
    ///
    /// # Safety
    /// `device` is one of ours.
    pub(crate) unsafe fn new(device: *mut ibv_device) -> Option<Self> {
        static CONSTRUCTOR: Next = Next::private(c"_verbs_init_and_alloc_context");
        let made: *mut c_void = call_next!(
            CONSTRUCTOR,
            fn(*mut ibv_device, c_int, usize, *mut c_void, u32) -> *mut c_void,
            device,
            NO_DESCRIPTOR,
            ROOM,
            // The place of the context in what the driver allocates.
            std::ptr::null_mut(),
            DRIVER_UNKNOWN,
        )?;
        let made = NonNull::new(made.cast())?;
        // SAFETY: the constructor zeroed as many bytes and wrote its context to their beginning.
        let words: &[usize] = unsafe { std::slice::from_raw_parts(made.as_ptr(), ROOM / WORD) };
        let context = public_context(words, device)?;
        Some(Self { made, context })
    }

    /// Gives a context of ours the library's table, and its refusals where the context has no
    /// operation.
    pub(crate) fn lend(&self, vctx: &mut verbs_context) {
        let before = offset_of!(verbs_context, context) / WORD;
        let size = offset_of!(verbs_context, sz) / WORD;
        let length = before + offset_of!(ibv_context, cmd_fd) / WORD;
        // SAFETY: up to its size and its descriptors, a context is pointers to functions, which may
        // be null, and the table.
        let ours =
            unsafe { std::slice::from_raw_parts_mut((&raw mut *vctx).cast::<usize>(), length) };
        for (index, word) in ours
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| *index != size)
        {
            // An older library has fewer operations in front of the context.
            let Some(at) = (self.context + index).checked_sub(before) else {
                continue;
            };
            if *word == 0 {
                // SAFETY: inside what was made.
                *word = unsafe { self.made.add(at).read() };
            }
        }
    }
}

/// Where the public context begins in what the constructor made: it starts with the device, after
/// the size of everything, which ends with it.
fn public_context(words: &[usize], device: *mut ibv_device) -> Option<usize> {
    (1..words.len()).find(|&at| {
        let size = at * WORD + size_of::<ibv_context>();
        words[at] == device.addr() && words[at - 1] == size
    })
}

impl Drop for Dispatch {
    fn drop(&mut self) {
        static DESTRUCTOR: Next = Next::private(c"verbs_uninit_context");
        let made: *mut c_void = self.made.as_ptr().cast();
        call_next!(DESTRUCTOR, fn(*mut c_void) -> (), made);
        // SAFETY: the constructor allocated it by calloc, and its driver frees it.
        unsafe { libc::free(made) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// libibverbs's own functions, as those are that we do not know: this test program exports none
    /// of ours.
    #[test]
    fn libibverbs_functions_refuse_our_context_each_in_its_way() {
        static ALLOC_PD: Next = Next::verb(c"ibv_alloc_pd", c"IBVERBS_1.1");
        static CREATE_CQ: Next = Next::verb(c"ibv_create_cq", c"IBVERBS_1.1");
        static QUERY_DEVICE: Next = Next::verb(c"ibv_query_device", c"IBVERBS_1.1");
        static ATTACH: Next = Next::verb(c"ibv_attach_mcast", c"IBVERBS_1.1");
        static DEALLOC_PD: Next = Next::verb(c"ibv_dealloc_pd", c"IBVERBS_1.1");
        if ALLOC_PD.address().is_none() {
            eprintln!("SKIPPED: libibverbs.so.1 is not installed");
            return;
        }
        let mut device = VerbsDevice::new(ibv_device::default());
        let device: *mut ibv_device = (&raw mut device).cast();
        // SAFETY: a device laid out as ours are.
        let dispatch = unsafe { Dispatch::new(device) }.expect("libibverbs has the constructor");
        let mut vctx = verbs_context::default();
        vctx.context.device = device;
        dispatch.lend(&mut vctx);
        let context = &raw mut vctx.context;
        let errno = || std::io::Error::last_os_error().raw_os_error();
        let pd = call_next!(ALLOC_PD, fn(*mut ibv_context) -> *mut ibv_pd, context);
        assert_eq!(
            (pd, errno()),
            (Some(std::ptr::null_mut()), Some(libc::EOPNOTSUPP))
        );
        let cq = call_next!(
            CREATE_CQ,
            fn(*mut ibv_context, c_int, *mut c_void, *mut c_void, c_int) -> *mut ibv_cq,
            context,
            1,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        );
        assert_eq!(
            (cq, errno()),
            (Some(std::ptr::null_mut()), Some(libc::EOPNOTSUPP))
        );
        let mut attr = ibv_device_attr::default();
        let queried = call_next!(
            QUERY_DEVICE,
            fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
            context,
            &raw mut attr,
        );
        assert_eq!(queried, Some(libc::EOPNOTSUPP));
        let mut qp = ibv_qp {
            context,
            ..ibv_qp::default()
        };
        let gid = ibv_gid::default();
        let attached = call_next!(
            ATTACH,
            fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
            &raw mut qp,
            &raw const gid,
            0,
        );
        assert_eq!(attached, Some(libc::EOPNOTSUPP));
        let mut pd = ibv_pd { context, handle: 0 };
        let freed = call_next!(DEALLOC_PD, fn(*mut ibv_pd) -> c_int, &raw mut pd);
        assert_eq!(freed, Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn the_public_context_is_found_whatever_stands_before_it() {
        let device: *mut ibv_device = std::ptr::without_provenance_mut(0x5000);
        for at in [1, 40, 90] {
            let mut words = vec![7; 200];
            // The device alone is no sign: the library keeps it elsewhere, too.
            words[0] = device.addr();
            words[at] = device.addr();
            assert_eq!(public_context(&words, device), None);
            words[at - 1] = at * WORD + size_of::<ibv_context>();
            assert_eq!(public_context(&words, device), Some(at));
        }
    }

    #[test]
    fn an_operation_that_is_missing_is_lent_and_one_of_ours_stays() {
        const BEFORE: usize = offset_of!(verbs_context, context) / WORD;
        // A library whose contexts have two operations more than ours, at the front.
        let mut made = vec![0usize; ROOM / WORD];
        made.iter_mut()
            .enumerate()
            .for_each(|(index, word)| *word = 0x1000 + index);
        let dispatch = std::mem::ManuallyDrop::new(Dispatch {
            made: NonNull::new(made.as_mut_ptr()).unwrap(),
            context: BEFORE + 2,
        });
        let mut vctx = verbs_context {
            sz: 5,
            ..verbs_context::default()
        };
        vctx.context.device = std::ptr::without_provenance_mut(0x5000);
        dispatch.lend(&mut vctx);
        let lent = |offset: usize| 0x1000 + offset / WORD + 2;
        assert_eq!(vctx.priv_.addr(), lent(offset_of!(verbs_context, priv_)));
        assert_eq!(vctx.sz, 5);
        assert_eq!(vctx.context.device.addr(), 0x5000);
        assert_eq!(vctx.context.cmd_fd, 0);
    }
}
