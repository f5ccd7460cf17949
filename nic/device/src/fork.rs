//! fork(2). The parent goes on as if nothing had happened. The child has copies of everything, but no background thread, and what
//! other threads of the parent were amid stays as it was. So the child uses nothing that its parent made: sockets and names are
//! taken from it at once, and [`epoch`](crate::epoch) tells of an object whether it is inherited. What belongs to the
//! process as a whole is behind locks that a fork waits for ([`AcrossFork`](crate::AcrossFork)).
//!
//! A program may fork in a signal handler that has interrupted this library anywhere, also with such a lock or an engine. So a fork asks
//! nothing of engines, and waits for a lock in bounded time. The child of one that did not get a lock has to do without what is behind it.

use std::cell::Cell;
use std::sync::{Once, OnceLock};
use std::time::Duration;

use crate::across_fork::{Held, begin_epoch, has_locked, is_inside};
use crate::cm;
use crate::exit::OPENED;
use crate::gid_table::TABLES;
use crate::guard::INSTALLING;
use crate::usage::BACKGROUND;

use crate::stat::SERVING;
use crate::tap::TAPS;

/// A fork waits for a lock at most so long: the thread that has it may wait for the one that forks.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same in a signal handler that may have interrupted this thread with that lock.
const PATIENCE_INSIDE: Duration = Duration::from_millis(10);

thread_local! {
    /// How deep the thread is in forks, and which locks, in the order of [`all`], it took for the outermost.
    static FORKING: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

/// The locks of the crates that use this one, which come before ours.
static OTHERS: OnceLock<&'static [&'static dyn Held]> = OnceLock::new();

/// Ours, in the order in which they are taken.
fn all() -> impl Iterator<Item = &'static dyn Held> {
    let others = OTHERS.get().copied().unwrap_or_default();
    let agent = cm::agent_locks();
    let ours: [&'static dyn Held; 6] =
        [&OPENED, &TAPS, &SERVING, &INSTALLING, &TABLES, &BACKGROUND];
    others.iter().copied().chain(agent).chain(ours)
}

/// To be called before anything is locked that a fork waits for; the first call counts. `others` are locks of a crate that uses this
/// one, to be taken in this order and before ours. At most 50.
pub fn prepare_for_fork(others: &'static [&'static dyn Held]) {
    let _ = OTHERS.set(others);
    prepare();
}

/// Installs the handlers, once.
pub(crate) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers may run at any fork. If they cannot be installed, only children that do
        // not start another program notice.
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
    for (index, lock) in all().enumerate() {
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
    for (index, lock) in all().enumerate() {
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
    // What the parent owes its peers is the parent's to send, and its threads are not here. A lock that the fork did not get is left.
    if let Some(mut opened) = OPENED.try_lock() {
        opened.clear();
    }
    if let Some(mut background) = BACKGROUND.try_lock() {
        background.clear();
    }
    cm::inherit();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::across_fork::{AcrossFork, epoch};

    /// What the child of a fork finds.
    fn in_child(what: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing but what may be called after a fork of a program with threads.
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
    fn child_finds_unlocked<T: Send>(lock: &'static AcrossFork<T>) -> bool {
        prepare();
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
    fn a_child_finds_nothing_locked_by_a_thread_that_it_does_not_have() {
        assert!(child_finds_unlocked(&BACKGROUND));
        assert!(child_finds_unlocked(&TABLES));
        assert!(child_finds_unlocked(&OPENED));
    }

    /// As in a signal handler that has interrupted it.
    #[test]
    fn who_forks_with_a_lock_has_it_in_parent_and_child() {
        prepare();
        let before = epoch();
        let locked = TABLES.lock();
        let is_locked = || TABLES.try_lock().is_none();
        assert!(in_child(|| is_locked() && epoch() == before + 1));
        assert!(is_locked());
        drop(locked);
        assert!(in_child(|| TABLES.try_lock().is_some()));
    }
}
