use super::*;
use crate::constants::{LOOK_AGAIN_NS, LOOK_AGAIN_POLLED_MAX_NS, SENDS_NS};

const START_NS: u64 = 1_000_000_000;

/// A turn at `now_ns` beside a program that has polled and run rounds so often so far.
const fn turn(now_ns: u64, polls: u64) -> Event {
    Event::Turn(Seen {
        now_ns,
        rounds: polls,
        polls,
        work: 0,
        ran_at_ns: now_ns,
        is_asked: false,
        has_told: false,
        is_blocked_in: false,
    })
}

const fn ran(received: u64, has_requests: bool) -> Event {
    Event::Ran(Ran {
        received,
        has_requests,
        wanted_at_ns: None,
        events: 0,
        may_look: false,
    })
}

/// A thread that has just waited, so that it does not step aside, beside a program that has not
/// polled yet.
fn rested() -> Background {
    let mut thread = Background::new();
    thread
        .chance
        .note_wait(Instant::from_nanos(0), Instant::from_nanos(START_NS));
    thread.next(turn(START_NS - 1, 0));
    thread
}

#[test]
fn a_program_that_polls_is_looked_at_ever_less_often() {
    let mut thread = rested();
    for (at, for_ns) in [
        (1, LOOK_AGAIN_NS),
        (2, LOOK_AGAIN_POLLED_MAX_NS),
        (4, LOOK_AGAIN_POLLED_MAX_NS),
    ] {
        let now_ns = START_NS + at * LOOK_AGAIN_NS;
        let sleep = Act::Sleep {
            reason: Reason::Polls,
            for_ns,
        };
        assert_eq!(thread.next(turn(now_ns, at * 1_000)), sleep);
        let slept = Event::Slept {
            since_ns: now_ns,
            until_ns: now_ns + for_ns,
        };
        assert_eq!(
            thread.next(slept),
            Act::RunIfLate {
                by_ns: LATE_NS,
                unless_taken: true
            }
        );
        assert_eq!(thread.next(Event::InTime), Act::EndTurn);
    }
}

#[test]
fn a_thread_that_was_asked_watches_although_the_program_polls() {
    let mut thread = rested();
    let Event::Turn(seen) = turn(START_NS, 1_000) else {
        unreachable!()
    };
    let asked = Event::Turn(Seen {
        is_asked: true,
        ..seen
    });
    assert_eq!(thread.next(asked), Act::Watch);
    assert_eq!(thread.next(Event::Watches), Act::Run { unless_taken: true });
    assert_eq!(thread.next(ran(0, false)), Act::Wait { until_ns: None });
}

/// A pause every 50 us would be half of the time of a long message.
#[test]
fn a_busy_program_that_may_stop_is_left_alone_and_is_to_tell() {
    for may_stop in [false, true] {
        let mut thread = rested();
        if may_stop {
            thread.note_stopped(Instant::from_nanos(START_NS));
        }
        for pauses in 0..=PAUSES_LONG {
            assert_eq!(thread.next(turn(START_NS, 0)), Act::Watch);
            assert_eq!(thread.next(Event::Watches), Act::Run { unless_taken: true });
            let act = thread.next(Event::Taken);
            if may_stop && pauses == PAUSES_LONG {
                assert_eq!(act, Act::Ask);
                let sleep = Act::Sleep {
                    reason: Reason::Sends,
                    for_ns: SENDS_NS,
                };
                assert_eq!(thread.clone().next(Event::Asked { is_amid: true }), sleep);
                assert!(matches!(
                    thread.next(Event::Asked { is_amid: false }),
                    Act::Pause { .. }
                ));
            } else {
                assert!(matches!(act, Act::Pause { .. }), "{act:?}");
            }
            assert_eq!(thread.next(Event::Paused), Act::EndTurn);
        }
    }
}

#[test]
fn after_many_pauses_the_thread_queues_up_at_the_lock() {
    let mut thread = rested();
    for _ in 0..PAUSES_MAX {
        thread.next(turn(START_NS, 0));
        assert_eq!(thread.next(Event::Watches), Act::Run { unless_taken: true });
        assert!(matches!(
            thread.next(Event::Taken),
            Act::Pause {
                for_ns: ..=PAUSE_MAX_NS
            }
        ));
    }
    thread.next(turn(START_NS, 0));
    assert_eq!(
        thread.next(Event::Watches),
        Act::Run {
            unless_taken: false
        }
    );
}

/// A program that computes between its messages, and whose peer acknowledges late, was taken for
/// one that reads its memory: MPI messages of 8 KiB took two to three times as long on two
/// processors.
#[test]
fn a_program_that_told_has_stopped_on_a_message_not_an_answer() {
    for has_requests in [false, true] {
        let mut thread = rested();
        let Event::Turn(seen) = turn(START_NS, 0) else {
            unreachable!()
        };
        assert_eq!(
            thread.next(Event::Turn(Seen {
                has_told: true,
                is_asked: true,
                ..seen
            })),
            Act::Watch
        );
        thread.next(Event::Watches);
        thread.next(ran(0, false));
        let waited = Event::Waited {
            since_ns: START_NS,
            until_ns: START_NS + 1_000_000,
            has_packets: true,
            has_polled: false,
        };
        assert_eq!(thread.next(waited), Act::EndTurn);
        thread.next(turn(START_NS + 1_000_000, 0));
        thread.next(Event::Watches);
        thread.next(ran(1, has_requests));
        assert_eq!(thread.waited, None);
        assert_eq!(thread.parting.is_likely(), has_requests);
    }
}

#[test]
fn a_program_beside_which_packets_waited_is_watched_for_a_while() {
    let mut thread = rested();
    let sleep = thread.next(turn(START_NS, 1_000));
    assert!(matches!(sleep, Act::Sleep { .. }));
    let woken_ns = START_NS + LOOK_AGAIN_NS;
    thread.next(Event::Slept {
        since_ns: START_NS,
        until_ns: woken_ns,
    });
    let late = Event::RanLate {
        now_ns: woken_ns,
        ran_at_ns: START_NS - RECENT_NS,
        received: 1,
    };
    thread.next(late);
    let soon_ns = woken_ns + VIGILANCE_MIN_NS - 1;
    assert_eq!(
        thread.next(turn(soon_ns, 10_000)),
        Act::Watch,
        "it sleeps no more, however often the program polls"
    );
    let sleeps = thread.next(turn(soon_ns + 1, 20_000));
    assert_eq!(sleeps, Act::Ask, "then it asks to be told");
    let asked = thread.next(Event::Asked { is_amid: false });
    assert!(matches!(
        asked,
        Act::Sleep {
            reason: Reason::Polls,
            ..
        }
    ));
}
