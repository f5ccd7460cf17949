//! The end of a process that has connections of iWARP devices. Its own program, because all
//! connections of the process end with it.
mod support;

use std::sync::mpsc::channel;
use std::time::Duration;

use support::End;
use support::cm::{File, param};
use support::streams::{choose_iwarp, idle, state_within};
use urxe_device::{CmEventKind, QpState};

/// Longer than an exit takes, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

/// A signal handler may have interrupted a thread that has the engine, and call exit.
#[test]
fn a_process_ends_whoever_has_a_device() {
    choose_iwarp();
    let (server, client) = (File::open(), File::open());
    let [a, b] = [End::new(64), End::new(64)].map(idle);
    let (_, address) = server.listening();
    client.ask(address, &param(a.qp.number().get(), b""));
    let there = server.expect(CmEventKind::ConnectRequest).id;
    let accepted = param(b.qp.number().get(), b"");
    server.accept(there, None, Some(&accepted)).unwrap();
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
