//! Programs that unmap what they have registered: an end that wants to use it gets an error, and
//! none crashes.
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use support::{End, apart, connect_both, device, post, post_recv};
use urxe_device::{
    Access, AsyncEventKind, Mtu, Nic, Qp, QpEvent, QpState, QpType, SendOp, SendTarget, Sge,
    WcStatus, Wiring,
};

const LEN: usize = 64 << 10;
/// One that is copied into its packets, and one that the kernel takes from where it is.
const LENGTHS: [usize; 2] = [1_000, 20_000];

/// Handlers of signals belong to the process.
static ALONE: Mutex<()> = Mutex::new(());

/// A mapping that is registered at one end, and then gone.
struct Gone {
    at: u64,
    key: u32,
}

fn map() -> *mut libc::c_void {
    apart::map(LEN, libc::PROT_READ | libc::PROT_WRITE)
}

impl Gone {
    fn new(end: &End) -> Self {
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let mapping = map();
        let at = mapping as u64;
        let region = end
            .nic
            .register(end.pd, at, LEN as u64, at, access)
            .unwrap();
        // SAFETY: it is this test's own.
        assert_eq!(unsafe { libc::munmap(mapping, LEN) }, 0);
        Self {
            at,
            key: region.lkey,
        }
    }

    fn sge(&self, len: usize) -> Sge {
        Sge {
            addr: self.at,
            len: len as u32,
            lkey: self.key,
        }
    }
}

struct Pair {
    a: End,
    b: End,
    qp_a: Qp,
    qp_b: Qp,
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
        let open = || End::of(Nic::open_wired(&device("lo"), wiring).unwrap(), LEN);
        let (a, b) = (open(), open());
        let (qp_a, qp_b) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
        connect_both(&a, &qp_a, &b, &qp_b, Mtu::B4096);
        Self { a, b, qp_a, qp_b }
    }

    /// What becomes of a request of `a`.
    fn run(&self, op: SendOp, sge: Sge) -> WcStatus {
        post(&self.qp_a, 1, op, &[sge], SendTarget::Connection);
        self.a.wait(&[&self.b], 1)[0].status
    }

    /// Waits until the queue pair of `b` is in the error state.
    fn wait_for_error_at_b(&self) {
        while self.qp_b.state().unwrap() != QpState::Error {
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
            let gone = Gone::new(&pair.b);
            let (va, rkey) = (gone.at, gone.key);
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
            let of = |event| AsyncEventKind::Qp(pair.qp_b.number(), event);
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
    let gone = Gone::new(&pair.b);
    let op = SendOp::FetchAdd {
        va: gone.at,
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
            let gone = Gone::new(&pair.a);
            post_recv(&pair.qp_b, 2, &[pair.b.sge(0, LEN)]);
            let status = pair.run(SendOp::Send, gone.sge(len));
            assert_eq!(status, WcStatus::LocalProtection, "{len} bytes, {wiring:?}");
        }
    }
}

#[test]
fn where_an_answer_should_go_is_a_local_error() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new();
    let gone = Gone::new(&pair.a);
    let op = SendOp::Read {
        va: pair.b.va(0),
        rkey: pair.b.key,
    };
    assert_eq!(pair.run(op, gone.sge(1_000)), WcStatus::LocalProtection);
}

#[test]
fn a_receive_is_a_local_error_and_the_sender_learns_of_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let pair = Pair::new();
    let gone = Gone::new(&pair.b);
    post_recv(&pair.qp_b, 2, &[gone.sge(LEN)]);
    let status = pair.run(SendOp::Send, pair.a.sge(0, 1_000));
    assert_eq!(status, WcStatus::RemoteOperation);
    let received = pair.b.wait(&[&pair.a], 1);
    assert_eq!(received[0].status, WcStatus::LocalProtection);
}

/// Requests whose packets wait for company, or are on their way, when the memory goes.
#[test]
fn memory_that_goes_while_being_sent_is_an_error_or_in_time() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..60 {
        let pair = Pair::wired(&wirings()[round % 3]);
        let mapping = map();
        let at = mapping as u64;
        let access = Access::LOCAL_WRITE;
        let region = pair.a.nic.register(pair.a.pd, at, LEN as u64, at, access);
        let key = region.unwrap().lkey;
        let (va, rkey) = (pair.b.va(0), pair.b.key);
        for wr_id in 0..32 {
            let sge = Sge {
                addr: at,
                len: LEN as u32,
                lkey: key,
            };
            let op = SendOp::Write { va, rkey };
            post(&pair.qp_a, wr_id, op, &[sge], SendTarget::Connection);
        }
        for _ in 0..round {
            pair.b.cq.poll(0, |_| ());
        }
        // SAFETY: it is this test's own.
        assert_eq!(unsafe { libc::munmap(mapping, LEN) }, 0);
        let statuses: Vec<_> = pair.a.wait(&[&pair.b], 32);
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
    let page = map().cast::<u8>();
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
        let gone = Gone::new(&pair.b);
        let (va, rkey) = (gone.at, gone.key);
        let write = SendOp::Write { va, rkey };
        assert_eq!(pair.run(write, pair.a.sge(0, 8)), WcStatus::RemoteAccess);
        fault_and_repair();
        assert_eq!(REPAIRED.load(Ordering::Relaxed), round);
        install();
    }
}
