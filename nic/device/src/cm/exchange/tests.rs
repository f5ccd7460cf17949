//! Peers that break the connection while it is set up. The exchange looks only once all has come.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use urxe_iwarp::{Responder, SetupError};
use urxe_proto::Instant;
use urxe_wire::Qpn;

use super::{Exchange, Failure, Progress};
use crate::support::streams::{OFFER, reset, wait_for_hangup};

const NOW: Instant = Instant::from_nanos(0);

/// An exchange whose request has come to a peer, which has not answered it.
fn asking() -> (Exchange, TcpStream, Responder) {
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(here).unwrap();
    let addresses = (here, listener.local_addr().unwrap());
    let mut exchange = Exchange::connect(addresses, OFFER, b"", (1, Qpn::new(2)), NOW).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut responder = Responder::new(NOW);
    let mut bytes = [0; 1024];
    while responder.request().is_none() {
        assert!(matches!(exchange.advance(NOW).1, Progress::Pending));
        let len = peer.read(&mut bytes).unwrap();
        assert_eq!(responder.handle_bytes(&bytes[..len]), len);
    }
    (exchange, peer, responder)
}

/// What becomes of it once the peer has sent what it has to say, and reset the connection.
fn broken(mut exchange: Exchange, mut peer: TcpStream, last: &[u8]) -> Failure {
    peer.write_all(last).unwrap();
    reset(peer);
    wait_for_hangup(&exchange);
    match exchange.advance(NOW).1 {
        Progress::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_rejection_counts_although_the_connection_was_reset_behind_it() {
    let (exchange, peer, mut responder) = asking();
    responder.reject(b"no room").unwrap();
    let failure = broken(exchange, peer, responder.output());
    let Failure::Mpa(SetupError::Rejected, data) = failure else {
        panic!("{failure:?}");
    };
    assert_eq!(data, b"no room");
}

#[test]
fn a_connection_that_was_reset_behind_its_acceptance_is_none() {
    let (exchange, peer, mut responder) = asking();
    responder.accept(&OFFER, b"welcome").unwrap();
    let failure = broken(exchange, peer, responder.output());
    let Failure::Tcp(error) = failure else {
        panic!("{failure:?}");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
}

#[test]
fn what_was_wrong_with_a_reply_counts_although_the_peer_cannot_be_told() {
    let (exchange, peer, mut responder) = asking();
    responder.accept(&OFFER, b"").unwrap();
    let mut reply = responder.output().to_vec();
    // More READs outstanding than this end answers, by the high byte of ORD.
    reply[22] |= 1;
    let failure = broken(exchange, peer, &reply);
    assert!(
        matches!(failure, Failure::Mpa(SetupError::InsufficientIrd, _)),
        "{failure:?}"
    );
}

#[test]
fn a_connection_that_was_reset_without_an_answer_is_none() {
    let (_, _, mut responder) = asking();
    responder.accept(&OFFER, b"welcome").unwrap();
    for len in [0, 10] {
        let (exchange, peer, _) = asking();
        let failure = broken(exchange, peer, &responder.output()[..len]);
        let Failure::Tcp(error) = failure else {
            panic!("{failure:?}");
        };
        assert_eq!(error.raw_os_error(), Some(libc::ECONNRESET));
    }
}
