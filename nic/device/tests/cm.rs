//! Communication management over loopback: both ends in this process, which finds its own datagrams
//! on the port that it holds (or that another process holds, and passes on).
mod support;

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use support::cm::{File, connection, errno, param, refused};
use support::wait_until;
use urxe_device::{CmEvent, CmEventKind, CmOption, CmParam, CmQpAttributes, PortSpace, QpState};

/// A queue pair number that no other test uses: one that is connected cannot ask for another
/// connection.
fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(100);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A port that no other test here uses, nor a test of the same crate that runs at the same time.
fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let port = 20_000 + (std::process::id() % 10_000) as u16;
    SocketAddr::from(([127, 0, 0, 1], port + NEXT.fetch_add(1, Ordering::Relaxed)))
}

#[test]
fn a_connection_is_made_and_ended() {
    let (server, client) = (File::open(), File::open());
    let address = address();
    let listener = server.listen_at(PortSpace::Tcp, address, 0);
    let id = client.resolved(PortSpace::Tcp, address);
    assert!(!client.is_readable());
    let number = unique();
    client.connect(id, &param(number, b"hello")).unwrap();

    let request = server.expect(CmEventKind::ConnectRequest);
    assert_eq!(request.uid, 7, "the listener's");
    let asked = connection(&request);
    assert_eq!((asked.qp_num, asked.retry_count), (number, 6));
    assert_eq!((asked.responder_resources, asked.initiator_depth), (5, 3));
    assert_eq!(
        (&asked.private_data[..5], asked.private_data.len()),
        (&b"hello"[..], 56)
    );
    let there = request.id;
    let info = server.query(there).unwrap();
    assert_eq!(
        (info.source, info.destination.unwrap().ip()),
        (Some(address), address.ip())
    );

    let attributes = server.qp_attributes(there, QpState::ReadyToReceive);
    let Ok(CmQpAttributes::ReadyToReceive {
        dest_qp, rq_psn, ..
    }) = attributes
    else {
        panic!("{attributes:?}")
    };
    assert_eq!(dest_qp.get(), number);
    let early = client.qp_attributes(id, QpState::ReadyToReceive);
    refused(early, libc::EINVAL);
    server
        .accept(there, Some(9), Some(&param(200, b"welcome")))
        .unwrap();

    let reply = client.expect(CmEventKind::ConnectResponse);
    assert_eq!(connection(&reply).qp_num, 200);
    assert_eq!(&connection(&reply).private_data[..7], b"welcome");
    let attributes = client.qp_attributes(id, QpState::ReadyToSend).unwrap();
    let CmQpAttributes::ReadyToSend { sq_psn, .. } = attributes else {
        panic!("{attributes:?}")
    };
    assert_eq!(
        sq_psn, rq_psn,
        "what one end sends first, the other expects"
    );
    client.accept(id, None, None).unwrap();
    assert_eq!(server.expect(CmEventKind::Established).uid, 9);

    client.disconnect(id).unwrap();
    client.expect(CmEventKind::Disconnected);
    server.expect(CmEventKind::Disconnected);
    server.disconnect(there).unwrap();
    assert_eq!(server.destroy_id(listener).unwrap(), 1, "the request");
    assert_eq!(server.destroy_id(there).unwrap(), 2);
    refused(server.destroy_id(there), libc::ENOENT);
}

/// A stranger that does not see the packets of a connection has to guess them.
#[test]
fn first_psns_do_not_follow_from_each_other() {
    const COUNT: usize = 40;
    let (server, client) = (File::open(), File::open());
    let address = address();
    server.listen_at(PortSpace::Tcp, address, 0);
    let first_psn = || {
        client.ask(address, &param(unique(), b""));
        let there = server.expect(CmEventKind::ConnectRequest).id;
        let attributes = server.qp_attributes(there, QpState::ReadyToReceive);
        let Ok(CmQpAttributes::ReadyToReceive { rq_psn, .. }) = attributes else {
            panic!("{attributes:?}")
        };
        server.reject(there, 0, b"").unwrap();
        client.expect(CmEventKind::Rejected);
        rq_psn
    };
    let psns: Vec<_> = (0..COUNT).map(|_| first_psn()).collect();
    let steps = psns.windows(2).map(|pair| pair[1].distance_from(pair[0]));
    let different: std::collections::HashSet<_> = steps.collect();
    assert!(different.len() > COUNT * 9 / 10, "{psns:?}");
}

#[test]
fn a_request_is_rejected_by_the_program_or_without_a_listener() {
    let (server, client) = (File::open(), File::open());
    let (id, request) = requested(&server, &client);
    let address = client.query(id).unwrap().destination.unwrap();
    refused(server.reject(request.id, 3, b""), libc::EINVAL);
    server.reject(request.id, 0, b"no").unwrap();
    let rejected = client.expect(CmEventKind::Rejected);
    assert_eq!(
        (rejected.status, &connection(&rejected).private_data[..2]),
        (28, &b"no"[..])
    );

    client.ask(self::address(), &param(unique(), b""));
    assert_eq!(client.expect(CmEventKind::Rejected).status, 8);
    // The same port of another space is another port.
    let id = client.resolved(PortSpace::Udp, address);
    client.connect(id, &param(unique(), b"")).unwrap();
    client.expect(CmEventKind::Unreachable);
}

#[test]
fn a_datagram_service_is_found() {
    let (server, client) = (File::open(), File::open());
    let address = address();
    server.listen_at(PortSpace::Udp, address, 0);
    let id = client.resolved(PortSpace::Udp, address);
    client.connect(id, &param(0, b"who?")).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest);
    server
        .accept(request.id, Some(1), Some(&param(77, b"me")))
        .unwrap();
    let found = client.expect(CmEventKind::Established);
    let CmParam::Datagram(found) = &found.param else {
        panic!("{found:?}")
    };
    assert_eq!((found.qp_num, found.qkey), (77, 0x0123_4567));
    assert_eq!(found.address.unwrap().dest_gid.to_ip(), address.ip());
    assert_eq!(&found.private_data[..2], b"me");
}

#[test]
fn ports_belong_to_who_binds_first_unless_both_share() {
    let file = File::open();
    let address = address();
    let any = SocketAddr::from(([0, 0, 0, 0], address.port()));
    let first = file.id(PortSpace::Tcp);
    file.bind(first, address).unwrap();
    for other in [address, any] {
        let id = file.id(PortSpace::Tcp);
        refused(file.bind(id, other), libc::EADDRINUSE);
    }
    let datagram = file.id(PortSpace::Udp);
    file.bind(datagram, address).unwrap();
    file.destroy_id(first).unwrap();
    let sharing: Vec<u32> = (0..2)
        .map(|_| {
            let id = file.id(PortSpace::Tcp);
            file.set_option(id, CmOption::ReuseAddress(true)).unwrap();
            file.bind(id, address).unwrap();
            id
        })
        .collect();
    file.listen(sharing[0], 0).unwrap();
    refused(file.listen(sharing[1], 0), libc::EADDRINUSE);
    let nowhere = file.id(PortSpace::Tcp);
    let other_host = SocketAddr::from(([203, 0, 113, 1], 1));
    refused(file.bind(nowhere, other_host), libc::EADDRNOTAVAIL);
    assert_ne!(file.bound(PortSpace::Tcp).1.port(), 0);
}

#[test]
fn a_request_waits_for_a_listener_that_comes_later() {
    let (server, client) = (File::open(), File::open());
    let (early, late) = (address(), address());
    server.listen_at(PortSpace::Tcp, early, 0);
    let ids = [late, early].map(|address| client.ask(address, &param(unique(), b"")));
    // Requests come in their order: the first one has found no listener.
    server.expect(CmEventKind::ConnectRequest);
    server.listen_at(PortSpace::Tcp, late, 0);
    let request = server.expect(CmEventKind::ConnectRequest);
    server
        .accept(request.id, None, Some(&param(unique(), b"")))
        .unwrap();
    let reply = client.expect(CmEventKind::ConnectResponse);
    assert_eq!(reply.id, ids[0]);
}

#[test]
fn a_port_is_free_at_once_when_its_listener_is_gone() {
    let file = File::open();
    let address = address();
    for _ in 0..200 {
        let id = file.listen_at(PortSpace::Tcp, address, 0);
        file.destroy_id(id).unwrap();
    }
}

#[test]
fn a_full_backlog_makes_requests_wait() {
    let (server, client) = (File::open(), File::open());
    let address = address();
    server.listen_at(PortSpace::Tcp, address, 1);
    let ids: Vec<u32> = (0..3)
        .map(|_| client.resolved(PortSpace::Tcp, address))
        .collect();
    for id in ids {
        client.connect(id, &param(unique(), b"")).unwrap();
    }
    let mut asked: Vec<u32> = (0..3)
        .map(|_| connection(&server.expect(CmEventKind::ConnectRequest)).qp_num)
        .collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), 3, "each asks again until there is room");
}

#[test]
fn an_identifier_moves_with_its_events() {
    let (server, other, client) = (File::open(), File::open(), File::open());
    let address = address();
    let listener = server.listen_at(PortSpace::Tcp, address, 0);
    client.ask(address, &param(unique(), b""));
    wait_until("a request", || server.is_readable());
    assert_eq!(other.migrate(listener, &server.file).unwrap(), 0);
    assert!(!server.is_readable() && other.is_readable());
    let request = other.expect(CmEventKind::ConnectRequest);
    refused(server.query(request.id), libc::EINVAL);
    other.reject(request.id, 0, b"").unwrap();
    client.expect(CmEventKind::Rejected);
}

/// A connection that the client asked for: its identifier, and the request at the server.
fn requested(server: &File, client: &File) -> (u32, CmEvent) {
    let address = address();
    server.listen_at(PortSpace::Tcp, address, 0);
    let id = client.ask(address, &param(unique(), b""));
    (id, server.expect(CmEventKind::ConnectRequest))
}

#[test]
fn closing_the_file_ends_its_connections() {
    let (server, mut client) = (File::open(), File::open());
    let (id, request) = requested(&server, &client);
    server
        .accept(request.id, Some(1), Some(&param(unique(), b"")))
        .unwrap();
    client.expect(CmEventKind::ConnectResponse);
    client.accept(id, None, None).unwrap();
    server.expect(CmEventKind::Established);
    assert!(client.is_current());
    client.fd = None;
    server.expect(CmEventKind::Disconnected);
    assert!(!client.is_current());
}

/// How many descriptors of this process are of the pipe that `fd` is an end of.
fn descriptors_of(fd: RawFd) -> usize {
    let target = |path: PathBuf| std::fs::read_link(path).ok();
    let it = target(format!("/proc/self/fd/{fd}").into());
    assert!(it.is_some());
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter(|entry| target(entry.as_ref().unwrap().path()) == it)
        .count()
}

#[test]
fn a_waiting_thread_gets_its_event_though_the_file_is_closed() {
    let (server, mut client) = (File::open(), File::open());
    let (_, request) = requested(&server, &client);
    let file = client.file;
    let waiting = std::thread::spawn(move || file.next_event());
    // The two ends, and that of the thread that waits.
    wait_until("it waits", || descriptors_of(file.fd()) >= 3);
    client.fd = None;
    refused(file.next_event(), libc::EBADF);
    server.reject(request.id, 0, b"").unwrap();
    let event = waiting.join().unwrap().unwrap();
    assert_eq!(event.kind, CmEventKind::Rejected);
}

#[test]
fn a_group_is_left_by_the_file_that_joined_it_alone() {
    let (file, other) = (File::open(), File::open());
    let id = file.resolved(PortSpace::Udp, address());
    let group = SocketAddr::from(([239, 1, 1, 1], 0));
    let joined = file.join(id, 1, group).unwrap();
    refused(other.leave(joined), libc::ENOENT);
    file.expect(CmEventKind::MulticastJoin);
    assert_eq!(file.leave(joined).unwrap(), 1, "the event");
}

#[test]
fn commands_in_the_wrong_state_are_refused() {
    let file = File::open();
    let id = file.id(PortSpace::Tcp);
    let file = &file.file;
    let early = [
        file.resolve_route(id),
        file.connect(id, &param(unique(), b"")),
        file.accept(id, Some(1), Some(&param(unique(), b""))),
        file.accept(id, None, None),
        file.reject(id, 0, b""),
        file.disconnect(id),
        file.notify_established(id),
        file.set_option(id, CmOption::AckTimeout(32)),
    ];
    for (index, result) in early.into_iter().enumerate() {
        assert_eq!(errno(result), Some(libc::EINVAL), "command {index}");
    }
    let group = SocketAddr::from(([239, 1, 1, 1], 0));
    refused(file.join(id, 1, group), libc::EINVAL);
    refused(file.leave(4711), libc::ENOENT);
    let long = vec![0; 57];
    let address = address();
    let end = File::open();
    let id = end.resolved(PortSpace::Tcp, address);
    refused(end.connect(id, &param(unique(), &long)), libc::EINVAL);
}
