//! Holds what happens to one direction of a connection against the model.

use urxe_proto::{Completion, CompletionKind, Memory, RemoteAccess, RemoteRange, Via, WcStatus};
use urxe_sim::World;
use urxe_wire::Immediate;

use super::driver::{Driver, Outcome, RECV_BASE};
use super::program::{Action, Op, UNTOUCHED};

impl Driver {
    /// A completion of the requester's send queue.
    pub fn handle_send_completion(&mut self, world: &World, completion: &Completion) {
        if self.believes_anything {
            self.believe(completion);
            return;
        }
        if completion.status != WcStatus::Success || self.failed.is_some() {
            self.handle_failure(completion);
            return;
        }
        let ops = &self.program.ops;
        let due = (self.completed..ops.len()).find(|index| ops[*index].signaled);
        let index = due.expect("a completion although all requests are completed");
        assert_eq!(
            completion.wr_id, index as u64,
            "completions in the order of posting"
        );
        assert!(index < self.posted, "completed before it was posted");
        assert_eq!(completion.kind, kind(&ops[index].action));
        let consumed = ops[..=index]
            .iter()
            .filter(|op| op.action.consumes_receive())
            .count();
        assert!(
            self.received >= consumed,
            "request {index} completed before it was received"
        );
        for at in self.completed..=index {
            self.check_fetched(world, at);
        }
        self.completed = index + 1;
    }

    fn check_fetched(&self, world: &World, index: usize) {
        let op = &self.program.ops[index];
        if op.action.is_fetch() {
            let (at, len) = self.places[index];
            let bytes = world
                .host(self.requester.host)
                .memory
                .bytes(self.fetched_key);
            assert_same(
                &bytes[at..at + len],
                &op.data,
                &format!("request {index} {:?}", op.action),
            );
        }
    }

    fn believe(&mut self, completion: &Completion) {
        if completion.status == WcStatus::Success {
            self.completed = completion.wr_id as usize + 1;
        } else {
            self.failed.get_or_insert(completion.status);
            self.flushed += 1;
        }
    }

    fn handle_failure(&mut self, completion: &Completion) {
        if self.failed.is_none() {
            self.failed = Some(completion.status);
            assert!(
                completion.wr_id >= self.completed as u64,
                "an old request fails"
            );
        } else {
            assert_eq!(
                completion.status,
                WcStatus::WrFlush,
                "what follows an error is flushed"
            );
        }
        self.flushed += 1;
    }

    /// A completion of the responder's receive queue.
    pub fn handle_recv_completion(&mut self, world: &World, completion: &Completion) {
        if self.believes_anything {
            return;
        }
        if completion.status != WcStatus::Success {
            assert_eq!(completion.status, WcStatus::WrFlush, "of a receive");
            return;
        }
        let number = self.received as u64;
        assert_eq!(
            completion.wr_id,
            RECV_BASE + number,
            "receives in the order of posting"
        );
        let (index, op) = self
            .receiving_op(number)
            .expect("a receive that nobody sent");
        let what = format!("receive {number} of request {index} {:?}", op.action);
        assert!(index < self.posted, "{what}: received before it was sent");
        assert_eq!(completion.byte_len as usize, op.len, "{what}");
        assert_eq!(completion.solicited, op.solicited, "{what}");
        let memory = &world.host(self.responder.host).memory;
        let (at, len) = self.places[index];
        let place = &memory.bytes(self.received_key)[at..at + len + 16];
        let (expected_kind, immediate) = match op.action {
            Action::Send { immediate } => {
                assert_same(&place[..len], &op.data, &what);
                (CompletionKind::Recv, immediate)
            }
            Action::SendInvalidate { window } => {
                assert_same(&place[..len], &op.data, &what);
                let rkey = Some(self.peer_window_keys[window]);
                assert_eq!(completion.invalidated_rkey, rkey, "{what}");
                (CompletionKind::Recv, None)
            }
            Action::Write { immediate, .. } => (CompletionKind::RecvWriteImm, immediate),
            _ => unreachable!("only messages take receives"),
        };
        assert!(
            place[len..].iter().all(|byte| *byte == UNTOUCHED),
            "{what}: beyond its end"
        );
        assert_eq!(completion.kind, expected_kind, "{what}");
        assert_eq!(completion.immediate, immediate.map(Immediate), "{what}");
        // Everything before it has been executed, and nothing after it.
        let target = op.target_after.as_deref().unwrap_or_default();
        let actual = memory.bytes(self.target_key);
        if self.executes_in_leaps {
            let later = &self.program.ops[index + 1..self.posted];
            assert_same_or_later(actual, target, later, &format!("target at {what}"));
        } else {
            assert_same(actual, target, &format!("target at {what}"));
        }
        self.received += 1;
    }

    /// Once all is done: memory is exactly as the program leaves it.
    pub fn check_end(&self, world: &World) {
        assert_eq!(self.outcome(), Outcome::Done);
        assert_eq!(self.received as u64, self.recvs_wanted());
        let memory = &world.host(self.responder.host).memory;
        assert_same(
            memory.bytes(self.target_key),
            &self.program.target_at_end,
            "target at the end",
        );
        let counters: Vec<_> = self
            .program
            .counters_at_end
            .iter()
            .flat_map(|counter| counter.to_ne_bytes())
            .collect();
        assert_same(
            memory.bytes(self.counters_key),
            &counters,
            "counters at the end",
        );
        for index in 0..self.program.ops.len() {
            self.check_fetched(world, index);
        }
        self.check_windows(world);
    }

    /// The windows that are shut are those that were invalidated.
    fn check_windows(&self, world: &World) {
        let Self { responder, .. } = *self;
        let via = Via {
            pd: world.qp(responder).pd(),
            qp: responder.number,
        };
        let memory = &world.host(responder.host).memory;
        let va = memory.va(self.target_key, 0);
        for (rkey, is_open) in self
            .peer_window_keys
            .into_iter()
            .zip(self.program.windows_at_end)
        {
            let range = RemoteRange { rkey, va, len: 1 };
            let allowed = memory.check_remote(via, range, RemoteAccess::Write);
            assert_eq!(allowed.is_ok(), is_open, "window {rkey:#x} at the end");
        }
    }

    /// Once a direction has failed: every request that was posted has completed.
    pub fn check_all_flushed(&self) {
        let signaled = self.program.ops[..self.completed].len();
        // Those that succeeded without a signal before the failure are not heard of.
        assert!(
            signaled + self.flushed <= self.posted,
            "more completions than requests"
        );
        assert!(self.flushed >= 1);
    }
}

fn kind(action: &Action) -> CompletionKind {
    match action {
        Action::Send { .. } | Action::SendInvalidate { .. } => CompletionKind::Send,
        Action::Write { .. } => CompletionKind::Write,
        Action::Read { .. } => CompletionKind::Read,
        Action::CompareSwap { .. } => CompletionKind::CompareSwap,
        Action::FetchAdd { .. } => CompletionKind::FetchAdd,
        Action::AtomicWrite { .. } => CompletionKind::AtomicWrite,
        Action::Bind { .. } => CompletionKind::BindWindow,
        Action::Invalidate { .. } => CompletionKind::LocalInvalidate,
    }
}

/// The same for bytes that some of the `later` requests may have written already.
fn assert_same_or_later(actual: &[u8], expected: &[u8], later: &[Op], what: &str) {
    let mut may_be = expected.to_vec();
    for op in later {
        if let Action::Write { at, .. } = op.action {
            let place = at..at + op.len;
            let bytes = may_be[place.clone()].iter_mut().zip(&op.data);
            for ((may_be, new), actual) in bytes.zip(&actual[place]) {
                if new == actual {
                    *may_be = *new;
                }
            }
        }
    }
    assert_same(actual, &may_be, what);
}

/// Compares bytes and says where they first differ, not what all of them are.
pub fn assert_same(actual: &[u8], expected: &[u8], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}: lengths");
    let differs = actual.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!(
            "{what}: byte {at} of {} is {:#04x}, not {:#04x}",
            actual.len(),
            actual[at],
            expected[at]
        );
    }
}
