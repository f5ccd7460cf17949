//! Completion channels: a descriptor that is readable when a completion queue has news.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use urxe_duty::Looker;
use urxe_proto::Instant;
use urxe_udp::{Interest, Waiter};

use crate::delivery::channel_events::ChannelEvents;
use crate::nic::Nic;
use crate::nic::look::{Looked, look};
use crate::process::blocking::{self, BlockingCall, Step, Waiting};
use crate::process::clock::now;
use crate::process::error::Error;
use crate::process::signalled::EventFd;

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
    events: Arc<ChannelEvents>,
    /// Waits for the descriptor and the sockets; kept between calls, made anew for a second thread.
    waiter: Mutex<Option<Box<Watcher>>>,
}

impl CompletionChannel {
    fn new(nic: &Arc<Nic>) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            nic: Arc::downgrade(nic),
            events: Arc::new(ChannelEvents::new()?),
            waiter: Mutex::new(None),
        }))
    }

    /// The descriptor: readable while events wait. It may be polled and made non-blocking, not
    /// read.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.events.fd()
    }

    pub(crate) const fn events(&self) -> &Arc<ChannelEvents> {
        &self.events
    }

    /// Whether the program blocks in [`Self::wait`], so that no other thread has to watch the
    /// sockets.
    pub(crate) fn is_waited_in(&self) -> bool {
        self.events.is_waited_in()
    }

    /// The program is about to wait for the descriptor in a `poll` of its own, until which it may
    /// be woken twice, with the background thread in between: looks for packets before, where that
    /// has paid, until there is an event. Whether there is one, of this queue or another: should
    /// the program then wait on for this one alone, the background thread notices within 2 ms.
    pub(crate) fn look(&self, nic: &Nic) -> bool {
        if let Ok(mut looker) = self.events.looker.try_lock()
            && looker.may_pay()
        {
            let _presence = nic.progress().enter_blocking();
            look(&mut looker, nic, None, || self.events.has_cookie());
        }
        let has_event = self.events.has_cookie();
        if !has_event {
            self.events.note_armed();
        }
        has_event
    }

    /// The cookie of the next completion queue with news. While it blocks, the calling thread runs
    /// the engine.
    ///
    /// # Errors
    /// EAGAIN if the descriptor is non-blocking and there is none; EINTR when a signal handler ran;
    /// EBADF once it is closed.
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

    /// Ends it: a thread that waits gets EBADF, now and later.
    pub fn close(&self) {
        self.events.cookies.close();
    }

    fn watcher(&self) -> MutexGuard<'_, Option<Box<Watcher>>> {
        self.waiter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_watcher(&self, nic: &Nic) -> io::Result<Box<Watcher>> {
        let waiter = Waiter::new()?;
        waiter.add(self.events.cookies.fd(), u64::MAX, Interest::READ)?;
        let watched = nic.watch(&waiter)?;
        Ok(Box::new(Watcher {
            waiter,
            watched,
            looker: Looker::default(),
        }))
    }
}

impl Nic {
    /// Makes a completion channel.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn create_channel(self: &Arc<Self>) -> Result<Arc<CompletionChannel>, Error> {
        Ok(CompletionChannel::new(self)?)
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
            // A thread that waits already is not asked again whether it wants to.
            if self.engine.is_none() || self.channel.events.has_cookie() {
                let popped = self.channel.events.cookies.pop_or_refuse();
                if let Some(result) = popped.transpose() {
                    if result.is_ok() {
                        self.channel.events.note_wait(self.engine.is_some());
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
        self.channel.events.note_wait(true);
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
        if channel.events.has_cookie() {
            return Ok(None);
        }
        if is_ready && round.received == 0 {
            // It may have been an error, which would wake the thread again and again.
            let ready = watcher.waiter.wait(Some(0))?;
            nic.forget_errors(ready);
        }
        match look(&mut watcher.looker, nic, deadline, || {
            channel.events.has_cookie()
        }) {
            Looked::Done if channel.events.has_cookie() => return Ok(None),
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
