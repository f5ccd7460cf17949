//! Programs that change what they send before it has completed.

mod support;

use support::{PD, Pair};
use urxe_proto::{Memory, SendOp, WcStatus};
use urxe_sim::Rights;

/// Host 0 writes `len` bytes to host 1, changes them when `taken` bytes of the FPDUs are in the
/// stream, and writes them again. Whether what came first was what was there first.
fn write_changed(len: u32, taken: usize, is_told: bool) -> bool {
    let mut pair = Pair::plain(1);
    let target = pair.hosts[1].register(Rights::ALL, vec![0; 2 * len as usize]);
    let write = |at| SendOp::Write {
        va: pair.hosts[1].memory.0.va(target, at),
        rkey: target,
    };
    let writes = [write(0), write(len.into())];
    let host = &mut pair.hosts[0];
    let source = host.register(Rights::ALL, vec![1; len as usize]);
    let all = host.sge(source, 0, len);
    host.post(1, writes[0], &[all]);
    host.qp.poll_output(usize::MAX, &mut host.memory);
    let mut bytes = Vec::new();
    for piece in host.qp.output() {
        host.memory.take(PD, &piece, &mut bytes).unwrap();
    }
    bytes.truncate(taken);
    host.qp.handle_sent(bytes.len());
    if is_told {
        host.qp.handle_blocked(&host.memory);
    }
    let changed = vec![2; len as usize];
    host.memory.write_local(PD, &all, 0, &changed).unwrap();
    host.post(2, writes[1], &[all]);
    pair.inject(0, &bytes);
    pair.run();
    let [from, to] = &pair.hosts;
    assert_eq!(to.qp.stats().crc_errors, 0, "{len} bytes, {taken} taken");
    let ends: Vec<_> = from.completions.iter().map(|done| done.status).collect();
    assert_eq!(ends, [WcStatus::Success; 2], "{len} bytes, {taken} taken");
    let [first, second] = [0, 1].map(|half| {
        let came = to.memory.0.bytes(target);
        came[half * len as usize..][..len as usize].to_vec()
    });
    assert_eq!(second, changed);
    first == vec![1; len as usize]
}

#[test]
fn what_waits_for_the_stream_may_be_changed() {
    for len in [4, 1024, 1025, 1400, 5000, 20_000] {
        for taken in [0, 1, 15, 16, 17, 1000, 1460, 1461, 2000] {
            assert!(
                write_changed(len, taken, true),
                "{len} bytes, {taken} taken"
            );
        }
    }
}

#[test]
fn short_payload_may_be_changed_once_it_is_prepared() {
    for len in [1, 4, 1024] {
        assert!(write_changed(len, 0, false));
    }
}

/// What is made ready at a time is bounded, however much was posted.
#[test]
fn what_is_made_ready_is_bounded() {
    const MAX_BYTES: usize = 10_000;
    const SEGMENT_BYTES: usize = 1460;
    const LEN: u32 = 100_000;
    let mut pair = Pair::plain(1);
    let target = pair.hosts[1].register(Rights::ALL, vec![0; LEN as usize]);
    let write = SendOp::Write {
        va: pair.hosts[1].memory.0.va(target, 0),
        rkey: target,
    };
    let host = &mut pair.hosts[0];
    let source = host.register(Rights::ALL, vec![1; LEN as usize]);
    let all = host.sge(source, 0, LEN);
    (0..3).for_each(|wr_id| host.post(wr_id, write, &[all]));
    for _ in 0..5 {
        let ready = host.qp.poll_output(MAX_BYTES, &mut host.memory);
        assert!(
            (MAX_BYTES..MAX_BYTES + SEGMENT_BYTES).contains(&ready),
            "{ready} bytes"
        );
    }
    pair.run();
    assert_eq!(pair.hosts[0].completions.len(), 3);
}
