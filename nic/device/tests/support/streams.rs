//! Queue pairs of iWARP devices, over TCP connections of this host that are set up here, as
//! communication management does it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Once};
use std::time::Duration;

use urxe_device::{
    AttrMask, Attributes, DeviceInfo, DeviceKind, Nic, Qp, QpState, StreamConnection, Wiring,
};
use urxe_iwarp::{Initiator, Offer, Outcome, Responder, Terms};

use super::{End, Peer, device, is_ready, wait_until};

pub const OFFER: Offer = Offer {
    wants_markers: false,
    wants_crc: true,
    ird: 4,
    ord: 4,
    is_enhanced: true,
    is_peer_to_peer: true,
};

pub fn nic() -> Arc<Nic> {
    let info = DeviceInfo {
        kind: DeviceKind::Iwarp,
        ..device("lo")
    };
    Nic::open_wired(&info, &Wiring::default()).unwrap()
}

pub fn end(len: usize) -> End {
    End::of(nic(), len)
}

pub fn to_init(qp: &Qp) {
    let wanted = Attributes {
        state: QpState::Init,
        ..Attributes::new()
    };
    qp.modify(&wanted, AttrMask::STATE | AttrMask::ACCESS_FLAGS)
        .unwrap();
}

/// One whose queue pair may be connected.
pub fn idle(end: End) -> Peer {
    let peer = Peer::of(end);
    to_init(&peer.qp);
    peer
}

/// Makes devices iWARP devices where programs do not say which they want.
pub fn choose_iwarp() {
    static ONCE: Once = Once::new();
    // SAFETY: tests that read the environment come here first.
    ONCE.call_once(|| unsafe { std::env::set_var(urxe_device::TRANSPORT_VARIABLE, "iwarp") });
}

/// Both ends of a TCP connection, and what they agree on.
pub fn set_up() -> [(TcpStream, Terms); 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let active = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (passive, _) = listener.accept().unwrap();
    agree(active, passive)
}

/// The same over a TCP connection that there is.
pub fn agree(mut active: TcpStream, mut passive: TcpStream) -> [(TcpStream, Terms); 2] {
    let now = urxe_proto::Instant::from_nanos(0);
    let mut initiator = Initiator::new(now, OFFER, b"hello").unwrap();
    let mut responder = Responder::new(now);
    active.write_all(initiator.output()).unwrap();
    let mut bytes = [0; 1024];
    while responder.request().is_none() {
        let len = passive.read(&mut bytes).unwrap();
        assert_eq!(responder.handle_bytes(&bytes[..len]), len);
    }
    let accepted = responder.accept(&OFFER, b"").unwrap();
    passive.write_all(responder.output()).unwrap();
    loop {
        let len = active.read(&mut bytes).unwrap();
        assert_eq!(initiator.handle_bytes(&bytes[..len]), len);
        if let Outcome::Established(terms) = initiator.outcome() {
            return [(active, terms), (passive, accepted)];
        }
    }
}

/// Ends a TCP connection by a RST. What was written before is on its way.
pub fn reset(stream: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the structure that the option has.
    let status = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as _,
        )
    };
    assert_eq!(status, 0);
}

/// Waits until a connection is over, by a RST or both ways.
pub fn wait_for_hangup(socket: &impl AsFd) {
    let is_over = is_ready(socket.as_fd().as_raw_fd(), 0, 60_000);
    assert!(is_over, "the connection is not over");
}

pub fn connection((stream, terms): (TcpStream, Terms)) -> StreamConnection {
    StreamConnection::new(stream, terms, Vec::new()).unwrap()
}

pub fn connect(a: &Qp, b: &Qp) {
    let [active, passive] = set_up();
    b.connect(connection(passive)).unwrap();
    a.connect(connection(active)).unwrap();
}

/// Two queue pairs that are connected to each other.
pub fn pair(len: usize) -> (Peer, Peer) {
    let [a, b] = [end(len), end(len)].map(idle);
    connect(&a.qp, &b.qp);
    (a, b)
}

/// A queue pair whose peer is a socket here.
pub fn alone(len: usize) -> (Peer, TcpStream) {
    let peer = idle(end(len));
    let [active, passive] = set_up();
    peer.qp.connect(connection(active)).unwrap();
    (peer, passive.0)
}

pub fn state_within(qp: &Qp, wanted: QpState) {
    wait_until(&format!("{wanted:?}"), || {
        std::thread::sleep(Duration::from_millis(1));
        qp.state().unwrap() == wanted
    });
}
