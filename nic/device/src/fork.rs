//! fork(2). The parent goes on as if nothing had happened. The child has copies of everything, but no
//! background thread, and sockets that are the parent's: it lets go of them, lest it takes the parent's
//! packets or holds its port. It may end, start another program, destroy what it inherited, or open
//! devices of its own; queue pairs that it inherited are without a network.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use crate::engine::Engine;
use crate::exit::OPENED;
use crate::gid_table::{TABLES, Table};
use crate::idle::BACKGROUND;
use crate::nic::Nic;

/// What is locked while the process is copied, so that the copy is whole.
struct Held {
    /// Dropped before what they lock.
    engines: Vec<MutexGuard<'static, Engine>>,
    opened: MutexGuard<'static, Vec<Weak<Nic>>>,
    /// What background threads lock, of which the program may know nothing.
    _background: MutexGuard<'static, Vec<libc::clockid_t>>,
    _gid_tables: MutexGuard<'static, BTreeMap<u32, Table>>,
    /// Last: one that ends waits for its thread.
    nics: Vec<Arc<Nic>>,
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Between the handlers, which run on the thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
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
    let opened = lock(&OPENED);
    let nics: Vec<Arc<Nic>> = opened.iter().filter_map(Weak::upgrade).collect();
    let lock_engine = |nic: &Arc<Nic>| {
        // SAFETY: the device is kept alive beside the guard, which is dropped first.
        unsafe {
            std::mem::transmute::<MutexGuard<'_, Engine>, MutexGuard<'static, Engine>>(nic.engine())
        }
    };
    let engines = nics.iter().map(lock_engine).collect();
    let held = Held {
        engines,
        nics,
        opened,
        _background: lock(&BACKGROUND),
        _gid_tables: lock(&TABLES),
    };
    // A thread that ends has no place to keep it, and cannot be the one that forks.
    let _ = HELD.try_with(|place| place.borrow_mut().replace(held));
}

extern "C" fn after_in_parent() {
    let _ = HELD.try_with(|place| place.borrow_mut().take());
}

extern "C" fn after_in_child() {
    crate::cm::abandon_in_child();
    let _ = HELD.try_with(|place| {
        let Some(held) = place.borrow_mut().take() else {
            return;
        };
        let Held {
            engines,
            nics,
            mut opened,
            ..
        } = held;
        drop(engines);
        // What the parent owes its peers is the parent's to send.
        opened.clear();
        drop(opened);
        for nic in &nics {
            nic.abandon();
        }
    });
}

impl Nic {
    /// Lets go of what belongs to the parent process.
    fn abandon(&self) {
        self.progress().abandon();
        let Ok(nothing) = std::fs::OpenOptions::new().read(true).open("/dev/null") else {
            return;
        };
        for fd in self.abandon_sockets() {
            // SAFETY: plain integers. The number stays taken, by something that never has a packet.
            unsafe { libc::dup3(nothing.as_fd().as_raw_fd(), fd, libc::O_CLOEXEC) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// Forks while another thread has `mutex`, and has the child try to lock it.
    fn child_finds_unlocked<T: Send>(mutex: &'static Mutex<T>) -> bool {
        prepare();
        let (locked, is_locked) = channel();
        let holder = std::thread::spawn(move || {
            let guard = mutex.lock();
            locked.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            drop(guard);
        });
        is_locked.recv().unwrap();
        // SAFETY: the child calls nothing but what may be called after a fork of a program with threads.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(mutex.try_lock().is_err()));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        };
        holder.join().unwrap();
        status == 0
    }

    #[test]
    fn a_child_finds_nothing_locked_by_a_thread_that_it_does_not_have() {
        assert!(child_finds_unlocked(&BACKGROUND));
        assert!(child_finds_unlocked(&TABLES));
        assert!(child_finds_unlocked(&OPENED));
    }
}
