//! What the child of a fork has of its parent's communication management: event files, identifiers
//! and listeners, but no connections and no queue pairs. The parent is served as long as it lives.
//! Once it has ended, as one that calls daemon(3) does, the child takes its place: what it
//! inherited is its own agent's then, under the same descriptors and numbers.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::agent::{AGENT, Agent, Inner, MAKING};
use super::files::EventFile;
use super::id::{CmEventKind, CmParam, Group, Id, State};
use crate::process::across_fork::{AcrossFork, Held};
use crate::process::blocking::Waiting;
use crate::process::fork::{Part, hold, in_child};
use crate::process::threads::with_signals_blocked;

/// A child that uses what it inherited waits for its parent to end at most so long, unless it asks
/// for events: after daemon(3) either may be first.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// How often to look whether a process has ended, where the kernel does not tell.
const LOOK: Duration = Duration::from_millis(50);

/// What waits for those to end that are served before this process.
#[derive(Default)]
struct Inherited {
    /// This process.
    process: u32,
    elders: Vec<Elder>,
    files: HashMap<u64, EventFile>,
    ids: BTreeMap<u32, Id>,
    groups: HashMap<u32, Group>,
}

static INHERITED: AcrossFork<Option<Inherited>> = AcrossFork::new(None);
/// Whether there is something in it: nearly always not.
static IS_THERE: AtomicBool = AtomicBool::new(false);

/// The parent, or the parent's.
struct Elder {
    process: u32,
    /// Readable once it has ended; absent where the kernel or a sandbox has none (pidfd_open(2)).
    ended: Option<Arc<OwnedFd>>,
}

impl Elder {
    /// None if it has ended. (That this process has another parent by now does not say so: one that
    /// exits gives up its children before its names.)
    fn parent(process: u32) -> Option<Self> {
        // SAFETY: plain integers; a descriptor that is not negative is ours.
        let ended = unsafe {
            match libc::syscall(libc::SYS_pidfd_open, process, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                fd => Ok(Arc::new(OwnedFd::from_raw_fd(fd as RawFd))),
            }
        };
        match ended {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            ended => Some(Self {
                process,
                ended: ended.ok(),
            }),
        }
    }

    fn has_ended(&mut self) -> bool {
        if let Some(ended) = &self.ended {
            match wait_for_any(&mut [poll_entry(ended)], Some(Duration::ZERO)) {
                0 => return false,
                libc::POLLNVAL => {
                    // A program that becomes a daemon closes all descriptors that it does not know.
                    std::mem::forget(self.ended.take());
                }
                _ => return true,
            }
        }
        // SAFETY: plain integers.
        let asked = unsafe { libc::kill(self.process.cast_signed(), 0) };
        let error = std::io::Error::last_os_error();
        asked != 0 && error.raw_os_error() == Some(libc::ESRCH)
    }
}

fn poll_entry(fd: &OwnedFd) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// What there is of any of them before the time is over; 0 is nothing.
fn wait_for_any(fds: &mut [libc::pollfd], at_most: Option<Duration>) -> libc::c_short {
    let timeout_ms = at_most.map_or(-1, |at_most| {
        i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the entries live until the call returns.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
    fds.iter().fold(0, |all, fd| all | fd.revents)
}

/// Lets a fork take the locks of communication management, and its child set aside what its parent
/// had.
pub(crate) fn hold_over_forks() {
    hold(Part::Inherited, &INHERITED);
    hold(Part::MakingAgent, &MAKING);
    hold(Part::Agent, &AgentLock);
    in_child(Part::Inherited, inherit);
}

/// That of the process's agent, which a child replaces.
struct AgentLock;

impl AgentLock {
    fn agent() -> Option<&'static Agent> {
        // SAFETY: null, or an agent, which is never freed.
        unsafe { AGENT.load(Ordering::Acquire).as_ref() }
    }
}

impl Held for AgentLock {
    fn hold(&self, at_most: Duration) -> bool {
        Self::agent().is_some_and(|agent| agent.inner.hold(at_most))
    }

    unsafe fn release(&self) {
        if let Some(agent) = Self::agent() {
            // SAFETY: by the caller's promise, of the same agent: nothing replaces one that is
            // locked.
            unsafe { agent.inner.release() };
        }
    }
}

/// In the child of a fork, in which nothing is locked: sets aside what its parent had.
fn inherit() {
    // SAFETY: null, or an agent, which is never freed.
    let agent = unsafe { AGENT.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() };
    // A lock that the fork did not get is another thread's, or this one was interrupted with it:
    // such a child inherits nothing.
    let Some(mut place) = INHERITED.try_lock() else {
        return;
    };
    let mut inherited = place.take().unwrap_or_default();
    let mut parent = Some(inherited.process).filter(|parent| *parent != 0);
    if let Some(agent) = agent
        && let Some(mut inner) = agent.inner.try_lock()
    {
        parent = Some(agent.process);
        inherited.files.extend(std::mem::take(&mut inner.files));
        inherited.ids.extend(std::mem::take(&mut inner.ids));
        inherited.groups.extend(std::mem::take(&mut inner.groups));
    }
    IS_THERE.store(!inherited.files.is_empty(), Ordering::Release);
    if inherited.files.is_empty() {
        return;
    }
    inherited.process = std::process::id();
    inherited.elders.extend(parent.and_then(Elder::parent));
    let listens = inherited
        .ids
        .values()
        .any(|id| id.state == State::Listening);
    *place = Some(inherited);
    drop(place);
    if listens {
        // A program may wait for requests without calling anything of ours.
        let builder = std::thread::Builder::new().name("urxe-cm".into());
        let taken_over = with_signals_blocked(|| builder.spawn(|| take_over(None)));
        if let Err(error) = taken_over {
            log::warn!("the child of a fork does not listen in its parent's place: {error}");
        }
    }
}

/// Whether a file is among what was inherited and is not this process's yet.
pub(super) fn has(file: u64) -> bool {
    let has = |inherited: &Inherited| inherited.files.contains_key(&file);
    IS_THERE.load(Ordering::Acquire) && INHERITED.lock().as_ref().is_some_and(has)
}

/// Ends an identifier of a file that was inherited and is not this process's yet. Returns how many
/// events of it the program got.
pub(super) fn remove_id(file: u64, number: u32) -> Option<u32> {
    let mut place = INHERITED.lock();
    let inherited = place.as_mut()?;
    let id = inherited.ids.get(&number).filter(|id| id.file == file)?;
    let events_reported = id.events_reported;
    inherited.ids.remove(&number);
    inherited.groups.retain(|_, group| group.of != number);
    Some(events_reported)
}

/// Ends a file, and what belongs to it, that was inherited and is not this process's yet.
pub(super) fn remove_file(file: u64) {
    if let Some(inherited) = INHERITED.lock().as_mut() {
        inherited.files.remove(&file);
        inherited.ids.retain(|_, id| id.file != file);
        inherited.groups.retain(|_, group| group.file != file);
    }
}

/// Waits until all have ended that are served before this process, or so long, and then has what
/// they had. Whether it has.
pub(super) fn take_over(at_most: Option<Duration>) -> bool {
    let end = at_most.map(|at_most| Instant::now() + at_most);
    loop {
        let mut place = INHERITED.lock();
        let Some(inherited) = place.as_mut() else {
            return true;
        };
        inherited.elders.retain_mut(|elder| !elder.has_ended());
        if inherited.elders.is_empty() {
            // Locked until the agent has it all, so that no thread finds it in neither place.
            let adopted = Agent::get().map(|agent| {
                let inherited = place.take().unwrap_or_default();
                agent.with(|inner| inner.adopt(inherited));
            });
            if let Err(error) = &adopted {
                log::warn!("the child of a fork does not take its parent's place: {error}");
            }
            IS_THERE.store(adopted.is_err(), Ordering::Release);
            return adopted.is_ok();
        }
        // Kept meanwhile, as another thread may be the one that takes over, and the numbers come
        // again.
        let told = inherited
            .elders
            .iter()
            .filter_map(|elder| elder.ended.clone());
        let told: Vec<_> = told.collect();
        let mut fds: Vec<_> = told.iter().map(|ended| poll_entry(ended)).collect();
        let are_all_told = fds.len() == inherited.elders.len();
        drop(place);
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let look = (!are_all_told).then_some(LOOK);
        wait_for_any(&mut fds, left.into_iter().chain(look).min());
    }
}

/// What to wait for before it is worth another try to take over; `held` keeps its descriptor
/// meanwhile, as another thread may be the one that takes over.
pub(super) fn waiting(held: &mut Option<Arc<OwnedFd>>) -> Waiting {
    let place = INHERITED.lock();
    let elder = place
        .as_ref()
        .and_then(|inherited| inherited.elders.first());
    *held = elder.and_then(|elder| elder.ended.clone());
    match held {
        Some(ended) => Waiting {
            fd: ended.as_raw_fd(),
            timeout_ns: None,
        },
        // Of a descriptor below 0 there is no news.
        None => Waiting {
            fd: -1,
            timeout_ns: u64::try_from(LOOK.as_nanos()).ok(),
        },
    }
}

impl Inner {
    fn adopt(&mut self, inherited: Inherited) {
        let mut files = inherited.files;
        files.retain(|_, file| file.is_programs() && self.watch.add_writer(&file.ours).is_ok());
        let (mut connected, mut bound) = (Vec::new(), Vec::new());
        for (number, mut id) in inherited.ids {
            // A request that the program did not take went with the connection's other end.
            if !files.contains_key(&id.file) || id.listener.is_some() {
                continue;
            }
            (id.comm, id.requests, id.tcp, id.pending) = (None, None, None, 0);
            if id.reservation.take().is_some() {
                bound.push((number, id.state));
            }
            match id.state {
                State::Connecting | State::Connected => {
                    id.state = State::Disconnected;
                    connected.push(number);
                }
                State::Listening => id.state = State::Bound,
                _ => {}
            }
            self.ids.insert(number, id);
        }
        let groups = inherited.groups.into_iter();
        self.groups
            .extend(groups.filter(|(_, group)| self.ids.contains_key(&group.of)));
        for file in files.values_mut() {
            let ids = &self.ids;
            file.take_silently(|event| {
                event.kind == CmEventKind::ConnectRequest || !ids.contains_key(&event.of)
            });
            file.settle();
        }
        self.files.extend(files);
        for (number, state) in bound {
            if let Err(error) = self.bind_again(number, state) {
                log::warn!("the child of a fork has lost an address of its parent's: {error}");
            }
        }
        for number in connected {
            self.push(number, CmEventKind::Disconnected, 0, CmParam::None);
        }
        self.is_stale = true;
    }

    /// Takes the address of an identifier again, and listens there if it did.
    fn bind_again(&mut self, number: u32, state: State) -> std::io::Result<()> {
        let Some(source) = self.id(number)?.source else {
            return Ok(());
        };
        let reservation = self.reserve_port(number, source)?;
        let entry = self.id(number)?;
        entry.reservation = Some(reservation);
        let backlog = entry.backlog;
        if state == State::Listening {
            self.listen(number, backlog)?;
        }
        Ok(())
    }
}
