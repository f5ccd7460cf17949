//! Instructions that a message takes, both ends together: they do not depend on the machine's mood,
//! so that a message that has become dearer is seen. docs/dev/mechanisms/packets.md says where they
//! go.
mod support;

use std::process::Command;

use support::{End, Peer, TIMEOUT};
use urxe_device::{Mtu, SendOp};

/// Messages between two polls of a stream.
const BURST: usize = 32;
/// Names the work to the process that does it under valgrind.
const WORK: &str = "URXE_HOT_PATH";

/// Two ends in one process and on one thread, so that no thread spins; without background threads,
/// which valgrind would let work at any time.
struct Pair {
    left: Peer,
    right: Peer,
    length: usize,
}

impl Pair {
    fn new(length: usize, mtu: Mtu) -> Self {
        let ends = [End::new(length), End::new(length)];
        let (left, right) = Peer::pair(ends, mtu, TIMEOUT);
        for peer in [&left, &right] {
            peer.nic.close();
            (0..BURST).for_each(|_| peer.post_recv(0, &[peer.sge(0, length)]));
        }
        Self {
            left,
            right,
            length,
        }
    }

    fn send(&self, from: &Peer, op: SendOp) {
        from.post(0, op, &[from.sge(0, self.length)]);
    }

    fn receive(&self, at: &Peer) {
        at.post_recv(0, &[at.sge(0, self.length)]);
    }

    /// A message each way. Each waits for the completion of the one before, as in `ib_send_lat`.
    fn exchange(&self, is_first: bool) {
        self.send(&self.left, SendOp::Send);
        take(&self.right, if is_first { 1 } else { 2 });
        self.receive(&self.right);
        self.send(&self.right, SendOp::Send);
        take(&self.left, 2);
        self.receive(&self.left);
    }

    /// A burst from left to right.
    fn burst(&self, op: SendOp) {
        for _ in 0..BURST {
            self.send(&self.left, op);
        }
        let received = if op == SendOp::Send { BURST } else { 0 };
        let (mut sent, mut got) = (0, 0);
        while sent < BURST || got < received {
            sent += take(&self.left, 0);
            got += take(&self.right, 0);
        }
        for _ in 0..received {
            self.receive(&self.right);
        }
    }
}

/// Polls until at least `count` completions came, or once. Returns how many.
fn take(end: &End, count: usize) -> usize {
    let mut taken = 0;
    loop {
        taken += end.cq.poll(16, |completion| {
            assert_eq!(completion.status, urxe_device::WcStatus::Success);
        });
        if taken >= count {
            return taken;
        }
    }
}

/// What valgrind counts, found by its name.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn urxe_measured(pair: &Pair, work: Work, messages: usize) {
    match work {
        Work::PingPong => (0..messages / 2).for_each(|i| pair.exchange(i == 0)),
        Work::Sends => (0..messages / BURST).for_each(|_| pair.burst(SendOp::Send)),
        Work::Writes => {
            let write = pair.right.write_op(0);
            (0..messages / BURST).for_each(|_| pair.burst(write));
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    PingPong,
    Sends,
    Writes,
}

/// What is counted: work, message length, path MTU, messages, and how many instructions each may
/// take in a build with debug assertions. That is half more than it took where most of them copy
/// and sum up bytes, which other processors do with other instructions. Short SENDs take 6,860 to
/// 6,880 on a quiet machine and up to 7,020 on a busy one, which has more rounds; of the ping-pong,
/// most are rounds.
const CASES: [(Work, usize, Mtu, usize, u64); 5] = [
    (Work::PingPong, 64, Mtu::B4096, 1024, 12_000),
    (Work::Sends, 64, Mtu::B4096, 2048, 7_200),
    (Work::Sends, 65536, Mtu::B4096, 256, 120_000),
    (Work::Writes, 65536, Mtu::B4096, 256, 120_000),
    (Work::Sends, 65536, Mtu::B1024, 256, 170_000),
];

/// Does the work of a case, for the process that counts.
#[test]
fn work() {
    let Ok(case) = std::env::var(WORK) else {
        return;
    };
    let (work, length, mtu, messages, _) = CASES[case.parse::<usize>().unwrap()];
    urxe_measured(&Pair::new(length, mtu), work, messages);
}

fn instructions(case: usize) -> Option<u64> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--toggle-collect=urxe_measured",
            "--callgrind-out-file=/dev/null",
        ])
        .arg(std::env::current_exe().ok()?)
        .args(["--exact", "work"])
        .env(WORK, case.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let collected = text.split("Collected : ").nth(1)?.lines().next()?;
    collected.trim().parse().ok()
}

#[test]
fn a_message_takes_no_more_instructions_than_it_may() {
    for (case, (work, length, mtu, messages, most)) in CASES.into_iter().enumerate() {
        let Some(count) = instructions(case) else {
            println!(
                "skipped: counting instructions needs valgrind (Debian: apt-get install valgrind)"
            );
            return;
        };
        let each = count / messages as u64;
        println!("{work:?} of {length} bytes, MTU {mtu:?}: {each} instructions a message");
        assert!(
            each <= most,
            "{work:?} of {length} bytes, MTU {mtu:?}: {each}, at most {most}"
        );
    }
}
