//! A program that has one processor shares it with its background thread, which takes precedence
//! over it.
mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::threads::{pin, processors};
use support::{End, connect_both, post};
use urxe_device::{Mtu, QpType};

const QPS: usize = 16;
const LENGTH: usize = 1 << 20;
/// How often it is measured, for 600 ms each; the median counts.
const TIMES: usize = 5;

/// The numbers of the background threads of this process, which are so many.
fn background_threads(count: usize) -> Vec<String> {
    let start = Instant::now();
    loop {
        let threads = named_threads();
        // A thread that has just begun has no name yet.
        if threads.len() == count {
            return threads;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{threads:?}");
    }
}

fn named_threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let name = |task: &str| fs::read_to_string(format!("/proc/self/task/{task}/comm"));
    tasks
        .map(|task| task.unwrap().file_name().into_string().unwrap())
        .filter(|task| name(task).is_ok_and(|name| name.trim() == "urxe"))
        .collect()
}

/// How long a thread of this process ran so far (`proc_pid_schedstat(5)`: the first number).
fn ran(task: &str) -> Duration {
    let stat = fs::read_to_string(format!("/proc/self/task/{task}/schedstat")).unwrap();
    let ran_ns = stat.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(ran_ns)
}

/// The background thread of a program with much to send used to find it in the engine whenever it
/// looked, took over, and left it half of its processor, or less.
#[test]
#[ignore = "quiet: the kernel's scheduler shares a processor between the program and its thread, and no other program may want it"]
fn a_program_that_polls_keeps_its_processor() {
    let processors = processors();
    let [first, second, ..] = processors[..] else {
        println!("skipped: it takes two processors");
        return;
    };
    pin(second);
    let right = End::new(LENGTH);
    let targets: Vec<_> = (0..QPS).map(|_| right.qp(QpType::Rc)).collect();
    let theirs = background_threads(1);
    pin(first);
    let left = End::new(LENGTH);
    let sources: Vec<_> = (0..QPS).map(|_| left.qp(QpType::Rc)).collect();
    for (from, to) in sources.iter().zip(&targets) {
        connect_both(&left, from, &right, to, Mtu::B4096);
    }
    let all = background_threads(2);
    let background = all.iter().find(|task| !theirs.contains(task)).unwrap();
    // SAFETY: no arguments.
    let mine = unsafe { libc::gettid() }.to_string();
    let op = right.write_op(0);
    let sge = left.sge(0, LENGTH);
    let write = |which: u64| {
        let from = &sources[usize::try_from(which).unwrap()];
        post(from, which, op, &[sge]);
    };
    for which in 0..QPS as u64 {
        (0..8).for_each(|_| write(which));
    }
    let polls_for_a_while = || {
        let start = Instant::now();
        let before = [&mine, background].map(|task| ran(task));
        let mut away_at = Duration::ZERO;
        while start.elapsed() < Duration::from_millis(600) {
            // Now and then the thread has to take over.
            if start.elapsed() >= away_at {
                std::thread::sleep(Duration::from_millis(3));
                away_at = start.elapsed() + Duration::from_millis(40);
            }
            let mut done = Vec::new();
            left.cq.poll(16, |completion| done.push(completion.wr_id));
            done.into_iter().for_each(write);
        }
        [(&mine, before[0]), (background, before[1])]
            .map(|(task, before)| ran(task).checked_sub(before).unwrap())
    };
    let mut shares: Vec<_> = (0..TIMES)
        .map(|_| {
            let [mine, background] = polls_for_a_while();
            background.as_secs_f64() / mine.as_secs_f64()
        })
        .collect();
    shares.sort_unstable_by(f64::total_cmp);
    assert!(
        shares[TIMES / 2] < 0.25,
        "how long the background thread ran, in parts of how long the program did: {shares:?}"
    );
}
