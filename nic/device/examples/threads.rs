//! How threads of a program scale: each has a queue pair, a completion queue and the peer of both,
//! and sends messages to and fro. All share one context at each end, or each has contexts of its
//! own. A context is an engine with sockets, and a lock.
//!
//! `threads [THREADS [SECONDS]]` prints a line for each number of threads up to so many (default:
//! as many as there are processors): messages a second and thread of both kinds, and what threads
//! of one context keep of what threads with contexts of their own have. Threads are bound to
//! processors in turn. The ends of a thread are polled by it alone, so that no thread waits for
//! another but at the lock.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use support::threads::{pin, processors};
use support::{End, Peer, TIMEOUT};
use urxe_device::{Mtu, SendOp, WcStatus};

const LENGTH_BYTES: usize = 64;
/// Receives that are posted ahead.
const AHEAD: usize = 16;

/// Polls until `count` more completions came.
fn take(end: &End, count: usize) {
    let mut taken = 0;
    while taken < count {
        taken += end.cq.poll(count - taken, |completion| {
            assert_eq!(completion.status, WcStatus::Success);
        });
    }
}

/// Sends to and fro between two ends until it is over; returns how many messages.
fn ping_pong(ends: [End; 2], begin: &Barrier, is_over: &AtomicBool) -> u64 {
    let (left, right) = Peer::pair(ends, Mtu::B4096, TIMEOUT);
    for peer in [&left, &right] {
        (0..AHEAD).for_each(|_| peer.post_recv(0, &[peer.sge(0, LENGTH_BYTES)]));
    }
    begin.wait();
    let mut messages = 0;
    while !is_over.load(Ordering::Relaxed) {
        for (from, to) in [(&left, &right), (&right, &left)] {
            from.post(0, SendOp::Send, &[from.sge(0, LENGTH_BYTES)]);
            // The message, and the completion of the one before, which it acknowledges.
            take(to, if messages == 0 { 1 } else { 2 });
            to.post_recv(0, &[to.sge(0, LENGTH_BYTES)]);
            messages += 1;
        }
    }
    messages
}

/// Messages a second and thread.
fn measure(threads: usize, is_shared: bool, time: Duration) -> f64 {
    let shared = [(); 2].map(|()| End::new(LENGTH_BYTES));
    let (begin, is_over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let places = processors();
    let all: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|index| {
                let (shared, begin, is_over) = (&shared, &begin, &is_over);
                let place = places[index % places.len()];
                scope.spawn(move || {
                    pin(place);
                    let own = [0, 1].map(|side: usize| match is_shared {
                        true => End::of(shared[side].nic.clone(), LENGTH_BYTES),
                        false => End::new(LENGTH_BYTES),
                    });
                    ping_pong(own, begin, is_over)
                })
            })
            .collect();
        begin.wait();
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    });
    all as f64 / time.as_secs_f64() / threads as f64
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| {
        argument
            .parse()
            .expect("a number of threads, and of seconds")
    });
    let most = arguments.next().unwrap_or_else(|| processors().len());
    let time = Duration::from_secs(arguments.next().unwrap_or(2) as u64);
    println!("threads  own contexts/s  one context/s  ratio");
    for threads in 1..=most {
        let [own, one] = [false, true].map(|is_shared| measure(threads, is_shared, time));
        println!("{threads:7}  {own:14.0}  {one:13.0}  {:5.2}", one / own);
    }
}
