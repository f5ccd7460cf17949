//! Asynchronous events of a device.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use urxe_proto::{QpEvent, SrqEvent};
use urxe_wire::{Qpn, Srqn};

use crate::process::blocking::{BlockingCall, Step, Waiting};
use crate::process::signalled::Signalled;

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: AsyncEventKind,
}

/// What an asynchronous event tells, and of which object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEventKind {
    /// Of a queue pair.
    Qp(Qpn, QpEvent),
    /// A completion queue overran; the value is its cookie.
    CqOverrun(u64),
    /// The GID table changed.
    GidsChanged,
    /// The port can carry packets again.
    PortActive,
    /// The port carries no packets any more.
    PortDown,
    /// The network interface is gone.
    DeviceRemoved,
    /// Of a shared receive queue.
    Srq(Srqn, SrqEvent),
}

/// The events that a program has not read.
#[derive(Debug)]
pub(crate) struct EventQueue(Signalled<AsyncEvent>);

impl EventQueue {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Signalled::new()?))
    }

    pub(crate) fn push(&self, kind: AsyncEventKind) {
        self.0.push(AsyncEvent { kind });
    }

    /// Forgets the events of a queue pair that is destroyed.
    pub(crate) fn forget_qp(&self, number: Qpn) {
        self.forget(|kind| matches!(kind, AsyncEventKind::Qp(qp, _) if *qp == number));
    }

    /// Forgets the events of a shared receive queue that is destroyed.
    pub(crate) fn forget_srq(&self, number: Srqn) {
        self.forget(|kind| matches!(kind, AsyncEventKind::Srq(srq, _) if *srq == number));
    }

    /// Forgets the events of a completion queue that is destroyed.
    pub(crate) fn forget_cq(&self, cookie: u64) {
        self.forget(|kind| *kind == AsyncEventKind::CqOverrun(cookie));
    }

    fn forget(&self, is_of_it: impl Fn(&AsyncEventKind) -> bool) {
        self.0.forget(|event| is_of_it(&event.kind));
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.programs_fd()
    }
}

/// A thread of the program that waits for an asynchronous event.
#[derive(Debug)]
pub struct EventWait(pub(crate) Arc<EventQueue>);

impl BlockingCall for EventWait {
    type Answer = AsyncEvent;

    fn step(&mut self, _is_ready: bool) -> Step<AsyncEvent> {
        let events = &self.0.0;
        match events.pop_or_refuse().transpose() {
            Some(result) => Step::Done(result),
            None => Step::Wait(Waiting {
                fd: events.fd().as_raw_fd(),
                timeout_ns: None,
            }),
        }
    }
}
