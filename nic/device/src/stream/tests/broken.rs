//! What breaks beneath a connection: its socket cannot be watched, or the peer resets it.

use std::net::TcpStream;
use std::os::fd::AsFd;

use urxe_proto::{QpState, SendOp, WcStatus};
use urxe_udp::Interest;

use super::{LEN, Side, conversing, run, sides, with_slot};
use crate::process::clock::staged::{self, Clock};
use crate::stream::constants::WATCH_AGAIN_NS;
use crate::stream::{Socket, Streams};
use crate::support::streams::{connect, connection, reset, set_up, wait_for_hangup};
use crate::support::{post, post_recv};

/// Does something with the connections of a side, and the place of its queue pair among them.
fn with_streams<T>(side: &Side, work: impl FnOnce(&mut Streams, u16) -> T) -> T {
    super::with_streams(&side.end, &side.qp, work)
}

fn socket(streams: &Streams, index: u16) -> &Socket {
    let slot = streams.slots[usize::from(index)].as_ref().unwrap();
    slot.socket.as_ref().unwrap()
}

fn is_watched(side: &Side) -> bool {
    with_slot(&side.end, &side.qp, |slot| slot.interest.is_some())
}

/// A socket that is watched already cannot be watched by another name: so it is with a kernel that
/// has no memory for it.
#[test]
fn a_connection_that_cannot_be_watched_leaves_the_queue_pair_as_it_was() {
    let [program, peer] = sides(LEN);
    let _clock = Clock::new();
    let [active, _passive] = set_up();
    let refused = connection(active);
    with_streams(&program, |streams, _| {
        let added = streams
            .waiter
            .add(&refused.socket, u64::MAX, Interest::NONE);
        added.unwrap();
    });
    assert!(program.qp.connect(refused).is_err());
    assert_eq!(program.qp.state().unwrap(), QpState::Init);

    connect(&program.qp, &peer.qp);
    peer.take_in();
    program.exchange(&peer);
    assert_eq!(program.poll(), 1);
}

#[test]
fn a_socket_that_could_not_be_watched_again_is_tried_once_more() {
    let (_clock, [program, peer]) = conversing();
    post(&program.qp, 1, SendOp::Send, &[program.end.sge(0, LEN)]);
    // It waits for its receive request, and its socket is not watched meanwhile.
    while with_streams(&peer, |streams, _| !streams.is_stalled()) {
        run(&peer.end);
    }
    assert!(!is_watched(&peer));
    with_streams(&peer, |streams, index| {
        let added = streams
            .waiter
            .add(socket(streams, index), u64::MAX, Interest::NONE);
        added.unwrap();
    });
    post_recv(&peer.qp, 2, &[peer.end.sge(0, LEN)]);
    assert!(!is_watched(&peer));
    with_streams(&peer, |streams, index| {
        let removed = streams.waiter.remove(socket(streams, index));
        removed.unwrap();
    });
    staged::pass(WATCH_AGAIN_NS);
    peer.end.nic.run_waiting();
    assert!(is_watched(&peer));
    program.write_to(&peer);
    peer.take_in();
}

/// The peer says its last and resets the connection. The program sends before it looks.
#[test]
fn what_came_before_a_reset_is_taken_in_although_a_send_finds_the_reset() {
    let (_clock, [program, peer]) = conversing();
    post_recv(&program.qp, 1, &[program.end.sge(0, LEN)]);
    post(&peer.qp, 2, SendOp::Send, &[peer.end.sge(0, LEN)]);
    let taken = with_slot(&peer.end, &peer.qp, |slot| slot.socket.take().unwrap());
    reset(TcpStream::from(taken.as_fd().try_clone_to_owned().unwrap()));
    // The last descriptor of it.
    drop(taken);
    with_streams(&program, |streams, index| {
        wait_for_hangup(socket(streams, index))
    });

    program.write_to(&peer);
    let mut done = Vec::new();
    program
        .end
        .cq
        .poll(16, |one| done.push((one.wr_id, one.status)));
    assert!(done.contains(&(1, WcStatus::Success)), "{done:?}");
    assert!(done.contains(&(0, WcStatus::WrFlush)), "{done:?}");
    assert_eq!(program.qp.state().unwrap(), QpState::Error);
}
