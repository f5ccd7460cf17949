//! Requests that fail.

use super::bench::Bench;
use urxe_proto::{QpState, SendOp, WcStatus};
use urxe_sim::ConnectOptions;

pub fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: 10,
        retry_count: 3,
        rnr_retry: 3,
        min_rnr_timer: 6,
        ..ConnectOptions::default()
    }
}

/// Posts three requests of which the first fails; returns its status. The others are flushed.
pub fn fail_first(bench: &mut Bench, op: SendOp, len: usize) -> WcStatus {
    bench.post_send(1, op, 0, len);
    for wr_id in 2..4 {
        let write = SendOp::Write {
            va: bench.target_va(0),
            rkey: bench.target,
        };
        bench.post_send(wr_id, write, 0, 100);
    }
    let first = bench.wait_send();
    assert_eq!(first.wr_id, 1);
    for wr_id in 2..4 {
        let next = bench.wait_send();
        assert_eq!((next.wr_id, next.status), (wr_id, WcStatus::WrFlush));
    }
    assert_eq!(bench.world.qp(bench.a).state(), QpState::Error);
    first.status
}

pub fn target_is_untouched(bench: &Bench) {
    let bytes = bench.world.host(bench.b.host).memory.bytes(bench.target);
    assert!(
        bytes.iter().all(|byte| *byte == 0),
        "memory was written that may not be"
    );
}
