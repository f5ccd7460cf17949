//! Every order in which threads that wait and threads that signal may run, as far as the memory
//! model of C11 allows it (loom). No thread sleeps over work, and what comes late does not wake for
//! ever.
#![allow(unreachable_pub, reason = "the file that is shared is public there")]

#[path = "../src/wakeup/gate.rs"]
mod gate;

use std::io;

use gate::Wakeup;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
}

/// What an eventfd is to both sides.
#[derive(Debug, Default)]
struct Event {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Event {
    fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    fn write(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_one();
    }

    fn take(&self) -> u64 {
        std::mem::take(&mut *self.count.lock().unwrap())
    }

    /// As epoll_wait(2) does without a timeout.
    fn wait(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.changed.wait(count).unwrap();
        }
    }
}

/// Waits as `Wakeup` says until so much work is there.
fn wait_for(wakeup: &Wakeup, work: &AtomicU32, wanted: u32) {
    while work.load(Ordering::Acquire) < wanted {
        wakeup.arm();
        if work.load(Ordering::Acquire) < wanted {
            wakeup.event.wait();
        }
        wakeup.disarm();
    }
}

/// All orders in which no more than so many times a thread is stopped that could go on: all of them
/// would be too many.
fn model(signallers: u32, interruptions: usize) {
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = Some(interruptions);
    // A thread that never wakes is a deadlock, which loom finds.
    orders.check(move || {
        let shared = Arc::new((Wakeup::new().unwrap(), AtomicU32::new(0)));
        let threads: Vec<_> = (0..signallers)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.fetch_add(1, Ordering::Release);
                    shared.0.signal();
                })
            })
            .collect();
        wait_for(&shared.0, &shared.1, signallers);
        for thread in threads {
            thread.join().unwrap();
        }
        // All signals are written by now. The next wait may end early by them, the one after it
        // not.
        for _ in 0..2 {
            shared.0.arm();
            shared.0.disarm();
        }
        assert_eq!(shared.0.event.take(), 0, "a signal stays for ever");
    });
}

#[test]
fn whoever_waits_is_woken() {
    model(1, 3);
}

#[test]
fn whoever_waits_for_two_is_woken() {
    model(2, 2);
}
