//! Communication management of iWARP devices over loopback: both ends in this process.
mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use support::cm::{File, connection, errno, refused};
use support::streams::{OFFER, choose_iwarp, idle, reset};
use support::{End, Peer, post_recv};
use urxe_device::{
    CmEventKind, CmQpAttributes, ConnectionParam, PortSpace, QpState, SendOp, WcStatus,
};
use urxe_iwarp::{Initiator, Responder};

/// Without a device in this process yet, whose kind would stay.
fn open() -> File {
    choose_iwarp();
    File::open()
}

fn peer() -> Peer {
    idle(End::new(64))
}

fn param(peer: &Peer, data: &[u8]) -> ConnectionParam {
    support::cm::param(peer.qp.number().get(), data)
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let (server, client) = (open(), open());
    let (a, b) = (peer(), peer());
    let (listener, address) = server.listening();
    let id = client.ask(address, &param(&a, b"hello"));
    let request = server.expect(CmEventKind::ConnectRequest);
    assert_eq!(request.uid, 7, "the listener's");
    let asked = connection(&request);
    assert_eq!(asked.private_data, b"hello");
    assert_eq!((asked.responder_resources, asked.initiator_depth), (5, 3));
    let there = request.id;
    let attributes = server.qp_attributes(there, QpState::ReadyToReceive);
    let expected = CmQpAttributes::Stream {
        has_state: true,
        allow_access: true,
    };
    assert_eq!(attributes.unwrap(), expected);
    let welcome = param(&b, b"welcome");
    server.accept(there, Some(9), Some(&welcome)).unwrap();
    assert_eq!(server.expect(CmEventKind::Established).uid, 9);
    let established = client.expect(CmEventKind::Established);
    let agreed = connection(&established);
    assert_eq!(agreed.private_data, b"welcome");
    assert_eq!((agreed.responder_resources, agreed.initiator_depth), (3, 3));
    let info = client.query(id).unwrap();
    let other = server.query(there).unwrap();
    assert_eq!(
        (info.source, info.destination),
        (other.destination, other.source)
    );

    // The end that was asked may be the first to send.
    post_recv(&a.qp, 1, &[a.sge(0, 64)]);
    b.post(2, SendOp::Send, &[b.sge(0, 64)]);
    assert_eq!(a.wait(&b, 1)[0].status, WcStatus::Success);

    client.disconnect(id).unwrap();
    client.expect(CmEventKind::Disconnected);
    server.expect(CmEventKind::Disconnected);
    assert_eq!(a.qp.state().unwrap(), QpState::Error);
    server.disconnect(there).unwrap();
    assert_eq!(server.destroy_id(listener).unwrap(), 1, "the request");
    assert_eq!(server.destroy_id(there).unwrap(), 2);
}

#[test]
fn a_port_that_nobody_chose_is_kept_from_tcp_until_it_is_listened_on() {
    let server = open();
    let (id, address) = server.bound(PortSpace::Tcp);
    let refused = TcpStream::connect(address).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ECONNREFUSED));
    let taken = TcpListener::bind(address).unwrap_err();
    assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
    server.listen(id, 0).unwrap();
    TcpStream::connect(address).unwrap();
    server.destroy_id(id).unwrap();
    TcpListener::bind(address).unwrap();
}

#[test]
fn who_is_rejected_learns_why() {
    let (server, client) = (open(), open());
    let a = peer();
    let (listener, address) = server.listening();
    client.ask(address, &param(&a, b""));
    let request = server.expect(CmEventKind::ConnectRequest);
    server.reject(request.id, 0, b"no room").unwrap();
    let rejected = client.expect(CmEventKind::Rejected);
    assert_eq!(rejected.status, -libc::ECONNREFUSED);
    assert_eq!(connection(&rejected).private_data, b"no room");
    assert_eq!(a.qp.state().unwrap(), QpState::Init);

    // The listener is gone.
    server.destroy_id(listener).unwrap();
    client.ask(address, &param(&a, b""));
    let rejected = client.expect(CmEventKind::Rejected);
    assert_eq!(rejected.status, -libc::ECONNREFUSED);
}

/// A connection is not tried again that was reset, whenever that is: the program decides.
#[test]
fn who_is_reset_by_the_other_end_is_told_so() {
    let client = open();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for stage in 0..3 {
        let a = peer();
        let id = client.ask(address, &param(&a, b""));
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
        let event = client.next_event().unwrap();
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
    let (_, address) = server.listening();
    let now = urxe_proto::Instant::from_nanos(0);
    let initiator = Initiator::new(now, OFFER, b"").unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(initiator.output()).unwrap();
    let there = server.expect(CmEventKind::ConnectRequest).id;
    let too_long = param(&b, &[0; 300]);
    let accept = || errno(server.accept(there, None, Some(&too_long)));
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
    let (first, address) = server.listening();
    server.destroy_id(first).unwrap();
    client.ask(address, &param(&a, b""));
    std::thread::sleep(Duration::from_millis(100));
    server.listen_at(PortSpace::Tcp, address, 0);
    server.expect(CmEventKind::ConnectRequest);
}

#[test]
fn a_queue_pair_has_one_connection_and_is_named_right() {
    let (server, client) = (open(), open());
    let (a, b) = (peer(), peer());
    let (_, address) = server.listening();
    let id = client.resolved(PortSpace::Tcp, address);
    let nobodys = ConnectionParam {
        qp_num: 1,
        ..param(&a, b"")
    };
    refused(client.connect(id, &nobodys), libc::EINVAL);
    client.connect(id, &param(&a, b"")).unwrap();
    let there = server.expect(CmEventKind::ConnectRequest).id;
    refused(server.accept(there, None, Some(&nobodys)), libc::EINVAL);
    server.accept(there, None, Some(&param(&b, b""))).unwrap();
    server.expect(CmEventKind::Established);
    client.expect(CmEventKind::Established);
    let second = client.resolved(PortSpace::Tcp, address);
    refused(client.connect(second, &param(&a, b"")), libc::EINVAL);
    // It goes with its identifier.
    client.destroy_id(id).unwrap();
    server.expect(CmEventKind::Disconnected);
}

#[test]
fn ports_are_those_of_tcp() {
    let server = open();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = server.id(PortSpace::Tcp);
    server.bind(id, other.local_addr().unwrap()).unwrap();
    refused(server.listen(id, 0), libc::EADDRINUSE);
}

/// Strangers that ask for nothing, or for nonsense, keep none from a connection.
#[test]
fn strangers_are_no_requests() {
    let (server, client) = (open(), open());
    let a = peer();
    let (_, address) = server.listening();
    let silent: Vec<_> = (0..600)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut rude = TcpStream::connect(address).unwrap();
    rude.write_all(&[b'x'; 100]).unwrap();
    rude.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // The end of the stream, or its loss.
    assert!(!matches!(rude.read(&mut [0; 10]), Ok(1..)));
    client.ask(address, &param(&a, b"me"));
    let request = server.expect(CmEventKind::ConnectRequest);
    assert_eq!(connection(&request).private_data, b"me");
    drop(silent);
}

#[test]
fn datagrams_are_refused() {
    let server = open();
    let (id, _) = server.bound(PortSpace::Udp);
    refused(server.listen(id, 0), libc::EOPNOTSUPP);
}
