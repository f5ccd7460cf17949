//! Requests that wait for company.

use urxe_duty::constants::{DISTRUST_MIN_NS, HELD_MAX_NS, LOOK_AGAIN_BLOCKED_MAX_NS, STREAM_MIN};
use urxe_proto::QpState;

use super::{LEN, Side, connected, messages, run, second, take_in, with_slot};
use crate::process::clock::now;
use crate::process::clock::staged::{self, Clock};
use crate::stream::constants::{GATHERED_MAX, GATHERED_MAX_BYTES};
use crate::support::{post, set_state};

/// A program that streams to a peer.
struct Stream {
    program: Side,
    peer: Side,
    before: u64,
    _clock: Clock,
}

impl Stream {
    fn new(len: usize) -> Self {
        let (clock, [program, peer]) = connected(len);
        staged::pass(LOOK_AGAIN_BLOCKED_MAX_NS);
        let mut stream = Self {
            program,
            peer,
            before: 0,
            _clock: clock,
        };
        stream.post(STREAM_MIN as usize);
        stream.program.poll_all();
        stream.before = stream.frames();
        stream
    }

    fn post(&self, count: usize) {
        let len = self.program.end.buffer.len();
        for _ in 0..count {
            let place = self.peer.end.write_op(0);
            post(&self.program.qp, 0, place, &[self.program.end.sge(0, len)]);
        }
    }

    fn frames(&self) -> u64 {
        let Side { end, qp } = &self.program;
        with_slot(end, qp, |slot| slot.qp.stats().fpdus_sent)
    }

    /// Requests that have left since it was known to stream.
    fn sent(&self) -> u64 {
        self.frames() - self.before
    }

    /// Waits until so many messages have come to the peer in all.
    fn arrive(&self, count: u64) {
        while messages(&self.peer.end, &self.peer.qp) < count {
            run(&self.peer.end);
        }
    }
}

#[test]
fn requests_of_a_stream_leave_many_at_a_time() {
    let stream = Stream::new(LEN);
    stream.post(1);
    assert_eq!(
        stream.sent(),
        1,
        "the first of an idle stream waits for none"
    );
    stream.post(GATHERED_MAX as usize - 1);
    assert_eq!(stream.sent(), 1);
    stream.post(1);
    assert_eq!(stream.sent(), u64::from(GATHERED_MAX) + 1);
    stream.post(5);
    assert_eq!(stream.sent(), u64::from(GATHERED_MAX) + 1);
    stream.program.poll_all();
    assert_eq!(stream.sent(), u64::from(GATHERED_MAX) + 6, "it polled");
    stream.post(1);
    assert_eq!(stream.sent(), u64::from(GATHERED_MAX) + 7, "idle again");
}

#[test]
fn a_request_is_complete_once_it_has_left() {
    let stream = Stream::new(LEN);
    stream.post(6);
    let cq = &stream.program.end.cq;
    assert_eq!(cq.poll(16, |_| ()), 1, "the socket has the first alone");
    assert_eq!(
        stream.sent(),
        6,
        "a poll that leaves no completion sends them"
    );
    assert_eq!(cq.poll(16, |_| ()), 5);
}

#[test]
fn a_program_that_sends_few_messages_between_polls_has_none_waiting() {
    let stream = Stream::new(LEN);
    let few = STREAM_MIN as usize - 1;
    stream.post(few);
    stream.program.poll_all();
    stream.program.poll_all();
    for turn in 2..6 {
        stream.post(few);
        assert_eq!(stream.sent(), turn * few as u64, "turn {turn}");
        stream.program.poll_all();
    }
}

#[test]
fn a_queue_pair_that_is_idle_does_not_wait_for_another() {
    let stream = Stream::new(LEN);
    let qps = second(&stream.program, &stream.peer);
    stream.post(3);
    stream.program.poll_all();
    let before = messages(&stream.peer.end, &qps[1]);
    let place = stream.peer.end.write_op(0);
    post(&qps[0], 0, place, &[stream.program.end.sge(0, LEN)]);
    take_in(&stream.peer.end, &qps[1]);
    assert_eq!(messages(&stream.peer.end, &qps[1]), before + 1);
}

#[test]
fn much_payload_waits_for_no_more() {
    let stream = Stream::new(usize::try_from(GATHERED_MAX_BYTES).unwrap());
    for posted in 1..4 {
        stream.post(1);
        assert_eq!(stream.sent(), posted);
    }
}

#[test]
fn what_waits_has_a_time_by_which_it_goes() {
    let stream = Stream::new(LEN);
    let nic = &stream.program.end.nic;
    // Without it, the peer is to be looked for in seconds.
    let is_soon = || {
        let at = nic.earliest_deadline();
        at.is_some_and(|at| at.since(now()) <= HELD_MAX_NS)
    };
    assert!(!is_soon());
    stream.post(3);
    assert!(is_soon());
    nic.run_waiting();
    assert_eq!(stream.sent(), 3);
    assert!(!is_soon());
}

#[test]
fn a_program_found_not_to_poll_has_nothing_waiting_for_a_while() {
    let stream = Stream::new(LEN);
    stream.post(3);
    assert_eq!(stream.sent(), 1);
    stream.program.end.nic.stop_gathering();
    assert_eq!(stream.sent(), 3);
    stream.post(3);
    assert_eq!(stream.sent(), 6);
    staged::pass(DISTRUST_MIN_NS);
    // One of them is due for a round.
    stream.post(3);
    assert!(stream.sent() < 9, "it is trusted again");
}

#[test]
fn what_waits_goes_when_the_program_asks_for_an_event() {
    let stream = Stream::new(LEN);
    stream.post(3);
    assert_eq!(stream.sent(), 1);
    stream.program.end.cq.arm(false);
    assert_eq!(stream.sent(), 3);
}

/// A program that reads its memory for replies, and polls for its completions now and then.
#[test]
fn nothing_waits_where_replies_come_in_between() {
    let stream = Stream::new(LEN);
    stream.program.poll_all();
    for turn in 1..=2 * u64::from(STREAM_MIN) {
        stream.post(1);
        assert_eq!(stream.sent(), turn);
        stream.arrive(u64::from(STREAM_MIN) + turn);
        stream.peer.write_to(&stream.program);
        stream.program.take_in();
    }
}

#[test]
fn nothing_waits_while_the_background_thread_may_sleep_as_beside_one_that_blocks() {
    let stream = Stream::new(LEN);
    drop(stream.program.end.nic.progress().enter_blocking());
    stream.post(3);
    assert_eq!(stream.sent(), 3);
    staged::pass(LOOK_AGAIN_BLOCKED_MAX_NS);
    stream.post(3);
    assert!(stream.sent() < 6);
}

#[test]
fn nothing_waits_beside_a_thread_that_watches_the_sockets() {
    let stream = Stream::new(LEN);
    let progress = stream.program.end.nic.progress();
    progress.note_waiting(None);
    stream.post(3);
    assert_eq!(stream.sent(), 3);
    progress.note_back();
    stream.post(3);
    assert_eq!(stream.sent(), 3, "the thread has slept since");
}

#[test]
fn what_waits_goes_before_its_queue_pair_or_its_memory_ends() {
    for end in [
        |stream: &Stream| stream.program.qp.destroy(),
        |stream: &Stream| set_state(&stream.program.qp, QpState::Error),
        |stream: &Stream| set_state(&stream.program.qp, QpState::Reset),
        |stream: &Stream| {
            let end = &stream.program.end;
            end.nic.deregister(end.key).unwrap();
        },
        |stream: &Stream| stream.program.end.nic.take_leave(),
    ] {
        let stream = Stream::new(LEN);
        let before = u64::from(STREAM_MIN);
        stream.post(5);
        assert_eq!(stream.sent(), 1);
        end(&stream);
        stream.arrive(before + 5);
    }
}
