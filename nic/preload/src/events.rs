//! Asynchronous events: errors of queues and queue pairs, changes of the port.
use std::sync::Arc;

use urxe_device::{AsyncEvent, AsyncEventKind, SrqEvent};

use crate::abi::*;
use crate::blocking::{self, Frame};
use crate::errno::{Errno, Outcome};
use crate::registry::Registry;
use crate::reported::HasEvents;
use crate::{context, convert, cq_state, port, qp_state, srq};

/// What kind of object an event is of.
enum Element {
    Queue(*mut ibv_cq),
    Pair(*mut ibv_qp),
    Srq(*mut ibv_srq),
    Wq(*mut ibv_wq),
    /// The port or the device.
    None,
}

impl Element {
    /// # Safety
    /// `event` is one that `ibv_get_async_event` filled in.
    unsafe fn of(event: *const ibv_async_event) -> Self {
        // SAFETY: by the caller's promise; the type says which member of the union is set.
        unsafe {
            let element = (*event).element;
            match (*event).event_type {
                IBV_EVENT_CQ_ERR => Self::Queue(element.cq),
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_PATH_MIG
                | IBV_EVENT_PATH_MIG_ERR
                | IBV_EVENT_QP_LAST_WQE_REACHED => Self::Pair(element.qp),
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => Self::Srq(element.srq),
                IBV_EVENT_WQ_FATAL => Self::Wq(element.wq),
                _ => Self::None,
            }
        }
    }
}

/// Whether an event that a program acknowledges is of a device of ours. One of no object needs
/// nothing, so either may take it.
///
/// # Safety
/// `event` is one that `ibv_get_async_event` filled in, and its object is live.
pub(crate) unsafe fn is_ours(event: *const ibv_async_event) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        let context = match Element::of(event) {
            Element::Queue(cq) if !cq.is_null() => (*cq).context,
            Element::Pair(qp) if !qp.is_null() => (*qp).context,
            Element::Srq(srq) if !srq.is_null() => (*srq).context,
            Element::Wq(wq) if !wq.is_null() => (*wq).context,
            _ => return true,
        };
        is_our_context(context)
    }
}

/// Whether the object of an event is the parent's.
///
/// # Safety
/// As for [`is_ours`].
pub(crate) unsafe fn is_inherited(event: *const ibv_async_event) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        match Element::of(event) {
            Element::Queue(cq) if !cq.is_null() => cq_state::is_inherited(cq),
            Element::Pair(qp) if !qp.is_null() => qp_state::is_inherited(qp),
            Element::Srq(srq) if !srq.is_null() => srq::is_inherited(srq),
            _ => false,
        }
    }
}

crate::routed::calls! {
    /// `ibv_get_async_event` of a context of ours: blocks, unless the program made `async_fd`
    /// non-blocking.
    get = begin_get;
}

/// # Safety
/// The arguments are the program's of `ibv_get_async_event`: the context is null or ours and open,
/// the event is null or writable.
unsafe extern "C" fn begin_get(frame: &mut Frame) -> bool {
    let [context, event, _] = frame.arguments;
    let context: *mut ibv_context = std::ptr::with_exposed_provenance_mut(context);
    let event: *mut ibv_async_event = std::ptr::with_exposed_provenance_mut(event);
    if context.is_null() || event.is_null() {
        return frame.finish(Err(Errno::INVAL));
    }
    // SAFETY: by the caller's promise.
    if let Err(errno) = unsafe { context::is_inherited(context, false) } {
        return frame.finish(Err(errno));
    }
    // SAFETY: by the caller's promise.
    let state = unsafe { context::state(context) };
    let wait = match state.nic.begin_event_wait() {
        Ok(wait) => wait,
        Err(error) => return frame.finish(Err(Errno::of(&error))),
    };
    // The thread may outlast the context.
    let objects = Arc::clone(&state.events);
    blocking::begin(frame, wait, move |AsyncEvent { kind }| {
        // An event of an object that is gone is dropped.
        let found = objects.c_event(kind)?;
        // SAFETY: by the caller's promise.
        unsafe { *event = found };
        Some(Ok(0))
    })
}

impl Registry {
    /// The C form of an event, counted as unacknowledged at its object; `None` if that is gone.
    fn c_event(&self, kind: AsyncEventKind) -> Option<ibv_async_event> {
        let objects = self.lock();
        let mut event = ibv_async_event::default();
        match kind {
            AsyncEventKind::Qp(number, what) => {
                let qp = *objects.pairs.get(&number.get())?.first()?;
                // SAFETY: registered, and so live while the map is locked.
                unsafe { qp_state::state(qp) }.events.add();
                event.element.qp = qp;
                event.event_type = convert::qp_event(what);
            }
            AsyncEventKind::Srq(number, SrqEvent::LimitReached) => {
                let srq = *objects.shared.get(&number.get())?;
                // SAFETY: registered, and so live while the map is locked.
                unsafe { srq::state(srq) }.events.add();
                event.element.srq = srq;
                event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
            }
            AsyncEventKind::CqOverrun(cookie) => {
                let cq = *objects.queues.get(&cookie)?;
                // SAFETY: registered, and so live while the map is locked.
                unsafe { cq_state::state(cq) }.async_events.add();
                event.element.cq = cq;
                event.event_type = IBV_EVENT_CQ_ERR;
            }
            AsyncEventKind::GidsChanged => put_port(&mut event, IBV_EVENT_GID_CHANGE),
            AsyncEventKind::PortActive => put_port(&mut event, IBV_EVENT_PORT_ACTIVE),
            AsyncEventKind::PortDown => put_port(&mut event, IBV_EVENT_PORT_ERR),
            AsyncEventKind::DeviceRemoved => event.event_type = IBV_EVENT_DEVICE_FATAL,
        }
        Some(event)
    }
}

/// Makes an event one of the port.
fn put_port(event: &mut ibv_async_event, kind: ibv_event_type) {
    event.element.port_num = port::PORT.into();
    event.event_type = kind;
}

/// `ibv_ack_async_event`.
///
/// # Safety
/// `event` is one that [`get`] filled in, and its object is live.
pub(crate) unsafe fn acknowledge(event: *mut ibv_async_event) -> Outcome<()> {
    // SAFETY: by the caller's promise.
    unsafe {
        match Element::of(event) {
            Element::Queue(cq) if !cq.is_null() => {
                HasEvents::lock(cq).acknowledge(&raw mut (*cq).async_events_completed, 1);
            }
            Element::Pair(qp) if !qp.is_null() => {
                HasEvents::lock(qp).acknowledge(&raw mut (*qp).events_completed, 1);
            }
            Element::Srq(srq) if !srq.is_null() => {
                HasEvents::lock(srq).acknowledge(&raw mut (*srq).events_completed, 1);
            }
            _ => {}
        }
    }
    Ok(())
}
