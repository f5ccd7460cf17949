//! Completion channels: a descriptor that is readable when a completion queue has news.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use urxe_duty::constants::LOOK_ARMED_NS;
use urxe_duty::{EventWaits, Looker};
use urxe_proto::Instant;
use urxe_udp::{Interest, Waiter};

use crate::blocking::{self, BlockingCall, Step, Waiting};
use crate::clock::now;
use crate::look::{Looked, look};
use crate::nic::Nic;
use crate::signalled::{EventFd, Signalled};

/// What a thread that blocks waits with: the channel's descriptor and the sockets.
#[derive(Debug)]
struct Watcher {
    waiter: Waiter,
    /// Tells when the sockets have changed.
    watched: Arc<EventFd>,
    looker: Looker,
}

/// A completion channel. Completion queues that were armed put their cookies into it.
#[derive(Debug)]
pub struct CompletionChannel {
    nic: Weak<Nic>,
    cookies: Signalled<u64>,
    /// [`EventWaits`].
    event_waits: AtomicU32,
    /// When the program armed a queue last, to wait for the descriptor by itself, nanoseconds; 0 once an event has come.
    armed_ns: AtomicU64,
    /// Whether it pays to look for packets then.
    looker: Mutex<Looker>,
    /// Waits for the descriptor and the sockets; kept between calls, made anew for a second thread.
    waiter: Mutex<Option<Box<Watcher>>>,
}

impl CompletionChannel {
    pub(crate) fn new(nic: &Arc<Nic>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            nic: Arc::downgrade(nic),
            cookies: Signalled::new()?,
            event_waits: AtomicU32::new(EventWaits::new().to_bits()),
            armed_ns: AtomicU64::new(0),
            looker: Mutex::new(Looker::heedless()),
            waiter: Mutex::new(None),
        }))
    }

    /// The descriptor: readable while events wait. It may be polled and made non-blocking, not read.
    #[must_use]
    pub fn fd(&self) -> RawFd {
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

    /// Whether the program blocks in [`Self::wait`], so that nobody else has to watch the sockets. Who waits for the descriptor in a
    /// `poll` of its own finds an event there.
    pub(crate) fn is_waited_in(&self) -> bool {
        self.event_waits().are_in_channel()
    }

    /// The program is about to wait for the descriptor in a `poll` of its own, until which it may be woken twice, with the background
    /// thread in between: looks for packets before, where that has paid, until there is an event. Whether there is one, of
    /// this queue or another: should the program then wait on for this one alone, the background thread notices within 2 ms.
    pub(crate) fn look(&self, nic: &Nic) -> bool {
        if let Ok(mut looker) = self.looker.try_lock()
            && looker.may_pay()
        {
            let _presence = nic.progress().enter_blocking();
            let until = now().after(LOOK_ARMED_NS);
            // The background thread may still be in the engine, at the end of the round that brought the last event.
            while look(&mut looker, nic, None, || self.has_cookie()) == Looked::Done
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
    /// EAGAIN if the descriptor is non-blocking and there is none; EINTR when a signal handler ran; EBADF once it is closed.
    pub fn wait(self: &Arc<Self>) -> io::Result<u64> {
        blocking::finish(self.begin_wait())
    }

    /// The same in steps.
    #[must_use]
    pub fn begin_wait(self: &Arc<Self>) -> ChannelWait {
        ChannelWait {
            channel: Arc::clone(self),
            engine: None,
        }
    }

    /// Ends it: whoever waits gets EBADF, now and later.
    pub fn close(&self) {
        self.cookies.close();
    }

    /// The program asked for an event, and had to wait for it, or not.
    fn note_wait(&self, has_waited: bool) {
        let waits = self.event_waits().after(has_waited);
        self.event_waits.store(waits.to_bits(), Ordering::Relaxed);
    }

    fn event_waits(&self) -> EventWaits {
        EventWaits::from_bits(self.event_waits.load(Ordering::Relaxed))
    }

    fn has_cookie(&self) -> bool {
        self.cookies.has_some()
    }

    fn watcher(&self) -> MutexGuard<'_, Option<Box<Watcher>>> {
        self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_watcher(&self, nic: &Nic) -> io::Result<Box<Watcher>> {
        let waiter = Waiter::new()?;
        waiter.add(self.cookies.fd(), u64::MAX, Interest::READ)?;
        let watched = nic.watch(&waiter)?;
        Ok(Box::new(Watcher {
            waiter,
            watched,
            looker: Looker::default(),
        }))
    }
}

/// A thread of the program in [`CompletionChannel::wait`].
#[derive(Debug)]
pub struct ChannelWait {
    channel: Arc<CompletionChannel>,
    /// Since the first step that found no event.
    engine: Option<InEngine>,
}

/// A thread of the program that runs the engine while it waits.
#[derive(Debug)]
struct InEngine {
    nic: Arc<Nic>,
    channel: Arc<CompletionChannel>,
    /// Absent only while it is being dropped.
    watcher: Option<Box<Watcher>>,
    /// When it began to wait.
    since: Instant,
}

impl BlockingCall for ChannelWait {
    type Answer = u64;

    fn step(&mut self, is_ready: bool) -> Step<u64> {
        if let Some(engine) = self.engine.as_mut().filter(|_| is_ready) {
            engine.note_ready();
        }
        let mut is_ready = is_ready;
        loop {
            // Who waits already is not asked again whether it wants to.
            if self.engine.is_none() || self.channel.has_cookie() {
                let popped = self.channel.cookies.pop_or_refuse();
                if let Some(result) = popped.transpose() {
                    if result.is_ok() {
                        self.channel.note_wait(self.engine.is_some());
                    }
                    self.engine = None;
                    return Step::Done(result);
                }
            }
            match self.run_engine(is_ready) {
                Ok(None) => is_ready = false,
                Ok(Some(waiting)) => return Step::Wait(waiting),
                Err(error) => return Step::Done(Err(error)),
            }
        }
    }
}

impl ChannelWait {
    /// Runs the engine. What to wait for then, if there is no event.
    fn run_engine(&mut self, is_ready: bool) -> io::Result<Option<Waiting>> {
        self.channel.note_wait(true);
        let engine = match &mut self.engine {
            Some(engine) => engine,
            None => {
                let Some(nic) = self.channel.nic.upgrade() else {
                    return Ok(Some(Waiting {
                        fd: self.channel.fd(),
                        timeout_ns: None,
                    }));
                };
                self.engine.insert(InEngine::enter(nic, &self.channel)?)
            }
        };
        engine.run(is_ready)
    }
}

impl InEngine {
    fn enter(nic: Arc<Nic>, channel: &Arc<CompletionChannel>) -> io::Result<Self> {
        let kept = channel.watcher().take();
        let watcher = match kept {
            Some(watcher) => watcher,
            None => channel.new_watcher(&nic)?,
        };
        nic.progress().enter();
        Ok(Self {
            nic,
            channel: Arc::clone(channel),
            watcher: Some(watcher),
            since: now(),
        })
    }

    /// Something woke the thread.
    fn note_ready(&mut self) {
        let slept_ns = now().since(self.since);
        if let Some(watcher) = &mut self.watcher {
            watcher.looker.note_sleep(slept_ns);
        }
    }

    fn run(&mut self, is_ready: bool) -> io::Result<Option<Waiting>> {
        let Self {
            nic,
            channel,
            watcher,
            since,
        } = self;
        let fresh = watcher
            .as_ref()
            .filter(|watcher| !nic.is_stale(&watcher.watched));
        if fresh.is_none() {
            *watcher = Some(channel.new_watcher(nic)?);
        }
        let Some(watcher) = watcher else {
            return Ok(None);
        };
        let round = nic.run_waiting();
        let mut deadline = round.wanted_at;
        if channel.has_cookie() {
            return Ok(None);
        }
        if is_ready && round.received == 0 {
            // It may have been an error, which would wake the thread again and again.
            let ready = watcher.waiter.wait(Some(0))?;
            nic.forget_errors(ready);
        }
        match look(&mut watcher.looker, nic, deadline, || channel.has_cookie()) {
            Looked::Done if channel.has_cookie() => return Ok(None),
            Looked::Done => {}
            Looked::InVain(wanted_at) => deadline = wanted_at,
        }
        *since = now();
        Ok(Some(Waiting {
            fd: watcher.waiter.as_raw_fd(),
            timeout_ns: deadline.map(|at| at.since(*since)),
        }))
    }
}

impl Drop for InEngine {
    fn drop(&mut self) {
        *self.channel.watcher() = self.watcher.take();
        self.nic.progress().leave();
        if self.nic.is_unfinished() {
            // The program has an event to see to, which may take it long.
            self.nic.progress().take_over();
        }
    }
}
