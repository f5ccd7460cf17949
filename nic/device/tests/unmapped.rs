//! Programs that unmap what they have registered: an end that wants to use it gets an error, and
//! none crashes.
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use support::apart::{self, Pages};
use support::{End, Peer, TIMEOUT};
use urxe_device::{Access, AsyncEventKind, Mtu, QpEvent, QpState, SendOp, Sge, WcStatus, Wiring};

const LEN: usize = 64 << 10;
/// One that is copied into its packets, and one that the kernel takes from where it is.
const LENGTHS: [usize; 2] = [1_000, 20_000];

/// Handlers of signals belong to the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A mapping that is registered at one end, and then gone.
fn gone(end: &End) -> Pages {
    let pages = Pages::new(end, LEN);
    pages.unmap();
    pages
}

struct Pair {
    a: Peer,
    b: Peer,
}

/// What may stand between a device and its network, which then sees all bytes: nothing, a capture,
/// a bad network.
fn wirings() -> [Wiring; 3] {
    [
        Wiring::default(),
        Wiring {
            pcap: Some("/dev/null".into()),
            ..Wiring::default()
        },
        Wiring {
            impairment: "duplicate=1%,reorder=1%".parse().unwrap(),
            ..Wiring::default()
        },
    ]
}

impl Pair {
    fn new() -> Self {
        Self::wired(&Wiring::default())
    }

    fn wired(wiring: &Wiring) -> Self {
        let ends = [(); 2].map(|()| End::wired(wiring, LEN));
        let (a, b) = Peer::pair(ends, Mtu::B4096, TIMEOUT);
        Self { a, b }
    }

    /// What becomes of a request of `a`.
    fn run(&self, op: SendOp, sge: Sge) -> WcStatus {
        self.a.run(&self.b, op, sge)
    }

    /// Waits until the queue pair of `b` is in the error state.
    fn wait_for_error_at_b(&self) {
        while self.b.qp.state().unwrap() != QpState::Error {
            self.b.cq.poll(0, |_| ());
        }
    }
}

#[test]
fn a_peer_gets_an_access_error() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for len in LENGTHS {
        for read in [false, true] {
            let pair = Pair::new();
            let gone = gone(&pair.b);
            let (va, rkey) = (gone.at as u64, gone.key);
            let op = if read {
                SendOp::Read { va, rkey }
            } else {
                SendOp::Write { va, rkey }
            };
            let status = pair.run(op, pair.a.sge(0, len));
            assert_eq!(status, WcStatus::RemoteAccess, "{op:?} of {len}");
            pair.wait_for_error_at_b();
            let mut events = [pair.b.event(), pair.b.event()];
            events.sort_by_key(|event| format!("{event:?}"));
            let of = |event| AsyncEventKind::Qp(pair.b.qp.number(), event);
            assert_eq!(
                events,
                [
                    of(QpEvent::AccessError),
                    of(QpEvent::CommunicationEstablished)
                ]
            );
        }
    }
}

#[test]
fn an_atomic_gets_an_access_error() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new();
    let gone = gone(&pair.b);
    let op = SendOp::FetchAdd {
        va: gone.at as u64,
        rkey: gone.key,
        add: 1,
    };
    assert_eq!(pair.run(op, pair.a.sge(0, 8)), WcStatus::RemoteAccess);
}

#[test]
fn what_is_to_be_sent_is_a_local_error() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for len in LENGTHS {
        for wiring in wirings() {
            let pair = Pair::wired(&wiring);
            let gone = gone(&pair.a);
            pair.b.post_recv(2, &[pair.b.sge(0, LEN)]);
            let status = pair.run(SendOp::Send, gone.sge(len));
            assert_eq!(status, WcStatus::LocalProtection, "{len} bytes, {wiring:?}");
        }
    }
}

#[test]
fn where_an_answer_should_go_is_a_local_error() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new();
    let gone = gone(&pair.a);
    let op = pair.b.read_op(0);
    assert_eq!(pair.run(op, gone.sge(1_000)), WcStatus::LocalProtection);
}

#[test]
fn a_receive_is_a_local_error_and_the_sender_learns_of_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new();
    let gone = gone(&pair.b);
    pair.b.post_recv(2, &[gone.sge(LEN)]);
    let status = pair.run(SendOp::Send, pair.a.sge(0, 1_000));
    assert_eq!(status, WcStatus::RemoteOperation);
    let received = pair.b.wait(&pair.a, 1);
    assert_eq!(received[0].status, WcStatus::LocalProtection);
}

/// Requests whose packets wait for company, or are on their way, when the memory goes.
#[test]
fn memory_that_goes_while_being_sent_is_an_error_or_in_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..60 {
        let pair = Pair::wired(&wirings()[round % 3]);
        let pages = Pages::with(&pair.a, LEN, Access::LOCAL_WRITE);
        for wr_id in 0..32 {
            pair.a.post(wr_id, pair.b.write_op(0), &[pages.sge(LEN)]);
        }
        for _ in 0..round {
            pair.b.cq.poll(0, |_| ());
        }
        pages.unmap();
        let statuses: Vec<_> = pair.a.wait(&pair.b, 32);
        let good = statuses
            .iter()
            .take_while(|c| c.status == WcStatus::Success);
        let mut bad = statuses[good.count()..].iter().map(|c| c.status);
        assert!(matches!(bad.next(), None | Some(WcStatus::LocalProtection)));
        assert!(bad.all(|status| status == WcStatus::WrFlush));
    }
}

/// Faults of the program's own.
static REPAIRED: AtomicUsize = AtomicUsize::new(0);

/// A program's own handler: makes the page accessible.
extern "C" fn repair(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    REPAIRED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the address is one of the page that the test has made inaccessible.
    unsafe {
        let at = (*info).si_addr() as usize & !4095;
        libc::mprotect(
            at as *mut libc::c_void,
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
        );
    }
}

fn fault_and_repair() {
    let page = apart::map(LEN, libc::PROT_READ | libc::PROT_WRITE).cast::<u8>();
    // SAFETY: a page of this test's own, which `repair` makes accessible again.
    unsafe {
        libc::mprotect(page.cast(), 4096, libc::PROT_NONE);
        page.write_volatile(1);
        assert_eq!(page.read_volatile(), 1);
    }
}

#[test]
fn handlers_of_the_program_go_on_working() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let install = || {
        // SAFETY: plain data, and a handler that does nothing a handler must not.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = repair as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        }
    };
    // Before the first region, and after it.
    install();
    for round in 1..=2 {
        let pair = Pair::new();
        let gone = gone(&pair.b);
        assert_eq!(
            pair.run(gone.write_op(), pair.a.sge(0, 8)),
            WcStatus::RemoteAccess
        );
        fault_and_repair();
        assert_eq!(REPAIRED.load(Ordering::Relaxed), round);
        install();
    }
}
