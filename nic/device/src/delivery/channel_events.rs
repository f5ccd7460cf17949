//! The events of a completion channel, as those that raise them see it.

use std::io;
use std::os::fd::RawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use urxe_duty::{EventWaits, Looker};
use urxe_proto::Instant;

use crate::process::clock::now;
use crate::process::signalled::Signalled;

/// Cookies of completion queues that have news.
#[derive(Debug)]
pub(crate) struct ChannelEvents {
    pub(crate) cookies: Signalled<u64>,
    /// [`EventWaits`].
    event_waits: AtomicU32,
    /// When the program armed a queue last, to wait for the descriptor by itself, nanoseconds; 0
    /// once an event has come.
    armed_ns: AtomicU64,
    /// Whether it pays to look for packets then.
    pub(crate) looker: Mutex<Looker>,
}

impl ChannelEvents {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            cookies: Signalled::new()?,
            event_waits: AtomicU32::new(EventWaits::new().to_bits()),
            armed_ns: AtomicU64::new(0),
            looker: Mutex::new(Looker::heedless()),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.cookies.programs_fd()
    }

    pub(crate) fn push(&self, cookie: u64) {
        let armed_ns = self.armed_ns.swap(0, Ordering::Relaxed);
        if armed_ns > 0
            && let Ok(mut looker) = self.looker.try_lock()
        {
            looker.note_sleep(now().since(Instant::from_nanos(armed_ns)));
        }
        self.cookies.push(cookie);
    }

    /// Forgets the events of a completion queue that is destroyed.
    pub(crate) fn forget(&self, cookie: u64) {
        self.cookies.forget(|of| *of == cookie);
    }

    /// Whether the program blocks in the channel, so that no other thread has to watch the sockets.
    /// A program that waits for the descriptor in a `poll` of its own finds an event there.
    pub(crate) fn is_waited_in(&self) -> bool {
        self.event_waits().are_in_channel()
    }

    /// The program armed a queue, and waits for the descriptor by itself from now on.
    pub(crate) fn note_armed(&self) {
        self.armed_ns.store(now().as_nanos(), Ordering::Relaxed);
    }

    /// The program asked for an event, and had to wait for it, or not.
    pub(crate) fn note_wait(&self, has_waited: bool) {
        let waits = self.event_waits().after(has_waited);
        self.event_waits.store(waits.to_bits(), Ordering::Relaxed);
    }

    fn event_waits(&self) -> EventWaits {
        EventWaits::from_bits(self.event_waits.load(Ordering::Relaxed))
    }

    pub(crate) fn has_cookie(&self) -> bool {
        self.cookies.has_some()
    }
}
