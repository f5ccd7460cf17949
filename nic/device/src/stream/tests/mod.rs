//! Connections in time of the test's own and without background threads: completions that wait for
//! a reply here, and requests that wait for company.

mod bounds;
mod broken;
mod company;

use std::io::{Read, Write};
use std::iter;
use std::time::Duration;

use urxe_duty::constants::{IDLE_ROUNDS_PER_CLOCK, REPLIES_MIN, REPLY_OWED_NS, REPLY_WAIT_NS};
use urxe_proto::{QpState, QpType};
use urxe_udp::wait_readable;

use crate::objects::qp::Qp;
use crate::process::clock::staged::{self, Clock};
use crate::stream::{Slot, Streams};
use crate::support::streams::{connect, connection, nic, set_up, to_init};
use crate::support::{CAPACITY, End, post, set_state};

const LEN: usize = 64;

/// A device with a queue pair that is connected to another's.
struct Side {
    end: End,
    qp: Qp,
}

impl Side {
    fn write_to(&self, to: &Self) {
        post(&self.qp, 0, to.end.write_op(0), &[self.end.sge(0, LEN)]);
    }

    /// Polls once; how many completions there are.
    fn poll(&self) -> usize {
        self.end.cq.poll(16, |_| ())
    }

    /// The same until a round has looked at the clock and asked for all connections.
    fn poll_on(&self) -> usize {
        (0..IDLE_ROUNDS_PER_CLOCK).map(|_| self.poll()).sum()
    }

    /// Polls until there are no completions; how many there were.
    fn poll_all(&self) -> usize {
        iter::from_fn(|| Some(self.poll()).filter(|count| *count > 0)).sum()
    }

    fn take_in(&self) {
        take_in(&self.end, &self.qp);
    }

    /// Sends to `to`, whose program replies.
    fn exchange(&self, to: &Self) {
        self.write_to(to);
        to.take_in();
        to.write_to(self);
        self.take_in();
    }
}

/// Waits until a message has come to a queue pair.
fn take_in(end: &End, qp: &Qp) {
    let before = messages(end, qp);
    while messages(end, qp) == before {
        run(end);
    }
}

/// Does something with the connections of a device, and the place of a queue pair among them.
fn with_streams<T>(end: &End, qp: &Qp, work: impl FnOnce(&mut Streams, u16) -> T) -> T {
    let mut engine = end.nic.engine();
    let (streams, _) = engine.streams().unwrap();
    let index = streams.find(qp.number()).unwrap();
    work(streams, index)
}

/// The same with what a queue pair has there.
fn with_slot<T>(end: &End, qp: &Qp, work: impl FnOnce(&mut Slot) -> T) -> T {
    with_streams(end, qp, |streams, index| {
        work(streams.get_mut(index, qp.number()).unwrap())
    })
}

/// Messages that have come to a queue pair.
fn messages(end: &End, qp: &Qp) -> u64 {
    with_slot(end, qp, |slot| slot.qp.messages())
}

/// Waits for something, and lets the device take it in as its thread does.
fn run(end: &End) {
    wait_for_something(end);
    end.nic.run_waiting();
}

fn wait_for_something(end: &End) {
    wait_readable(iter::once(end.nic.connections().unwrap()), u64::MAX / 2);
}

fn end(len: usize) -> End {
    let nic = nic();
    nic.start().unwrap();
    nic.close();
    End::of(nic, len)
}

/// Two sides with buffers of this length, whose queue pairs have no connection yet.
fn sides(len: usize) -> [Side; 2] {
    [(); 2].map(|()| {
        let end = end(len);
        let qp = end.qp(QpType::Rc);
        to_init(&qp);
        Side { end, qp }
    })
}

/// The same with connections, in time of the test's own.
fn connected(len: usize) -> (Clock, [Side; 2]) {
    let sides = sides(len);
    // Only now: the devices had threads until they were closed, with another clock.
    let clock = Clock::new();
    connect(&sides[0].qp, &sides[1].qp);
    // The end that accepted may send once it has heard of the other.
    sides[1].take_in();
    (clock, sides)
}

/// Another connection between two sides.
fn second(from: &Side, to: &Side) -> [Qp; 2] {
    let qps = [from, to].map(|side| side.end.qp(QpType::Rc));
    qps.iter().for_each(to_init);
    connect(&qps[0], &qps[1]);
    take_in(&to.end, &qps[1]);
    qps
}

/// Two sides, of which the first has had replies that came soon.
fn conversing() -> (Clock, [Side; 2]) {
    let (clock, sides) = connected(LEN);
    let [program, peer] = &sides;
    for _ in 0..REPLIES_MIN {
        program.exchange(peer);
        assert_eq!(program.poll(), 1);
        peer.poll();
    }
    (clock, sides)
}

#[test]
fn a_completion_comes_with_the_reply_where_replies_come_soon() {
    let (_clock, [program, peer]) = conversing();
    for _ in 0..10 {
        program.write_to(&peer);
        assert_eq!(
            program.poll(),
            0,
            "the program polls for it, and so for the reply"
        );
        assert!(program.end.nic.is_amid());
        peer.take_in();
        peer.write_to(&program);
        program.take_in();
        assert_eq!(program.poll(), 1);
    }
}

#[test]
fn without_a_reply_a_completion_comes_in_time() {
    let (_clock, [program, peer]) = conversing();
    program.write_to(&peer);
    assert_eq!(program.poll(), 0);
    staged::pass(REPLY_WAIT_NS);
    assert_eq!(program.poll_on(), 1);
    assert!(!program.end.nic.is_amid());
    program.write_to(&peer);
    assert_eq!(program.poll(), 1, "the next does not wait");
}

#[test]
fn a_completion_does_not_wait_for_the_reply_to_a_later_message() {
    let (_clock, [program, peer]) = conversing();
    program.write_to(&peer);
    program.write_to(&peer);
    assert_eq!(program.poll(), 1);
}

#[test]
fn a_program_that_waits_for_events_has_its_completion() {
    let (_clock, [program, peer]) = conversing();
    program.write_to(&peer);
    program.end.cq.arm(false);
    assert_eq!(program.poll(), 1);
    program.write_to(&peer);
    assert_eq!(program.poll(), 1, "it is armed still");
}

/// A round of another thread might make a completion wait between the two.
#[test]
fn completions_are_let_go_and_an_event_asked_for_as_one() {
    let (_clock, [program, _peer]) = conversing();
    let End { nic, cq, .. } = &program.end;
    std::thread::scope(|scope| {
        let still = cq.completions().stand_still();
        scope.spawn(|| cq.arm(false));
        // It cannot ask yet, and has the engine as long as it tries to.
        let is_taken = |_| {
            std::thread::sleep(Duration::from_millis(1));
            nic.is_engine_taken()
        };
        let is_held = (0..200).any(|_| (0..50).all(is_taken));
        drop(still);
        assert!(is_held);
    });
}

#[test]
fn what_comes_over_another_connection_comes_before_the_reply() {
    let (_clock, [program, peer]) = conversing();
    let qps = second(&program, &peer);
    program.write_to(&peer);
    assert_eq!(program.poll(), 0);
    post(&qps[1], 0, program.end.write_op(0), &[peer.end.sge(0, LEN)]);
    take_in(&program.end, &qps[0]);
    assert_eq!(program.poll(), 1);
}

/// Most rounds read from the connection alone that had something last.
#[test]
fn what_comes_over_a_connection_that_was_silent_is_found() {
    let (_clock, [program, peer]) = conversing();
    let qps = second(&program, &peer);
    for _ in 0..3 {
        program.exchange(&peer);
        program.poll_on();
        let before = messages(&program.end, &qps[0]);
        let place = program.end.write_op(0);
        post(&qps[1], 0, place, &[peer.end.sge(0, LEN)]);
        wait_for_something(&program.end);
        program.poll_on();
        assert_eq!(messages(&program.end, &qps[0]), before + 1);
    }
}

#[test]
fn a_completion_that_waits_is_neither_lost_nor_late_when_the_queue_pair_ends() {
    let (_clock, [program, peer]) = conversing();
    program.write_to(&peer);
    set_state(&program.qp, QpState::Error);
    assert_eq!(program.poll(), 1);

    drop(_clock);
    let (_clock, [program, peer]) = conversing();
    program.write_to(&peer);
    set_state(&program.qp, QpState::Reset);
    staged::pass(REPLY_WAIT_NS);
    assert_eq!(program.poll_on(), 0, "a reset forgets it");
}

/// A thread that polls may sleep in the kernel for a while, and no packet comes that would wake it.
#[test]
fn a_thread_that_waits_in_a_poll_is_told_of_what_another_completes() {
    const LONG: usize = 1 << 20;
    const POSTS: usize = 32;
    let [program, peer] = sides(LONG);
    let _clock = Clock::new();
    connect(&program.qp, &peer.qp);
    let place = peer.end.write_op(0);
    (0..POSTS).for_each(|_| post(&program.qp, 0, place, &[program.end.sge(0, LONG)]));
    let mut done = 0;
    loop {
        done += program.poll_all();
        if done == POSTS {
            return;
        }
        let before = program.end.nic.arrivals();
        run(&peer.end);
        assert_eq!(program.end.nic.run_waiting().received, 0);
        let has_some = program.end.cq.completions().has_some();
        let is_told = program.end.nic.arrivals() != before;
        assert!(is_told || !has_some, "after {done}");
    }
}

/// The kernel drops what it has not sent yet of a connection that is closed with something unread.
#[test]
fn what_is_complete_arrives_though_the_process_ends_with_something_unread() {
    const LONG: usize = 128 << 10;
    let end = end(LONG);
    let qp = end.qp(QpType::Rc);
    to_init(&qp);
    let [active, (mut peer, _)] = set_up();
    qp.connect(connection(active)).unwrap();
    // As much as TCP takes.
    (0..CAPACITY.send_requests).for_each(|_| post(&qp, 0, end.write_op(0), &[end.sge(0, LONG)]));
    let done: usize = iter::from_fn(|| Some(end.cq.poll(16, |_| ())).filter(|n| *n > 0)).sum();
    assert!(done > 0);
    peer.write_all(&[0; 1]).unwrap();
    wait_for_something(&end);
    end.nic.take_leave();
    drop((qp, end));
    let mut arrived = Vec::new();
    peer.read_to_end(&mut arrived).unwrap();
    assert!(arrived.len() > done * LONG);
}

#[test]
fn a_program_may_be_about_to_reply_for_a_while() {
    let (_clock, [program, peer]) = conversing();
    let is_amid = || peer.end.nic.is_amid();
    program.write_to(&peer);
    assert!(!is_amid());
    peer.take_in();
    assert!(is_amid());
    staged::pass(REPLY_OWED_NS);
    assert!(!is_amid());
}
