//! Exchanges of two managers, message by message.

mod support;

use support::{path, reply, request};
use urxe_cm::*;
use urxe_wire::Qpn;

const MS: u64 = 1_000_000;

/// The datagrams that a manager sends now.
fn sent(manager: &mut Manager) -> Vec<Mad> {
    let sent = std::iter::from_fn(|| manager.poll_transmit());
    sent.map(|transmit| Mad::parse(&transmit.mad[..]).unwrap())
        .collect()
}

fn events(manager: &mut Manager) -> Vec<(u32, Event)> {
    std::iter::from_fn(|| manager.poll_event()).collect()
}

/// IDs are random: of 2,000 connections about one has the ID of one before it, for which the other
/// end still waits that nothing of it is on its way. Its request was taken for one of the old
/// connection's, and ignored for seconds.
#[test]
fn a_request_with_the_id_of_an_old_connection_is_a_new_one() {
    const ID: u32 = 77;
    let mut server = Manager::default();
    let ask = |qpn: u32| Mad {
        transaction: qpn.into(),
        message: Req {
            local_comm_id: ID,
            ..request(qpn)
        }
        .into(),
    };
    let from = path(0);
    server.handle_mad(0, from, &ask(5), 1);
    assert!(matches!(&events(&mut server)[..], [(1, Event::Request(_))]));
    server.accept(0, 1, reply(9)).unwrap();
    assert!(matches!(sent(&mut server)[0].message, Message::Rep(_)));
    // The very same again is answered again.
    assert!(server.is_repetition(&from, &ask(5).message));
    server.handle_mad(1, from, &ask(5), 2);
    assert!(matches!(sent(&mut server)[0].message, Message::Rep(_)));
    assert!(server.is_free(2));
    let over = Dreq {
        local_comm_id: ID,
        remote_comm_id: 1,
        remote_qpn: Qpn::new(9),
        private_data: [0; Dreq::PRIVATE_LEN],
    };
    let over = Mad {
        transaction: 5,
        message: over.into(),
    };
    for (fresh, state) in [(2, "over"), (3, "asked for"), (4, "answered")] {
        match state {
            "over" => server.handle_mad(2, from, &over, 0),
            "answered" => server.accept(2, 3, reply(9)).unwrap(),
            _ => {}
        }
        events(&mut server);
        sent(&mut server);
        let again = ask(5 + fresh);
        assert!(!server.is_repetition(&from, &again.message), "{state}");
        server.handle_mad(3, from, &again, fresh);
        let events = events(&mut server);
        let (old, new) = (&events[0], &events[1]);
        assert_eq!(old.0, fresh - 1, "{state}: {events:?}");
        assert!(
            matches!(new, (id, Event::Request(req)) if *id == fresh && req.qpn == Qpn::new(5 + fresh)),
            "{state}: {events:?}"
        );
        assert!(server.is_repetition(&from, &again.message));
    }
    // What is left of the old ones does not take the new one along.
    while let Some(at_ns) = server.poll_timeout() {
        server.handle_timeout(at_ns);
    }
    assert!(server.is_repetition(&from, &ask(9).message));
    assert!(server.is_free(1) && server.is_free(2) && server.is_free(3) && !server.is_free(4));
}

#[test]
fn a_resolution_with_the_id_of_an_old_one_gets_its_own_answer() {
    let mut server = Manager::default();
    let ask = |port| Mad {
        transaction: 1,
        message: SidrReq {
            request_id: 77,
            pkey: 0xffff,
            service_id: ServiceId::of(PortSpace::Udp, port),
            private_data: [0; SidrReq::PRIVATE_LEN],
        }
        .into(),
    };
    server.handle_mad(0, path(0), &ask(7), 1);
    assert!(server.is_repetition(&path(0), &ask(7).message));
    assert!(!server.is_repetition(&path(0), &ask(8).message));
    server.handle_mad(0, path(0), &ask(8), 2);
    let asked = events(&mut server);
    assert!(matches!(
        &asked[..],
        [(1, Event::Resolve(_)), (2, Event::Resolve(_))]
    ));
}

/// Its address is the peer's, as any user of that host has it.
#[test]
fn who_does_not_know_the_ids_of_a_connection_cannot_end_it() {
    const ID: u32 = 77;
    let mut server = Manager::default();
    let from = path(0);
    let mad = |message| Mad {
        transaction: 5,
        message,
    };
    let req = Req {
        local_comm_id: ID,
        ..request(5)
    };
    server.handle_mad(0, from, &mad(req.into()), 1);
    server.accept(0, 1, reply(9)).unwrap();
    let rtu = Rtu {
        local_comm_id: ID,
        remote_comm_id: 1,
        private_data: [0; Rtu::PRIVATE_LEN],
    };
    server.handle_mad(0, from, &mad(rtu.into()), 2);
    assert!(matches!(
        &events(&mut server)[..],
        [(1, Event::Request(_)), (1, Event::Ready(_))]
    ));
    let dreq = |local_comm_id| Dreq {
        local_comm_id,
        remote_comm_id: 1,
        remote_qpn: Qpn::new(9),
        private_data: [0; Dreq::PRIVATE_LEN],
    };
    server.handle_mad(1, from, &mad(dreq(ID ^ 1).into()), 3);
    assert_eq!(events(&mut server), []);
    // Nor does an answer to what was never asked.
    let drep = Drep {
        local_comm_id: ID,
        remote_comm_id: 1,
        private_data: [0; Drep::PRIVATE_LEN],
    };
    server.handle_mad(2, from, &mad(drep.into()), 4);
    assert_eq!(events(&mut server), []);
    server.handle_mad(3, from, &mad(dreq(ID).into()), 5);
    assert!(!events(&mut server).is_empty());
}

/// A program that is slow to confirm makes its end ask for patience; when the confirmation is then
/// lost, the other end does not wait for as long as a program may take.
#[test]
fn a_confirmation_lost_after_a_slow_answer_is_repeated_soon() {
    let (mut here, mut there) = (Manager::default(), Manager::default());
    let mut now_ns = 0;
    let take = |from: &mut Manager| Mad::parse(&from.poll_transmit().unwrap().mad[..]).unwrap();
    here.connect(now_ns, 1, path(0), request(5));
    there.handle_mad(now_ns, path(1), &take(&mut here), 500);
    there.accept(now_ns, 500, reply(500)).unwrap();
    here.handle_mad(now_ns, path(0), &take(&mut there), 0);
    // The reply is repeated before the program here has confirmed it.
    now_ns = there.poll_timeout().unwrap();
    there.handle_timeout(now_ns);
    here.handle_mad(now_ns, path(0), &take(&mut there), 0);
    let wait = take(&mut here);
    assert!(matches!(wait.message, Message::Mra(_)), "{wait:?}");
    there.handle_mad(now_ns, path(1), &wait, 0);
    here.ready(1, [0; Rtu::PRIVATE_LEN]).unwrap();
    let _lost = take(&mut here);
    now_ns = there.poll_timeout().unwrap();
    assert!(now_ns < 2_000 * MS, "{} ms", now_ns / MS);
    there.handle_timeout(now_ns);
    here.handle_mad(now_ns, path(0), &take(&mut there), 0);
    there.handle_mad(now_ns, path(1), &take(&mut here), 0);
    let events: Vec<_> = std::iter::from_fn(|| there.poll_event()).collect();
    assert!(
        matches!(events.last(), Some((500, Event::Ready(_)))),
        "{events:?}"
    );
    assert_eq!(there.poll_timeout(), None);
}

/// A peer that asks for patience and is then silent is given up in bounded time.
#[test]
fn patience_has_an_end() {
    let (mut here, mut there) = (Manager::default(), Manager::default());
    here.connect(0, 1, path(0), request(5));
    let req = Mad::parse(&here.poll_transmit().unwrap().mad[..]).unwrap();
    there.handle_mad(0, path(1), &req, 500);
    there.handle_mad(0, path(1), &req, 501);
    let wait = Mad::parse(&there.poll_transmit().unwrap().mad[..]).unwrap();
    assert!(matches!(wait.message, Message::Mra(_)), "{wait:?}");
    here.handle_mad(0, path(0), &wait, 0);
    let mut now_ns = 0;
    while let Some(at_ns) = here.poll_timeout() {
        now_ns = at_ns;
        here.handle_timeout(now_ns);
    }
    assert_eq!(here.poll_event(), Some((1, Event::Unreachable)));
    assert!(
        (69_000 * MS..120_000 * MS).contains(&now_ns),
        "{} ms",
        now_ns / MS
    );
}
