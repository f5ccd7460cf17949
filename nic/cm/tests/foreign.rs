//! Another user of the peer's host has its address and a UDP port of its own, and so has a process
//! that passes datagrams on. What they say does not count of a connection whose peer sends from the
//! port that its queue pair's number tells.

mod support;

use support::{path, reply, request};
use urxe_cm::*;
use urxe_wire::{Psn, Qpn};

/// The peer's queue pair, and the port that its number tells.
const QPN: u32 = 3 << 14 | 5;
const PORT: u16 = 4791 + 3;
/// What the peer calls the connection, and what its listener does.
const PEER_ID: u32 = 77;
const ID: u32 = 1000;
/// An identifier for what would be another exchange.
const FRESH: u32 = 2000;

fn port_of(qpn: Qpn) -> u16 {
    4791 + u16::try_from(qpn.get() >> 14).unwrap()
}

/// From a port, or passed on.
fn from(port: Option<u16>) -> Path {
    Path {
        from: port,
        ..path(1)
    }
}

const FOREIGN: [Option<u16>; 4] = [Some(4791), Some(50_000), Some(PORT + 1), None];

fn mad(message: impl Into<Message>) -> Mad {
    Mad {
        transaction: 7,
        message: message.into(),
    }
}

fn ask(local_comm_id: u32, qpn: u32, psn: u32) -> Mad {
    mad(Req {
        local_comm_id,
        starting_psn: Psn::new(psn),
        ..request(qpn)
    })
}

fn sent(manager: &mut Manager) -> Vec<Message> {
    std::iter::from_fn(|| manager.poll_transmit())
        .map(|transmit| Mad::parse(&transmit.mad[..]).unwrap().message)
        .collect()
}

fn events(manager: &mut Manager) -> Vec<(u32, Event)> {
    std::iter::from_fn(|| manager.poll_event()).collect()
}

fn confirm() -> Mad {
    mad(Rtu {
        local_comm_id: PEER_ID,
        remote_comm_id: ID,
        private_data: [0; Rtu::PRIVATE_LEN],
    })
}

/// A connection that a peer asked for from `asked` and confirmed from `confirmed`.
fn established(asked: Option<u16>, confirmed: Option<u16>) -> Manager {
    let mut manager = Manager::with_ports(port_of);
    manager.handle_mad(0, from(asked), &ask(PEER_ID, QPN, 1), ID);
    manager.accept(0, ID, reply(9)).unwrap();
    manager.handle_mad(1, from(confirmed), &confirm(), 0);
    let names: Vec<_> = events(&mut manager);
    assert!(
        matches!(names[..], [(ID, Event::Request(_)), (ID, Event::Ready(_))]),
        "{names:?}"
    );
    sent(&mut manager);
    manager
}

fn hangs_up() -> Mad {
    mad(Dreq {
        local_comm_id: PEER_ID,
        remote_comm_id: ID,
        remote_qpn: Qpn::new(9),
        private_data: [0; Dreq::PRIVATE_LEN],
    })
}

fn rejects(local_comm_id: u32) -> Mad {
    mad(Rej {
        local_comm_id,
        remote_comm_id: ID,
        stage: Stage::Other,
        info_len: 0,
        reason: RejectReason::TIMEOUT,
        info: [0; Rej::INFO_LEN],
        private_data: [0; Rej::PRIVATE_LEN],
    })
}

/// A request with the connection's queue pair, one with its ID, and one with both.
fn requests() -> [Mad; 3] {
    [
        ask(PEER_ID + 1, QPN, 1),
        ask(PEER_ID, QPN + 1, 1),
        ask(PEER_ID, QPN, 2),
    ]
}

#[test]
fn a_request_from_elsewhere_for_what_is_in_use_ends_nothing() {
    // The request itself comes to the well-known port, and so is passed on where another process
    // has that.
    for asked in [Some(PORT), None] {
        for port in FOREIGN {
            let mut manager = established(asked, Some(PORT));
            for request in requests() {
                manager.handle_mad(2, from(port), &request, FRESH);
                assert_eq!(events(&mut manager), [], "{port:?} {request:?}");
                assert!(
                    manager.is_free(FRESH),
                    "{port:?}: it would take a place of the backlog"
                );
                let answers = sent(&mut manager);
                let [Message::Rej(rej)] = &answers[..] else {
                    panic!("{port:?} {answers:?}");
                };
                assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
            }
            assert_eq!(manager.parameters(ID).unwrap().path.port, 4791);
            // The peer itself has a new life with the same queue pair.
            manager.handle_mad(3, from(Some(PORT)), &requests()[0], FRESH);
            let answers = sent(&mut manager);
            assert!(
                matches!(&answers[..], [Message::Rej(_), Message::Dreq(_)]),
                "{answers:?}"
            );
        }
    }
}

#[test]
fn nothing_from_elsewhere_ends_a_connection() {
    for port in FOREIGN {
        let mut manager = established(None, Some(PORT));
        for message in [hangs_up(), rejects(0), rejects(PEER_ID)] {
            manager.handle_mad(2, from(port), &message, FRESH);
            assert_eq!(events(&mut manager), [], "{port:?} {message:?}");
            assert_eq!(sent(&mut manager), [], "{port:?} {message:?}");
        }
    }
    for message in [hangs_up(), rejects(0), rejects(PEER_ID)] {
        let mut manager = established(None, Some(PORT));
        manager.handle_mad(2, from(Some(PORT)), &message, FRESH);
        assert_eq!(events(&mut manager), [(ID, Event::Disconnected)]);
    }
}

/// The end that asked knows its peer's port by the answer.
#[test]
fn nor_at_the_end_that_asked_for_it() {
    for port in FOREIGN {
        let mut manager = Manager::with_ports(port_of);
        manager.connect(0, ID, path(1), request(9));
        let rep = Rep {
            local_comm_id: PEER_ID,
            remote_comm_id: ID,
            ..reply(QPN)
        };
        manager.handle_mad(1, from(Some(PORT)), &mad(rep), 0);
        manager.ready(ID, [0; Rtu::PRIVATE_LEN]).unwrap();
        events(&mut manager);
        sent(&mut manager);
        for message in [hangs_up(), rejects(0), rejects(PEER_ID)] {
            manager.handle_mad(2, from(port), &message, FRESH);
            assert_eq!(events(&mut manager), [], "{port:?} {message:?}");
        }
        manager.handle_mad(3, from(Some(PORT)), &hangs_up(), 0);
        assert_eq!(events(&mut manager), [(ID, Event::Disconnected)]);
    }
}

/// A request comes to the well-known port, and so by way of the process that holds that, however
/// often it is repeated.
#[test]
fn a_request_may_be_repeated_by_another_way() {
    for port in [Some(PORT), None] {
        let mut manager = Manager::with_ports(port_of);
        manager.handle_mad(0, from(Some(PORT)), &ask(PEER_ID, QPN, 1), ID);
        manager.accept(0, ID, reply(9)).unwrap();
        events(&mut manager);
        sent(&mut manager);
        manager.handle_mad(1, from(port), &ask(PEER_ID, QPN, 1), FRESH);
        let answers = sent(&mut manager);
        assert!(matches!(&answers[..], [Message::Rep(_)]), "{answers:?}");
    }
}

/// An attacker that names another user's queue pair before the owner does keeps the owner out in no
/// state of its exchange.
#[test]
fn a_request_from_its_queue_pairs_port_replaces_a_foreign_one() {
    for port in FOREIGN {
        for steps in 0..3 {
            let told = format!("{port:?}, {steps} steps");
            let mut manager = Manager::with_ports(port_of);
            manager.handle_mad(0, from(port), &ask(PEER_ID, QPN, 1), ID);
            if steps > 0 {
                manager.accept(0, ID, reply(9)).unwrap();
            }
            if steps > 1 {
                manager.handle_mad(1, from(port), &confirm(), 0);
            }
            events(&mut manager);
            sent(&mut manager);
            manager.handle_mad(2, from(Some(PORT)), &ask(PEER_ID + 1, QPN, 5), FRESH);
            assert_eq!(sent(&mut manager), [], "{told}: it is not refused");
            let news = events(&mut manager);
            let [(ID, end), (FRESH, Event::Request(_))] = &news[..] else {
                panic!("{told}: {news:?}");
            };
            assert!(
                matches!(end, Event::Rejected(_) | Event::Disconnected),
                "{told}: {end:?}"
            );
            // From now on the peer alone is heard.
            manager.handle_mad(3, from(port), &ask(PEER_ID + 2, QPN, 1), FRESH + 1);
            assert_eq!(events(&mut manager), [], "{told}");
            assert!(manager.is_free(FRESH + 1), "{told}");
        }
    }
}

/// Linux and hardware choose their source ports freely, and pay for a queue pair that comes to a
/// new life as the specification says.
#[test]
fn a_peer_of_another_kind_may_send_from_any_port() {
    for (asked, later) in [
        (Some(50_000), Some(50_001)),
        (Some(50_000), None),
        (None, None),
    ] {
        let mut manager = established(asked, later);
        manager.handle_mad(2, from(later), &requests()[0], FRESH);
        let answers = sent(&mut manager);
        assert!(
            matches!(&answers[..], [Message::Rej(_), Message::Dreq(_)]),
            "{answers:?}"
        );
        let mut manager = established(asked, later);
        manager.handle_mad(2, from(later), &hangs_up(), 0);
        assert_eq!(events(&mut manager), [(ID, Event::Disconnected)]);
    }
}
