//! Every first argument of a verb as an [`Object`].

use crate::abi::*;
use crate::errno::Outcome;
use crate::object::Object;
use crate::{
    ah, buffers, channel, context, cq_state, dm, events, memory, mw, pd, qp_state, srq, xrc,
};

macro_rules! objects {
    ($($ty:ty: |$object:ident, $ends:ident| $ours:expr, $inherited:expr;)*) => {$(
        impl Object for *mut $ty {
            fn is_nothing(self) -> bool {
                self.is_null()
            }
            unsafe fn is_ours(self) -> bool {
                let $object = self;
                // SAFETY: the object is live, and so is the context or device it points to.
                unsafe { $ours }
            }
            unsafe fn is_inherited(self, $ends: bool) -> Outcome<bool> {
                let $object = self;
                // SAFETY: by the caller's promise.
                unsafe { $inherited }
            }
        }
    )*};
}

objects! {
    ibv_context: |context, ends| is_our_context(context), context::is_inherited(context, ends);
    ibv_pd: |pd, ends| is_our_context((*pd).context), pd::is_inherited(pd, ends);
    ibv_td: |td, _ends| is_our_context((*td).context), Ok(pd::is_thread_inherited(td));
    ibv_mr: |mr, _ends| is_our_context((*mr).context), Ok(memory::MrHandle::is_inherited(mr));
    ibv_mw: |mw, _ends| is_our_context((*mw).context), Ok(mw::MwHandle::is_inherited(mw));
    ibv_dm: |dm, _ends| is_our_context((*dm).context), Ok(dm::DmHandle::is_inherited(dm));
    ibv_comp_channel: |channel, _ends| is_our_context((*channel).context), Ok(channel::is_inherited(channel));
    ibv_cq: |cq, _ends| is_our_context((*cq).context), Ok(cq_state::is_inherited(cq));
    ibv_srq: |srq, _ends| is_our_context((*srq).context), Ok(srq::is_inherited(srq));
    ibv_qp: |qp, _ends| is_our_context((*qp).context), Ok(qp_state::is_inherited(qp));
    ibv_ah: |ah, _ends| is_our_context((*ah).context), Ok(ah::AhHandle::is_inherited(ah));
    ibv_xrcd: |xrcd, _ends| is_our_context((*xrcd).context), Ok(xrc::is_inherited(xrcd));
    ibv_async_event: |event, _ends| events::is_ours(event), Ok(events::is_inherited(event));
}

impl Object for *mut ibv_device {
    fn is_nothing(self) -> bool {
        self.is_null()
    }
    unsafe fn is_ours(self) -> bool {
        // SAFETY: by the caller's promise.
        unsafe { is_our_device(self) }
    }
    unsafe fn is_inherited(self, _ends: bool) -> Outcome<bool> {
        Ok(false)
    }
}

impl Object for *mut ibv_buf {
    fn is_nothing(self) -> bool {
        self.is_null()
    }
    unsafe fn is_ours(self) -> bool {
        buffers::is_ours(self)
    }
    unsafe fn is_inherited(self, _ends: bool) -> Outcome<bool> {
        Ok(false)
    }
}
