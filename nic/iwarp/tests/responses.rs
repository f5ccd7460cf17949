//! Answers that are none to what was asked for: they end the connection and complete nothing, and
//! no byte is placed that was not asked for.

mod support;

use support::forge::{frame, terminate_by, ulpdus, untagged};
use support::{PD, Pair, TERMS, request, responder};
use urxe_iwarp_wire::{AtomicResponse, DdpHeader, Fault, Opcode, Queue, Tagged};
use urxe_proto::{Completion, QpState, SendOp, SendRequest, Sge, WcStatus};
use urxe_sim::Rights;

const READ: SendOp = SendOp::Read { va: 0, rkey: 9 };
const ADD: SendOp = SendOp::FetchAdd {
    va: 0,
    rkey: 9,
    add: 1,
};

/// A segment of the answer to a READ: `len` bytes, `at` bytes into its buffer.
fn response(sink: &Sge, at: u64, len: usize, is_last: bool) -> Vec<u8> {
    let header = DdpHeader::Tagged(Tagged {
        is_last,
        control: Opcode::ReadResponse.emit(),
        stag: sink.lkey,
        offset: sink.addr + at,
    });
    frame(&header, &vec![7; len])
}

fn atomic_response(id: u32) -> Vec<u8> {
    let header = untagged(Opcode::AtomicResponse, Queue::AtomicResponse, 1);
    let response = AtomicResponse { id, original: 7 };
    frame(&DdpHeader::Untagged(header), &response.emit())
}

/// Has host 0 ask for `len` bytes by `op`, and answers by hand. `placed` bytes of the answer may be
/// placed.
fn assert_refused(
    what: &str,
    (op, len): (SendOp, u32),
    answer: impl Fn(&Sge) -> Vec<u8>,
    (fault, placed): (Fault, usize),
) {
    let mut pair = Pair::plain(1);
    let host = &mut pair.hosts[0];
    let key = host.register(Rights::ALL, vec![0; 200]);
    let sink = host.sge(key, 0, len);
    host.post(1, op, &[sink]);
    host.post(2, READ, &[sink]);
    let waiting = host.qp.poll_output(5000, &mut host.memory);
    host.qp.handle_sent(waiting);
    host.qp.handle_bytes(&answer(&sink), None, &mut host.memory);
    assert_eq!(host.qp.state(), QpState::Error, "{what}");
    pair.run();
    let said = terminate_by(&pair, 0).map(|(fault, ..)| fault);
    assert_eq!(said, Some(fault), "{what}");
    let host = &pair.hosts[0];
    let done: Vec<_> = host.completions.iter().map(of).collect();
    let expected = [(1, WcStatus::WrFlush), (2, WcStatus::WrFlush)];
    assert_eq!(done, expected, "{what}");
    let bytes = host.memory.0.bytes(key);
    assert!(bytes[placed..].iter().all(|byte| *byte == 0), "{what}");
}

fn of(done: &Completion) -> (u64, WcStatus) {
    (done.wr_id, done.status)
}

#[test]
fn answers_to_reads_are_what_was_asked_for() {
    let read = (READ, 64);
    let no_bounds = (Fault::TaggedBounds, 0);
    let elsewhere = |sink: &Sge| response(sink, 8, 56, true);
    assert_refused("elsewhere", read, elsewhere, no_bounds);
    let long = |sink: &Sge| response(sink, 0, 65, true);
    assert_refused("too long", read, long, no_bounds);
    let other = |sink: &Sge| {
        let lkey = sink.lkey + 1;
        response(&Sge { lkey, ..*sink }, 0, 64, true)
    };
    let no_buffer = (Fault::TaggedInvalidStag, 0);
    assert_refused("another buffer", read, other, no_buffer);
    let twice = |sink: &Sge| {
        let [first, again] = [false, true].map(|is_last| response(sink, 0, 32, is_last));
        [first, again].concat()
    };
    assert_refused("twice", read, twice, (Fault::TaggedBounds, 32));
    let too_much = |sink: &Sge| {
        let (first, second) = (response(sink, 0, 32, false), response(sink, 32, 33, true));
        [first, second].concat()
    };
    assert_refused(
        "too long together",
        read,
        too_much,
        (Fault::TaggedBounds, 32),
    );
    let nonsense = (Fault::OperationUnspecified, 0);
    let early = |sink: &Sge| response(sink, 0, 60, true);
    assert_refused("ends early", read, early, nonsense);
    let open = |sink: &Sge| response(sink, 0, 64, false);
    assert_refused("does not end", read, open, nonsense);
    let unexpected = (Fault::OperationUnexpectedOpcode, 0);
    let atomic = |_: &Sge| atomic_response(0);
    assert_refused("of an atomic", read, atomic, unexpected);
}

#[test]
fn answers_to_atomics_are_what_was_asked_for() {
    let add = (ADD, 8);
    let unexpected = (Fault::OperationUnexpectedOpcode, 0);
    let data = |sink: &Sge| response(sink, 0, 8, true);
    assert_refused("of a READ", add, data, unexpected);
    let other = |_: &Sge| atomic_response(1);
    assert_refused("another id", add, other, (Fault::OperationUnspecified, 0));
}

#[test]
fn a_fenced_request_has_what_was_read_before_it() {
    for has_crc in [false, true] {
        let terms = urxe_iwarp::Terms { has_crc, ..TERMS };
        let mut pair = Pair::new(4, [terms, responder(&terms)], 1460);
        let source = pair.hosts[1].register(Rights::ALL, vec![3; 5000]);
        let through = pair.hosts[0].register(Rights::ALL, vec![0; 5000]);
        let target = pair.hosts[1].register(Rights::ALL, vec![0; 5000]);
        let read = SendOp::Read {
            va: pair.hosts[1].memory.0.va(source, 0),
            rkey: source,
        };
        let room = pair.hosts[1].sge(target, 0, 5000);
        pair.hosts[1].post_recv(1, &[room]);
        let all = [pair.hosts[0].sge(through, 0, 5000)];
        pair.hosts[0].post(1, read, &all);
        let fenced = SendRequest {
            fence: true,
            ..request(2, SendOp::Send, &all)
        };
        pair.hosts[0].qp.post_send(&fenced).unwrap();
        pair.run();
        let done: Vec<_> = pair.hosts[0].completions.iter().map(of).collect();
        assert_eq!(done, [(1, WcStatus::Success), (2, WcStatus::Success)]);
        assert_eq!(pair.hosts[1].memory.0.bytes(target), [3; 5000]);
    }
}

#[test]
fn no_more_is_asked_for_than_the_peer_answers_at_a_time() {
    let mut pair = Pair::plain(1);
    let host = &mut pair.hosts[0];
    let key = host.register(Rights::ALL, vec![0; 8]);
    let sink = [host.sge(key, 0, 8)];
    (0..10).for_each(|n| host.post(n, if n % 2 == 0 { READ } else { ADD }, &sink));
    host.qp.poll_output(100_000, &mut host.memory);
    let mut bytes = Vec::new();
    for piece in host.qp.output() {
        host.memory.take(PD, &piece, &mut bytes).unwrap();
    }
    assert_eq!(ulpdus(&bytes).len(), usize::from(TERMS.ord));
}
