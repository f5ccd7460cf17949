//! Programs that unmap what they have registered: an end that wants to use it gets an error, and
//! none crashes.
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use support::apart::{self, Pages, on_fault, protect};
use support::{End, Peer, TIMEOUT, alone, impaired};
use urxe_device::{Access, AsyncEventKind, Mtu, QpEvent, QpState, SendOp, WcStatus, Wiring};

const LEN: usize = 64 << 10;
/// One that is copied into its packets, and one that the kernel takes from where it is.
const LENGTHS: [usize; 2] = [1_000, 20_000];

/// A mapping that is registered at one end, and then gone.
fn gone(end: &End) -> Pages {
    let pages = Pages::new(end, LEN);
    pages.unmap();
    pages
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
        impaired("duplicate=1%,reorder=1%"),
    ]
}

fn wired(wiring: &Wiring) -> (Peer, Peer) {
    let ends = [(); 2].map(|()| End::wired(wiring, LEN));
    Peer::pair(ends, Mtu::B4096, TIMEOUT)
}

fn pair() -> (Peer, Peer) {
    wired(&Wiring::default())
}

#[test]
fn a_peer_gets_an_access_error() {
    let _alone = alone();
    for len in LENGTHS {
        for read in [false, true] {
            let (a, b) = pair();
            let gone = gone(&b);
            let (va, rkey) = (gone.at as u64, gone.key);
            let op = if read {
                SendOp::Read { va, rkey }
            } else {
                SendOp::Write { va, rkey }
            };
            let status = a.run(&b, op, a.sge(0, len));
            assert_eq!(status, WcStatus::RemoteAccess, "{op:?} of {len}");
            b.poll_until("an error", || b.qp.state().unwrap() == QpState::Error);
            let mut events = [b.event(), b.event()];
            events.sort_by_key(|event| format!("{event:?}"));
            let of = |event| AsyncEventKind::Qp(b.qp.number(), event);
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
    let _alone = alone();
    let (a, b) = pair();
    let gone = gone(&b);
    let (va, rkey) = (gone.at as u64, gone.key);
    let op = SendOp::FetchAdd { va, rkey, add: 1 };
    assert_eq!(a.run(&b, op, a.sge(0, 8)), WcStatus::RemoteAccess);
}

#[test]
fn what_is_to_be_sent_is_a_local_error() {
    let _alone = alone();
    for len in LENGTHS {
        for wiring in wirings() {
            let (a, b) = wired(&wiring);
            let gone = gone(&a);
            b.post_recv(2, &[b.sge(0, LEN)]);
            let status = a.run(&b, SendOp::Send, gone.sge(len));
            assert_eq!(status, WcStatus::LocalProtection, "{len} bytes, {wiring:?}");
        }
    }
}

#[test]
fn where_an_answer_should_go_is_a_local_error() {
    let _alone = alone();
    let (a, b) = pair();
    let gone = gone(&a);
    let op = b.read_op(0);
    assert_eq!(a.run(&b, op, gone.sge(1_000)), WcStatus::LocalProtection);
}

#[test]
fn a_receive_is_a_local_error_and_the_sender_learns_of_it() {
    let _alone = alone();
    let (a, b) = pair();
    let gone = gone(&b);
    b.post_recv(2, &[gone.sge(LEN)]);
    let status = a.run(&b, SendOp::Send, a.sge(0, 1_000));
    assert_eq!(status, WcStatus::RemoteOperation);
    let received = b.wait(&a, 1);
    assert_eq!(received[0].status, WcStatus::LocalProtection);
}

/// Requests whose packets wait for company, or are on their way, when the memory goes.
#[test]
fn memory_that_goes_while_being_sent_is_an_error_or_in_time() {
    let _alone = alone();
    for round in 0..60 {
        let (a, b) = wired(&wirings()[round % 3]);
        let pages = Pages::with(&a, LEN, Access::LOCAL_WRITE);
        for wr_id in 0..32 {
            a.post(wr_id, b.write_op(0), &[pages.sge(LEN)]);
        }
        for _ in 0..round {
            b.cq.poll(0, |_| ());
        }
        pages.unmap();
        let statuses: Vec<_> = a.wait(&b, 32);
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
    // SAFETY: the kernel tells of the fault.
    let at = unsafe { (*info).si_addr() } as usize & !4095;
    protect(at, 4096, libc::PROT_READ | libc::PROT_WRITE);
}

fn fault_and_repair() {
    let page = apart::map(LEN, libc::PROT_READ | libc::PROT_WRITE).cast::<u8>();
    protect(page as usize, 4096, libc::PROT_NONE);
    // SAFETY: a page of this test's own, which `repair` makes accessible again.
    unsafe {
        page.write_volatile(1);
        assert_eq!(page.read_volatile(), 1);
    }
}

#[test]
fn handlers_of_the_program_go_on_working() {
    let _alone = alone();
    // Before the first region, and after it.
    on_fault(repair);
    for round in 1..=2 {
        let (a, b) = pair();
        let gone = gone(&b);
        assert_eq!(
            a.run(&b, gone.write_op(), a.sge(0, 8)),
            WcStatus::RemoteAccess
        );
        fault_and_repair();
        assert_eq!(REPAIRED.load(Ordering::Relaxed), round);
        on_fault(repair);
    }
}
