//! Completion channels: a descriptor that is readable when a completion queue has news.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use urxe_proto::Instant;
use urxe_udp::{Interest, Waiter};

use crate::clock::now;
use crate::nic::Nic;
use crate::signalled::{EventFd, Signalled};
use crate::spin::{Looked, Spin};

/// A program that has found an event each time so often waits for the descriptor by itself.
const READY_WAITS: u32 = 4;

/// How long a program that armed a queue waits for the engine.
const LOOK_NS: u64 = 30_000;

/// What a thread that blocks waits with: the channel's descriptor and the sockets.
#[derive(Debug)]
struct Watcher {
    waiter: Waiter,
    /// Tells when the sockets have changed.
    watched: Arc<EventFd>,
    spin: Spin,
}

/// A completion channel. Completion queues that were armed put their cookies into it.
#[derive(Debug)]
pub struct CompletionChannel {
    nic: Weak<Nic>,
    cookies: Signalled<u64>,
    /// Calls of [`Self::wait`] in a row in which there was an event already.
    ready_waits: AtomicU32,
    /// When the program armed a queue last, to wait for the descriptor by itself, nanoseconds; 0 once an event has come.
    armed_ns: AtomicU64,
    /// Whether it pays to look for packets then.
    spin: Mutex<Spin>,
    /// Waits for the descriptor and the sockets; kept between calls, made anew for a second thread.
    waiter: Mutex<Option<Watcher>>,
}

impl CompletionChannel {
    pub(crate) fn new(nic: &Arc<Nic>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            nic: Arc::downgrade(nic),
            cookies: Signalled::new()?,
            ready_waits: AtomicU32::new(READY_WAITS),
            armed_ns: AtomicU64::new(0),
            spin: Mutex::new(Spin::heedless()),
            waiter: Mutex::new(None),
        }))
    }

    /// The descriptor: readable while events wait. It may be polled and made non-blocking, not read.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.cookies.fd().as_raw_fd()
    }

    pub(crate) fn push(&self, cookie: u64) {
        let armed_ns = self.armed_ns.swap(0, Ordering::Relaxed);
        if armed_ns > 0
            && let Ok(mut spin) = self.spin.try_lock()
        {
            spin.note_sleep(now().since(Instant::from_nanos(armed_ns)));
        }
        self.cookies.push(cookie);
    }

    /// Forgets the events of a completion queue that is destroyed.
    pub(crate) fn forget(&self, cookie: u64) {
        self.cookies.forget(|of| *of == cookie);
    }

    /// Whether the program blocks in [`Self::wait`], so that nobody else has to watch the sockets. Who waits for the descriptor in a
    /// `poll` of its own finds an event there.
    pub(crate) fn is_waited_in(&self) -> bool {
        self.ready_waits.load(Ordering::Relaxed) < READY_WAITS
    }

    /// The program is about to wait for the descriptor in a `poll` of its own, until which it may be woken twice, with the background
    /// thread in between: looks for packets before, where that has paid, until there is an event. Whether there is one, of
    /// this queue or another: should the program then wait on for this one alone, the background thread notices within 2 ms.
    pub(crate) fn look(&self, nic: &Nic) -> bool {
        if let Ok(mut spin) = self.spin.try_lock()
            && spin.may_pay()
        {
            let _presence = nic.progress().enter_blocking();
            let until = now().after(LOOK_NS);
            // The background thread may still be in the engine, at the end of the round that brought the last event.
            while spin.look(nic, None, || self.has_cookie()) == Looked::Done
                && !self.has_cookie()
                && now() < until
            {
                std::hint::spin_loop();
            }
        }
        let has_event = self.has_cookie();
        if !has_event {
            self.armed_ns.store(now().as_nanos(), Ordering::Relaxed);
        }
        has_event
    }

    /// The cookie of the next completion queue with news. While it blocks, the calling thread runs the
    /// engine.
    ///
    /// # Errors
    /// EAGAIN if the descriptor is non-blocking and there is none; EINTR when a signal came.
    pub fn wait(&self) -> io::Result<u64> {
        let had_some = self.has_cookie();
        loop {
            if let Some(cookie) = self.cookies.pop_or_refuse()? {
                self.note_wait(had_some);
                return Ok(cookie);
            }
            self.note_wait(false);
            match self.nic.upgrade() {
                Some(nic) => self.run_engine_until_readable(&nic)?,
                None => self.cookies.wait()?,
            }
        }
    }

    /// The program asked for an event, and had to wait for it, or not.
    fn note_wait(&self, had_some: bool) {
        let ready_waits = if had_some {
            (self.ready_waits.load(Ordering::Relaxed) + 1).min(READY_WAITS)
        } else {
            0
        };
        self.ready_waits.store(ready_waits, Ordering::Relaxed);
    }

    fn has_cookie(&self) -> bool {
        self.cookies.has_some()
    }

    fn run_engine_until_readable(&self, nic: &Arc<Nic>) -> io::Result<()> {
        if self.has_cookie() {
            return Ok(());
        }
        let presence = nic.progress().enter_blocking();
        let kept = self
            .waiter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let mut watcher = match kept {
            Some(watcher) => watcher,
            None => self.new_watcher(nic)?,
        };
        let result = self.wait_with(nic, &mut watcher);
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
        drop(presence);
        if nic.is_unfinished() {
            // The program has an event to see to, which may take it long.
            nic.progress().take_over();
        }
        result
    }

    fn new_watcher(&self, nic: &Nic) -> io::Result<Watcher> {
        let waiter = Waiter::new()?;
        waiter.add(self.cookies.fd(), u64::MAX, Interest::READ)?;
        let watched = nic.watch(&waiter)?;
        Ok(Watcher {
            waiter,
            watched,
            spin: Spin::default(),
        })
    }

    fn wait_with(&self, nic: &Nic, watcher: &mut Watcher) -> io::Result<()> {
        loop {
            if nic.is_stale(&watcher.watched) {
                *watcher = self.new_watcher(nic)?;
            }
            let mut deadline = nic.run_waiting().wanted_at;
            if self.has_cookie() {
                return Ok(());
            }
            match watcher.spin.look(nic, deadline, || self.has_cookie()) {
                Looked::Done if self.has_cookie() => return Ok(()),
                Looked::Done => {}
                Looked::InVain(wanted_at) => deadline = wanted_at,
            }
            let since = now();
            let timeout_ns = deadline.map(|at| at.since(since));
            let ready = watcher.waiter.wait(timeout_ns)?;
            nic.forget_errors(ready);
            if !ready.is_empty() {
                watcher.spin.note_sleep(now().since(since));
            }
            if ready.is_empty() && timeout_ns.is_none() {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
        }
    }
}
