//! Communication management of iWARP devices over loopback: both ends in this process.
mod support;

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Once;
use std::time::Duration;

use support::streams::to_init;
use support::{End, Peer, post_recv};
use urxe_device::{
    CmEvent, CmEventKind, CmFile, CmParam, CmQpAttributes, CmQpType, ConnectionParam, PortSpace,
    QpState, SendOp, WcStatus,
};

struct File {
    file: CmFile,
    _fd: OwnedFd,
}

impl File {
    fn open() -> Self {
        static ONCE: Once = Once::new();
        // SAFETY: no thread reads the environment before, as each test comes here first.
        ONCE.call_once(|| unsafe { std::env::set_var(urxe_device::TRANSPORT_VARIABLE, "iwarp") });
        let file = CmFile::open(true, false).unwrap();
        // SAFETY: a descriptor that was just made for us.
        let fd = unsafe { OwnedFd::from_raw_fd(file.fd()) };
        Self { file, _fd: fd }
    }

    fn id(&self) -> u32 {
        let created = self.file.create_id(7, PortSpace::Tcp, CmQpType::Rc);
        created.unwrap()
    }

    fn expect(&self, kind: CmEventKind) -> CmEvent {
        let event = self.file.next_event().unwrap();
        assert_eq!(event.kind, kind, "{event:?}");
        event
    }

    /// An identifier that listens on a port that is free.
    fn listen(&self) -> (u32, SocketAddr) {
        let id = self.id();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        self.file.bind(id, any).unwrap();
        self.file.listen(id, 0).unwrap();
        (id, self.file.query(id).unwrap().source.unwrap())
    }

    fn resolved(&self, address: SocketAddr) -> u32 {
        let id = self.id();
        self.file.resolve_address(id, None, address).unwrap();
        self.expect(CmEventKind::AddrResolved);
        self.file.resolve_route(id).unwrap();
        self.expect(CmEventKind::RouteResolved);
        id
    }
}

fn peer() -> Peer {
    let peer = Peer::of(End::new(64));
    to_init(&peer.qp);
    peer
}

fn param(peer: &Peer, data: &[u8]) -> ConnectionParam {
    ConnectionParam {
        qp_num: peer.qp.number().get(),
        private_data: data.to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        ..ConnectionParam::default()
    }
}

fn connection(event: &CmEvent) -> &ConnectionParam {
    match &event.param {
        CmParam::Connection(param) => param,
        other => panic!("{other:?}"),
    }
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let (server, client) = (File::open(), File::open());
    let (a, b) = (peer(), peer());
    let (listener, address) = server.listen();
    let id = client.resolved(address);
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
fn who_is_rejected_learns_why() {
    let (server, client) = (File::open(), File::open());
    let a = peer();
    let (listener, address) = server.listen();
    let id = client.resolved(address);
    client.file.connect(id, &param(&a, b"")).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest);
    server.file.reject(request.id, 0, b"no room").unwrap();
    let rejected = client.expect(CmEventKind::Rejected);
    assert_eq!(rejected.status, -libc::ECONNREFUSED);
    assert_eq!(connection(&rejected).private_data, b"no room");
    assert_eq!(a.qp.state().unwrap(), QpState::Init);

    // The listener is gone.
    server.file.destroy_id(listener).unwrap();
    let id = client.resolved(address);
    client.file.connect(id, &param(&a, b"")).unwrap();
    assert_eq!(
        client.expect(CmEventKind::Rejected).status,
        -libc::ECONNREFUSED
    );
}

/// A program that tells its peer by another way that it is about to listen.
#[test]
fn a_listener_may_come_a_little_later() {
    let (server, client) = (File::open(), File::open());
    let a = peer();
    let (first, address) = server.listen();
    server.file.destroy_id(first).unwrap();
    let id = client.resolved(address);
    client.file.connect(id, &param(&a, b"")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let listener = server.id();
    server.file.bind(listener, address).unwrap();
    server.file.listen(listener, 0).unwrap();
    server.expect(CmEventKind::ConnectRequest);
}

#[test]
fn a_queue_pair_has_one_connection_and_is_named_right() {
    let (server, client) = (File::open(), File::open());
    let (a, b) = (peer(), peer());
    let (_, address) = server.listen();
    let id = client.resolved(address);
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
    let second = client.resolved(address);
    let taken = client.file.connect(second, &param(&a, b""));
    assert_eq!(errno(taken), Some(libc::EINVAL));
    // It goes with its identifier.
    client.file.destroy_id(id).unwrap();
    server.expect(CmEventKind::Disconnected);
}

#[test]
fn ports_are_those_of_tcp() {
    let server = File::open();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let id = server.id();
    server.file.bind(id, other.local_addr().unwrap()).unwrap();
    assert_eq!(errno(server.file.listen(id, 0)), Some(libc::EADDRINUSE));
}

/// Strangers that ask for nothing, or for nonsense, keep none from a connection.
#[test]
fn strangers_are_no_requests() {
    let (server, client) = (File::open(), File::open());
    let a = peer();
    let (_, address) = server.listen();
    let silent: Vec<_> = (0..600)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    let mut rude = TcpStream::connect(address).unwrap();
    std::io::Write::write_all(&mut rude, &[b'x'; 100]).unwrap();
    rude.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    // The end of the stream, or its loss.
    assert!(!matches!(rude.read(&mut [0; 10]), Ok(1..)));
    let id = client.resolved(address);
    client.file.connect(id, &param(&a, b"me")).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest);
    assert_eq!(connection(&request).private_data, b"me");
    drop(silent);
}

#[test]
fn datagrams_are_refused() {
    let server = File::open();
    let id = server
        .file
        .create_id(7, PortSpace::Udp, CmQpType::Ud)
        .unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    server.file.bind(id, any).unwrap();
    assert_eq!(errno(server.file.listen(id, 0)), Some(libc::EOPNOTSUPP));
}
