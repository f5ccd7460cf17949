//! Programs that protect what they have registered, and repair the faults: to learn which pages are
//! written, say.
mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use support::apart::{Pages, on_fault, protect};
use support::{End, Peer, TIMEOUT};
use urxe_device::{Mtu, Nic, SendOp, Sge, WcStatus};

const PAGE: usize = 4096;
const LEN: usize = 16 * PAGE;

/// What the handler is asked for.
static REPAIRS: AtomicBool = AtomicBool::new(true);
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// The device whose lock has to be free when the handler runs.
static WATCHED: Mutex<Option<Arc<Nic>>> = Mutex::new(None);

extern "C" fn repair(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives it.
    let at = unsafe { (*info).si_addr() } as usize;
    FAULTS.fetch_add(1, Ordering::Relaxed);
    FIRST
        .compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed)
        .ok();
    // It would wait for ever for a lock that this very thread has.
    if let Some(nic) = WATCHED.lock().unwrap().as_ref() {
        let _ = nic.stats();
    }
    if REPAIRS.load(Ordering::Relaxed) {
        protect(at & !(PAGE - 1), PAGE, libc::PROT_READ | libc::PROT_WRITE);
    }
}

/// Has the process's handler for itself, which makes pages accessible, or leaves them as they are.
fn alone(repairs: bool) -> MutexGuard<'static, ()> {
    let alone = support::alone();
    on_fault(repair);
    REPAIRS.store(repairs, Ordering::Relaxed);
    alone
}

/// The bytes, which can be read.
fn bytes(pages: &Pages, len: usize) -> Vec<u8> {
    // SAFETY: pages of this test's own, that are readable when this is called.
    unsafe { std::slice::from_raw_parts(pages.at as *const u8, len) }.to_vec()
}

struct Pair {
    a: Peer,
    b: Peer,
}

impl Pair {
    fn new() -> Self {
        let (a, b) = Peer::pair([End::new(LEN), End::new(LEN)], Mtu::B4096, TIMEOUT);
        *WATCHED.lock().unwrap() = Some(Arc::clone(&b.nic));
        FAULTS.store(0, Ordering::Relaxed);
        FIRST.store(0, Ordering::Relaxed);
        Self { a, b }
    }

    fn run(&self, op: SendOp, sge: Sge) -> WcStatus {
        self.a.run(&self.b, op, sge)
    }

    /// Waits until the handler has been told of so many faults.
    fn wait_for_faults(&self, count: usize) {
        while FAULTS.load(Ordering::Relaxed) < count {
            for end in [&self.b, &self.a] {
                end.cq
                    .poll(1, |completion| panic!("unexpected {completion:?}"));
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        *WATCHED.lock().unwrap() = None;
    }
}

#[test]
fn a_peers_writes_land_and_the_handler_is_told_of_each_page() {
    let _alone = alone(true);
    for rights in [libc::PROT_READ, libc::PROT_NONE] {
        let pair = Pair::new();
        let pages = Pages::new(&pair.b, LEN);
        protect(pages.at, LEN, rights);
        let status = pair.run(pages.write_op(), pair.a.sge(0, 3 * PAGE));
        assert_eq!(status, WcStatus::Success);
        pair.wait_for_faults(3);
        assert_eq!(FAULTS.load(Ordering::Relaxed), 3);
        assert_eq!(bytes(&pages, 3 * PAGE), pair.a.buffer[..3 * PAGE]);
        let again = pair.run(pages.write_op(), pair.a.sge(0, 3 * PAGE));
        assert_eq!(again, WcStatus::Success);
        assert_eq!(FAULTS.load(Ordering::Relaxed), 3, "they are accessible now");
    }
}

#[test]
fn receives_and_atomics_too() {
    let _alone = alone(true);
    let pair = Pair::new();
    let pages = Pages::new(&pair.b, LEN);
    protect(pages.at, LEN, libc::PROT_READ);
    pair.b.post_recv(2, &[pages.sge(1_000)]);
    let status = pair.run(SendOp::Send, pair.a.sge(0, 1_000));
    assert_eq!(status, WcStatus::Success);
    assert_eq!(pair.b.wait(&pair.a, 1)[0].status, WcStatus::Success);
    pair.wait_for_faults(1);
    assert_eq!(bytes(&pages, 1_000), pair.a.buffer[..1_000]);
    protect(pages.at, LEN, libc::PROT_READ);
    let before = u64::from_ne_bytes(bytes(&pages, 8).try_into().unwrap());
    let (va, rkey) = (pages.at as u64, pages.key);
    let add = SendOp::FetchAdd { va, rkey, add: 7 };
    assert_eq!(pair.run(add, pair.a.sge(0, 8)), WcStatus::Success);
    pair.wait_for_faults(2);
    let after = u64::from_ne_bytes(bytes(&pages, 8).try_into().unwrap());
    assert_eq!(after, before.wrapping_add(7));
}

/// What is to be sent is not read in spite of it: it is sent once the handler has made it readable.
#[test]
fn what_is_to_be_sent_waits_for_the_handler() {
    let _alone = alone(true);
    for len in [1_000, LEN] {
        let pair = Pair::new();
        *WATCHED.lock().unwrap() = Some(Arc::clone(&pair.a.nic));
        let pages = Pages::new(&pair.a, LEN);
        protect(pages.at, LEN, libc::PROT_NONE);
        let status = pair.run(pair.b.write_op(0), pages.sge(len));
        assert_eq!(status, WcStatus::Success, "{len}");
        assert!(FAULTS.load(Ordering::Relaxed) > 0);
    }
}

/// A handler that changes nothing (of a crash report, that returns) is asked once.
#[test]
fn a_page_that_is_not_repaired_is_an_access_error_from_then_on() {
    let _alone = alone(false);
    let pair = Pair::new();
    let pages = Pages::new(&pair.b, LEN);
    protect(pages.at, LEN, libc::PROT_READ);
    let status = pair.run(pages.write_op(), pair.a.sge(0, 8));
    assert_eq!(status, WcStatus::Success);
    pair.wait_for_faults(1);
    // The answer may be there before the page is known.
    let mut writes = 1;
    loop {
        let faults = FAULTS.load(Ordering::Relaxed);
        assert!(faults <= writes, "{faults} for {writes} writes");
        writes += 1;
        match pair.run(pages.write_op(), pair.a.sge(0, 8)) {
            WcStatus::Success => assert!(writes < 1_000),
            status => break assert_eq!(status, WcStatus::RemoteAccess),
        }
    }
    // Processors differ in which of the bytes they name.
    let first = FIRST.load(Ordering::Relaxed);
    assert!((pages.at..pages.at + 8).contains(&first), "{first:#x}");
}

/// Memory that is not mapped is no handler's to repair.
#[test]
fn handlers_are_not_told_of_memory_that_is_gone() {
    let _alone = alone(true);
    let pair = Pair::new();
    let pages = Pages::new(&pair.b, LEN);
    pages.unmap();
    let status = pair.run(pages.write_op(), pair.a.sge(0, 8));
    assert_eq!(status, WcStatus::RemoteAccess);
    assert_eq!(FAULTS.load(Ordering::Relaxed), 0);
}
