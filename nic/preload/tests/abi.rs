//! C programs that use the ABI as any program does: through verbs.h, libibverbs and the dynamic
//! linker, with the library preloaded, over the loopback interface.
mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::Leaks;

#[test]
fn devices_and_every_query() {
    common::run("devices");
}

#[test]
fn refusals_follow_each_verbs_convention() {
    common::run("refusals");
}

#[test]
fn reliable_connections() {
    common::run("rc");
}

#[test]
fn the_extended_interfaces() {
    common::run("extended");
}

#[test]
fn failures_have_the_right_status_and_event() {
    common::run("failures");
}

#[test]
fn completion_channels() {
    common::run("events");
}

#[test]
fn files_in_sysfs() {
    common::run("files");
}

#[test]
fn walks_through_sysfs() {
    common::run("walks");
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "dlsym is libc's on this architecture"
)]
fn libibverbs_may_be_opened_later() {
    common::run("opened");
}

#[test]
fn processes_and_threads() {
    common::run("processes");
    common::run_with("processes", &["with ibv_fork_init"]);
}

#[test]
fn a_signal_handler_may_fork() {
    common::run("fork_in_handler");
}

#[test]
fn attributes_and_flushes() {
    common::run("attributes");
}

#[test]
fn every_transport() {
    common::run("transports");
}

#[test]
fn datagrams_and_multicast() {
    common::run("datagrams");
}

#[test]
fn every_kind_of_memory() {
    common::run("memory");
}

#[test]
fn verbs_newer_than_the_header() {
    common::run("newer");
}

#[test]
fn what_can_be_registered() {
    common::run("regions");
}

#[test]
fn handles_that_are_not_right() {
    common::run("handles");
}

#[test]
fn what_outlives_what_it_stands_on() {
    common::run("lifetimes");
}

/// `URXE_RANDOM_CALLS=n` runs so many seeds that were not run before, with sanitizers
/// (`make fuzz`).
#[test]
fn calls_at_random() {
    /// As many as run within the time limit of a program.
    const AT_ONCE: u64 = 100;
    let Ok(count) = std::env::var("URXE_RANDOM_CALLS") else {
        common::run_with("random_calls", &["1", "100"]);
        return;
    };
    let count: u64 = count.parse().expect("URXE_RANDOM_CALLS is a number");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = now.as_secs() << 20;
    for seed in (first..first + count).step_by(AT_ONCE as usize) {
        let seeds = AT_ONCE.min(first + count - seed);
        let arguments = [seed.to_string(), seeds.to_string()];
        common::run_sanitized("random_calls", Leaks::Refused, &arguments);
    }
    println!("{count} seeds from {first} on: nothing found");
}

#[test]
fn threads_can_be_cancelled() {
    common::run("cancelled");
}

#[test]
fn faults_are_whose_they_should_be() {
    common::run("faults");
}

#[test]
fn unread_events_go_with_their_object() {
    common::run("unread");
}

#[test]
fn lengths_are_checked_before_memory_is_touched() {
    common::run("lengths");
}

#[test]
fn completion_queues() {
    common::run("queues");
}

/// What the manual pages promise.
#[test]
fn promises_of_states() {
    common::run("promises_states");
}

#[test]
fn promises_of_posting() {
    common::run("promises_posting");
}

#[test]
fn promises_of_memory() {
    common::run("promises_memory");
}

#[test]
fn promises_of_events_and_shared_queues() {
    common::run("promises_events");
}

#[test]
fn nothing_is_leaked_or_touched_outside_of_its_allocation() {
    for name in [
        "devices",
        "refusals",
        "rc",
        "extended",
        "failures",
        "events",
        "memory",
        "regions",
        "handles",
        "queues",
        "files",
        "walks",
        "transports",
        "datagrams",
        "attributes",
        "newer",
        "lengths",
        "unread",
        "promises_states",
        "promises_posting",
        "promises_memory",
        "promises_events",
        "random_calls",
        #[cfg(target_arch = "x86_64")]
        "opened",
    ] {
        common::run_sanitized(name, Leaks::Refused, &[]);
    }
    for name in ["processes", "lifetimes"] {
        common::run_sanitized(name, Leaks::Expected, &[]);
    }
}

#[test]
fn nothing_is_used_that_was_not_set() {
    for name in [
        "refusals",
        "transports",
        "datagrams",
        "extended",
        "memory",
        "queues",
    ] {
        common::run_in_valgrind(name);
    }
}

#[test]
fn nothing_is_used_that_was_not_set_in_the_others() {
    for name in [
        "devices",
        "rc",
        "failures",
        "events",
        "files",
        "walks",
        "attributes",
    ] {
        common::run_in_valgrind(name);
    }
}
