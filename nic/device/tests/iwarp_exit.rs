//! The end of a process that has connections of iWARP devices. Its own program, because all
//! connections of the process end with it.
mod support;

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::Duration;

use support::cm::{File, param};
use support::streams::{state_within, to_init};
use support::{End, Peer};
use urxe_device::{CmEventKind, PortSpace, QpState};

/// Longer than an exit takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

fn peer() -> Peer {
    let peer = Peer::of(End::new(64));
    to_init(&peer.qp);
    peer
}

/// A signal handler may have interrupted a thread that has the engine, and call exit.
#[test]
fn a_process_ends_whoever_has_a_device() {
    // SAFETY: no thread reads the environment yet.
    unsafe { std::env::set_var(urxe_device::TRANSPORT_VARIABLE, "iwarp") };
    let (server, client) = (File::open(), File::open());
    let (a, b) = (peer(), peer());
    let listener = server.listen(PortSpace::Tcp, SocketAddr::from(([127, 0, 0, 1], 0)), 0);
    let address = server.file.query(listener).unwrap().source.unwrap();
    let id = client.resolved(PortSpace::Tcp, address);
    let asked = param(a.qp.number().get(), b"");
    client.file.connect(id, &asked).unwrap();
    let there = server.expect(CmEventKind::ConnectRequest).id;
    let accepted = param(b.qp.number().get(), b"");
    server.file.accept(there, None, Some(&accepted)).unwrap();
    server.expect(CmEventKind::Established);
    client.expect(CmEventKind::Established);

    let is_over = a.qp.post_sends(|_| {
        let (over, is_over) = channel();
        std::thread::spawn(move || {
            urxe_device::at_exit();
            over.send(()).unwrap();
        });
        is_over.recv_timeout(PATIENCE)
    });
    assert!(is_over.is_ok(), "it waits for the engine");
    state_within(&b.qp, QpState::Error);
    state_within(&a.qp, QpState::Error);
}
