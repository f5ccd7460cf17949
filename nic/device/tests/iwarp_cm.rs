//! Communication management of iWARP devices over loopback: both ends in this process.
mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Once;
use std::time::Duration;

use support::cm::{File, connection, errno};
use support::streams::{OFFER, reset, to_init};
use support::{End, Peer, post_recv};
use urxe_device::{
    CmEventKind, CmQpAttributes, ConnectionParam, PortSpace, QpState, SendOp, WcStatus,
};
use urxe_iwarp::{Initiator, Responder};

/// Without a device in this process yet, whose kind would stay.
fn open() -> File {
    static ONCE: Once = Once::new();
    // SAFETY: no thread reads the environment before, as each test comes here first.
    ONCE.call_once(|| unsafe { std::env::set_var(urxe_device::TRANSPORT_VARIABLE, "iwarp") });
    File::open()
}

/// An identifier that listens on a port that is free, and where.
fn listen(server: &File) -> (u32, SocketAddr) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let id = server.listen(PortSpace::Tcp, any, 0);
    (id, server.file.query(id).unwrap().source.unwrap())
}

fn peer() -> Peer {
    let peer = Peer::of(End::new(64));
    to_init(&peer.qp);
    peer
}

fn param(peer: &Peer, data: &[u8]) -> ConnectionParam {
    support::cm::param(peer.qp.number().get(), data)
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let (server, client) = (open(), open());
    let (a, b) = (peer(), peer());
    let (listener, address) = listen(&server);
    let id = client.resolved(PortSpace::Tcp, address);
    client.file.connect(id, &param(&a, b"hello")).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest);
    assert_eq!(request.uid, 7, "the listener's");
    let asked = connection(&request);
    assert_eq!(asked.private_data, b"hello");
    assert_eq!((asked.responder_resources, asked.initiator_depth), (5, 3));
    let there = request.id;
    let attributes = server.file.qp_attributes(there, QpState::ReadyToReceive);
    let expected = CmQpAttributes::Stream {
        has_state: true,
        allow_access: true,
    };
    assert_eq!(attributes.unwrap(), expected);
    let welcome = param(&b, b"welcome");
    server.file.accept(there, Some(9), Some(&welcome)).unwrap();
    assert_eq!(server.expect(CmEventKind::Established).uid, 9);
    let established = client.expect(CmEventKind::Established);
    let agreed = connection(&established);
    assert_eq!(agreed.private_data, b"welcome");
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (3, 3));
    let info = client.file.query(id).unwrap();
    let other = server.file.query(there).unwrap();
    assert_eq!(
        (info.source, info.destination),
        (other.destination, other.source)
    );

    // The end that was asked may be the first to send.
    post_recv(&a.qp, 1, &[a.sge(0, 64)]);
    b.post(2, SendOp::Send, &[b.sge(0, 64)]);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);

    client.file.disconnect(id).unwrap();
    client.expect(CmEventKind::Disconnected);
    server.expect(CmEventKind::Disconnected);
    assert_eq!(a.qp.state().unwrap(), QpState::Error);
    server.file.disconnect(there).unwrap();
    assert_eq!(server.file.destroy_id(listener).unwrap(), 1, "the request");
    assert_eq!(server.file.destroy_id(there).unwrap(), 2);
}

#[test]
fn a_port_that_nobody_chose_is_kept_from_tcp_until_it_is_listened_on() {
    let server = open();
    let id = server.id(PortSpace::Tcp);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    server.file.bind(id, any).unwrap();
    let address = server.file.query(id).unwrap().source.unwrap();
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    let taken = TcpListener::bind(address).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
    server.file.listen(id, 0).unwrap();
    TcpStream::connect(address).unwrap();
    server.file.destroy_id(id).unwrap();
    TcpListener::bind(address).unwrap();
}

#[test]
fn who_is_rejected_learns_why() {
    let (server, client) = (open(), open());
    let a = peer();
    let (listener, address) = listen(&server);
    let id = client.resolved(PortSpace::Tcp, address);
    client.file.connect(id, &param(&a, b"")).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest);
    server.file.reject(request.id, 0, b"no room").unwrap();
    let rejected = client.expect(CmEventKind::Rejected);
    assert_eq!(rejected.status, -libc::ECONNREFUSED);
    assert_eq!(connection(&rejected).private_data, b"no room");
    assert_eq!(a.qp.state().unwrap(), QpState::Init);

    // The listener is gone.
    server.file.destroy_id(listener).unwrap();
    let id = client.resolved(PortSpace::Tcp, address);
    client.file.connect(id, &param(&a, b"")).unwrap();
    assert_eq!(
        client.expect(CmEventKind::Rejected).status,
        -libc::ECONNREFUSED
    );
}

/// A connection is not tried again that was reset, whenever that is: the program decides.
#[test]
fn who_is_reset_by_the_other_end_is_told_so() {
    let client = open();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for stage in 0..3 {
        let a = peer();
        let id = client.resolved(PortSpace::Tcp, address);
        client.file.connect(id, &param(&a, b"")).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let mut responder = Responder::new(urxe_proto::Instant::from_nanos(0));
        while stage > 0 && responder.request().is_none() {
            let mut bytes = [0; 1024];
            let len = other.read(&mut bytes).unwrap();
            responder.handle_bytes(&bytes[..len]);
        }
        if stage == 2 {
            responder.accept(&OFFER, b"").unwrap();
            other.write_all(responder.output()).unwrap();
        }
        reset(other);
        let event = client.file.next_event().unwrap();
        assert_eq!(event.id, id);
        match event.kind {
            // The queue pair had it for a while.
            CmEventKind::Established if stage == 2 => {
                client.expect(CmEventKind::Disconnected);
            }
            // It was about to have it.
            CmEventKind::ConnectError if stage == 2 => {}
            kind => {
                let expected = (CmEventKind::Rejected, -libc::ECONNRESET);
                assert_eq!((kind, event.status), expected, "stage {stage}");
            }
        }
    }
}

/// It may be accepted once more, with less private data. The peer does not wait for that.
#[test]
fn a_peer_that_leaves_after_an_acceptance_that_failed_is_found_out_by_the_next() {
    let server = open();
    let b = peer();
    let (_, address) = listen(&server);
    let now = urxe_proto::Instant::from_nanos(0);
    let initiator = Initiator::new(now, OFFER, b"").unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(initiator.output()).unwrap();
    let there = server.expect(CmEventKind::ConnectRequest).id;
    let too_long = param(&b, &[0; 300]);
    let accept = || errno(server.file.accept(there, None, Some(&too_long)));
    assert_eq!(accept(), Some(libc::EINVAL));
    reset(stranger);
    let gone = loop {
        match accept() {
            Some(libc::EINVAL) => std::thread::sleep(Duration::from_millis(1)),
            other => break other,
        }
        assert!(!server.is_readable(), "of what it has not accepted");
    };
    assert_eq!(gone, Some(libc::ECONNRESET));
    assert!(!server.is_readable());
}

/// A program that tells its peer by another way that it is about to listen.
#[test]
fn a_listener_may_come_a_little_later() {
    let (server, client) = (open(), open());
    let a = peer();
    let (first, address) = listen(&server);
    server.file.destroy_id(first).unwrap();
    let id = client.resolved(PortSpace::Tcp, address);
    client.file.connect(id, &param(&a, b"")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    server.listen(PortSpace::Tcp, address, 0);
    server.expect(CmEventKind::ConnectRequest);
}

#[test]
fn a_queue_pair_has_one_connection_and_is_named_right() {
    let (server, client) = (open(), open());
    let (a, b) = (peer(), peer());
    let (_, address) = listen(&server);
    let id = client.resolved(PortSpace::Tcp, address);
    let nobodys = ConnectionParam {
        qp_num: 1,
        ..param(&a, b"")
    };
    assert_eq!(errno(client.file.connect(id, &nobodys)), Some(libc::EINVAL));
    client.file.connect(id, &param(&a, b"")).unwrap();
    let there = server.expect(CmEventKind::ConnectRequest).id;
    assert_eq!(
        errno(server.file.accept(there, None, Some(&nobodys))),
        Some(libc::EINVAL)
    );
    server
        .file
        .accept(there, None, Some(&param(&b, b"")))
        .unwrap();
    server.expect(CmEventKind::Established);
    client.expect(CmEventKind::Established);
    let second = client.resolved(PortSpace::Tcp, address);
    let taken = client.file.connect(second, &param(&a, b""));
    assert_eq!(errno(taken), Some(libc::EINVAL));
    // It goes with its identifier.
    client.file.destroy_id(id).unwrap();
    server.expect(CmEventKind::Disconnected);
}

#[test]
fn ports_are_those_of_tcp() {
    let server = open();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = server.id(PortSpace::Tcp);
    server.file.bind(id, other.local_addr().unwrap()).unwrap();
    assert_eq!(errno(server.file.listen(id, 0)), Some(libc::EADDRINUSE));
}

/// Strangers that ask for nothing, or for nonsense, keep none from a connection.
#[test]
fn strangers_are_no_requests() {
    let (server, client) = (open(), open());
    let a = peer();
    let (_, address) = listen(&server);
    let silent: Vec<_> = (0..600)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut rude = TcpStream::connect(address).unwrap();
    rude.write_all(&[b'x'; 100]).unwrap();
    rude.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // The end of the stream, or its loss.
    assert!(!matches!(rude.read(&mut [0; 10]), Ok(1..)));
    let id = client.resolved(PortSpace::Tcp, address);
    client.file.connect(id, &param(&a, b"me")).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest);
    assert_eq!(connection(&request).private_data, b"me");
    drop(silent);
}

#[test]
fn datagrams_are_refused() {
    let server = open();
    let id = server.id(PortSpace::Udp);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    server.file.bind(id, any).unwrap();
    assert_eq!(errno(server.file.listen(id, 0)), Some(libc::EOPNOTSUPP));
}
