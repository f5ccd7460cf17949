//! fork(2). The parent goes on as if nothing had happened. The child has copies of everything, but
//! no background thread, and what other threads of the parent were amid stays as it was. So the
//! child uses nothing that its parent made: sockets and names are taken from it at once, and
//! [`epoch`](crate::epoch) tells of an object whether it is inherited. What belongs to the process
//! as a whole is behind locks that a fork waits for ([`AcrossFork`](crate::AcrossFork)).
//!
//! A program may fork in a signal handler that has interrupted this library anywhere, also with
//! such a lock or an engine. So a fork asks nothing of engines, and waits for a lock in bounded
//! time. The child of one that did not get a lock has to do without what is behind it.

use std::cell::Cell;
use std::sync::{Once, OnceLock};
use std::time::Duration;

use crate::process::across_fork::{Held, begin_epoch, has_locked, is_inside};

/// A fork waits for a lock at most so long: the thread that has it may wait for the one that forks.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same in a signal handler that may have interrupted this thread with that lock.
const PATIENCE_INSIDE: Duration = Duration::from_millis(10);

thread_local! {
    /// How deep the thread is in forks, and which locks of [`all`] it took for the outermost.
    static FORKING: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

/// The locks of the crates that use this one, which come before ours.
static OTHERS: OnceLock<&'static [&'static dyn Held]> = OnceLock::new();

/// What is ours, in the order in which a fork takes the locks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// What communication management has of the parent's.
    Inherited,
    MakingAgent,
    Agent,
    Opened,
    Taps,
    Serving,
    Installing,
    Tables,
    Background,
}

const PARTS: usize = Part::Background as usize + 1;

static LOCKS: [OnceLock<&'static dyn Held>; PARTS] = [const { OnceLock::new() }; PARTS];
static IN_CHILD: [OnceLock<fn()>; PARTS] = [const { OnceLock::new() }; PARTS];

/// A fork takes this lock from now on. To be called before it is taken otherwise.
pub(crate) fn hold(part: Part, lock: &'static dyn Held) {
    let _ = LOCKS[part as usize].set(lock);
    prepare();
}

/// The child of a fork does this, once nothing is locked in it.
pub(crate) fn in_child(part: Part, what: fn()) {
    let _ = IN_CHILD[part as usize].set(what);
    prepare();
}

/// All locks, each with its place in a set of bits.
fn all() -> impl Iterator<Item = (usize, &'static dyn Held)> {
    let ours = LOCKS.iter().enumerate();
    let ours = ours.filter_map(|(part, lock)| Some((part, *lock.get()?)));
    let others = OTHERS.get().copied().unwrap_or_default().iter().copied();
    others
        .enumerate()
        .map(|(at, lock)| (PARTS + at, lock))
        .chain(ours)
}

/// A fork takes these locks before ours, in this order; the first call counts. At most 50.
pub(crate) fn hold_others(others: &'static [&'static dyn Held]) {
    let _ = OTHERS.set(others);
    prepare();
}

/// Installs the handlers, once.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers may run at any fork. If they cannot be installed, only children that
        // do not start another program notice.
        unsafe { libc::pthread_atfork(Some(before), Some(after_in_parent), Some(after_in_child)) };
    });
}

extern "C" fn before() {
    if !has_locked() {
        return;
    }
    let Ok((depth, taken)) = FORKING.try_with(Cell::get) else {
        return;
    };
    FORKING.set((depth + 1, taken));
    // In a signal handler amid another fork all is locked already.
    if depth > 0 {
        return;
    }
    let patience = if is_inside() {
        PATIENCE_INSIDE
    } else {
        PATIENCE
    };
    let mut taken = 0;
    for (index, lock) in all() {
        taken |= u64::from(lock.hold(patience)) << index;
    }
    FORKING.set((1, taken));
}

/// Gives the locks back.
fn release() {
    if !has_locked() {
        return;
    }
    let Ok((depth, taken)) = FORKING.try_with(Cell::get) else {
        return;
    };
    if depth > 1 {
        FORKING.set((depth - 1, taken));
        return;
    }
    for (index, lock) in all() {
        if taken & 1 << index != 0 {
            // SAFETY: taken in `before`.
            unsafe { lock.release() };
        }
    }
    FORKING.set((0, 0));
}

extern "C" fn after_in_parent() {
    release();
}

extern "C" fn after_in_child() {
    if !has_locked() {
        return;
    }
    begin_epoch();
    urxe_udp::abandon_inherited();
    release();
    // The devices first, whose copies of the parent's communication management may have.
    for what in IN_CHILD.iter().rev().filter_map(OnceLock::get) {
        what();
    }
}

/// Parts without a lock yet, by their places.
#[cfg(test)]
pub(crate) fn unheld() -> Vec<usize> {
    let parts = LOCKS.iter().enumerate();
    let missing = parts.filter(|(_, lock)| lock.get().is_none());
    missing.map(|(part, _)| part).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;
    use crate::attach::gid_table::TABLES;
    use crate::nic::opened::OPENED;
    use crate::process::across_fork::{AcrossFork, epoch};
    use crate::process::usage::BACKGROUND;

    /// What the child of a fork finds.
    fn in_child(what: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing but what may be called after a fork of a program with
        // threads.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(!what()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        status == 0
    }

    /// Forks while another thread has `lock`.
    fn child_finds_unlocked<T: Send>(part: Part, lock: &'static AcrossFork<T>) -> bool {
        hold(part, lock);
        let (locked, is_locked) = channel();
        let holder = std::thread::spawn(move || {
            let guard = lock.lock();
            locked.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            drop(guard);
        });
        is_locked.recv().unwrap();
        let is_free = in_child(|| lock.try_lock().is_some());
        holder.join().unwrap();
        is_free
    }

    #[test]
    fn a_child_finds_nothing_locked_by_a_thread_that_it_lacks() {
        assert!(child_finds_unlocked(Part::Background, &BACKGROUND));
        assert!(child_finds_unlocked(Part::Tables, &TABLES));
        assert!(child_finds_unlocked(Part::Opened, &OPENED));
    }

    /// Threads that the child lacks were taking the lock, and giving it back, when it was copied.
    #[test]
    fn a_child_has_the_locks_that_other_threads_fight_for() {
        const FORKS: usize = 300;
        static LOCK: AcrossFork<u32> = AcrossFork::new(0);
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let fighters: [_; 4] = std::array::from_fn(|_| {
            std::thread::spawn(|| {
                while !IS_OVER.load(Ordering::Relaxed) {
                    if LOCK.hold(Duration::from_micros(1)) {
                        // SAFETY: just taken.
                        unsafe { LOCK.release() };
                    }
                }
            })
        });
        for _ in 0..FORKS {
            while !LOCK.hold(PATIENCE) {}
            let is_fine = in_child(|| {
                // SAFETY: a plain integer, and a lock that the thread's original took.
                unsafe {
                    libc::alarm(60);
                    LOCK.release();
                }
                *LOCK.lock() += 1;
                true
            });
            // SAFETY: taken above.
            unsafe { LOCK.release() };
            assert!(is_fine);
        }
        IS_OVER.store(true, Ordering::Relaxed);
        for fighter in fighters {
            fighter.join().unwrap();
        }
    }

    /// As in a signal handler that has interrupted it.
    #[test]
    fn a_thread_that_forks_with_a_lock_has_it_in_parent_and_child() {
        hold(Part::Tables, &TABLES);
        let before = epoch();
        let locked = TABLES.lock();
        let is_locked = || TABLES.try_lock().is_none();
        assert!(in_child(|| is_locked() && epoch() == before + 1));
        assert!(is_locked());
        drop(locked);
        assert!(in_child(|| TABLES.try_lock().is_some()));
    }
}
