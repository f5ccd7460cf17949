//! The background thread, round by round.
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use urxe_proto::{QpType, SendOp};
use urxe_wire::Mtu;

use super::*;
use crate::nic::tests::alone::{connected, write};
use crate::objects::qp::Qp;
use crate::process::clock::staged::{self, Clock};
use crate::support::{End, connect_both, post_recv, post_unsignaled};

const LEN: usize = 64;

/// A thread of a device without one, which may wait.
fn waiting_thread(nic: &Arc<Nic>) -> Thread {
    let progress = nic.progress();
    // One that has begun ends.
    progress.restart();
    Thread::new(nic).unwrap()
}

/// Two programs with connected queue pairs, in time that the test makes pass; their threads are
/// those that the test makes.
#[derive(Clone)]
struct Scene(Rc<([End; 2], [Qp; 2])>);

impl Scene {
    fn new(len: usize) -> Self {
        Self(Rc::new(connected(len)))
    }

    fn nic(&self, end: usize) -> &Arc<Nic> {
        &self.0.0[end].nic
    }

    fn thread(&self, end: usize) -> Thread {
        waiting_thread(self.nic(end))
    }

    /// Lets the thread of the first end run for so long. How many turns that were.
    fn run(&self, thread: &mut Thread, for_ns: u64) -> usize {
        let until = now().after(for_ns);
        let turns = std::iter::repeat_with(|| thread.turn(self.nic(0)).unwrap());
        turns.take_while(|()| now() < until).count()
    }

    /// Whether an end would send something again if nothing came.
    fn is_waiting(&self, end: usize) -> bool {
        let engine = self.nic(end).engine();
        let mut slots = engine.qps.iter();
        slots.any(|slot| slot.qp.poll_retry_timeout().is_some())
    }

    /// The program at an end writes to the other's memory.
    fn write(&self, end: usize, len: usize) {
        let (ends, qps) = &*self.0;
        write(&ends[end], &qps[end], &ends[1 - end], len);
    }

    /// Polls both ends until the first has so many completions.
    fn finish(&self, mut count: usize) {
        let ends = &self.0.0;
        while count > 0 {
            ends[1].cq.poll(1, |_| ());
            count -= ends[0].cq.poll(count, |_| ());
        }
    }

    /// The program at the first end writes so many messages at a time, and polls until all are
    /// there.
    fn exchange_until(&self, until: Instant, messages: usize) {
        while now() < until {
            (0..messages).for_each(|_| self.write(0, LEN));
            self.finish(messages);
            staged::pass(20_000);
        }
    }

    /// Messages from one end to the other and back, posted without completions, while the program
    /// polls.
    fn send_to_and_fro(&self, first: usize) {
        let (ends, qps) = &*self.0;
        for (from, to) in [(first, 1 - first), (1 - first, first)] {
            post_recv(&qps[to], 0, &[ends[to].sge(0, LEN)]);
            post_unsignaled(&qps[from], SendOp::Send, &[ends[from].sge(0, LEN)]);
            while ends[to].cq.poll(1, |_| ()) == 0 {}
        }
    }
}

#[test]
fn the_thread_knows_how_long_it_waited_and_of_polls_meanwhile() {
    const SENT_AFTER_NS: u64 = 2_000_000;
    let wait = |polls: bool| {
        let (clock, scene) = (Clock::new(), Scene::new(LEN));
        let mut thread = scene.thread(0);
        let nic = scene.nic(0);
        thread.watched = Some(nic.watch(&thread.packets).unwrap());
        let others = scene.clone();
        clock.meanwhile(move |_| {
            staged::pass(SENT_AFTER_NS);
            if polls {
                others.nic(0).progress().note_found();
            }
            others.write(1, LEN);
        });
        let in_vain = now().after(20_000_000_000);
        match thread.wait(nic, Some(in_vain)).unwrap() {
            Event::Waited {
                since_ns,
                until_ns,
                has_packets: true,
                has_polled,
            } => (until_ns - since_ns, has_polled),
            event => panic!("{event:?}"),
        }
    };
    for polls in [false, true] {
        let (waited_ns, has_polled) = wait(polls);
        assert!(
            (SENT_AFTER_NS..SENT_AFTER_NS + 100_000).contains(&waited_ns),
            "{waited_ns}"
        );
        assert_eq!(has_polled, polls);
    }
}

#[test]
fn a_program_that_goes_on_polling_is_looked_at_ever_less_often() {
    let (clock, scene) = (Clock::new(), Scene::new(LEN));
    let mut thread = scene.thread(0);
    let program = scene.clone();
    clock.meanwhile(move |until| program.exchange_until(until, 1));
    scene.run(&mut thread, 100_000_000);
    let looks = scene.run(&mut thread, 400_000_000);
    assert!((150..250).contains(&looks), "{looks} times in 400 ms");
}

/// It owes an acknowledgement then that the peer did not ask for, which its background thread has
/// to send before the peer sends again.
#[test]
fn a_program_that_stops_polling_acknowledges_in_time() {
    let clock = Clock::new();
    for owes in [0, 1] {
        let (scene, peer) = (Scene::new(LEN), 1 - owes);
        let mut thread = scene.thread(owes);
        for polls in 1..40 {
            let program = scene.clone();
            // The last message is the peer's.
            clock.meanwhile(move |until| {
                while now() < until {
                    program.send_to_and_fro(owes);
                    staged::pass(20_000);
                }
            });
            for _ in 0..polls {
                thread.turn(scene.nic(owes)).unwrap();
            }
            assert!(scene.is_waiting(peer), "something is owed");
            let others = scene.clone();
            // The peer goes on polling.
            clock.meanwhile(move |until| {
                while now() < until {
                    others.nic(peer).run_looking();
                    staged::pass(50_000);
                }
            });
            let turns = std::iter::repeat_with(|| thread.turn(scene.nic(owes)).unwrap());
            assert!(turns.take(100).any(|()| !scene.is_waiting(peer)));
        }
        let [(_, stats)] = scene.nic(peer).qp_stats()[..] else {
            panic!("one queue pair");
        };
        assert_eq!(stats.probes, 0, "the peer asked again");
    }
}

/// A peer that gets the acknowledgement first stops polling, and sees the reply late.
#[test]
fn the_acknowledgement_of_a_long_write_travels_with_the_reply() {
    const EXCHANGES: u32 = 20;
    /// Two packets.
    const LONG: usize = 2 * 4096;
    let (clock, scene) = (Clock::new(), Scene::new(LONG));
    let mut thread = scene.thread(1);
    let (program, exchanges) = (scene.clone(), Rc::new(Cell::new(0)));
    let seen = Rc::clone(&exchanges);
    let mut is_asked = false;
    // The program at the end of the thread looks at its memory, where the peer writes and then
    // polls.
    clock.meanwhile(move |_| {
        let [peer, end] = &program.0.0;
        if !is_asked {
            program.write(0, LONG);
        } else if end.nic.is_amid() {
            let before = end.nic.stats().tx_batches;
            program.write(1, LEN);
            assert_eq!(peer.cq.poll(1, |_| ()), 1, "the acknowledgement has come");
            assert_eq!(end.nic.stats().tx_batches - before, 1);
            seen.set(seen.get() + 1);
            while peer.nic.is_amid() || end.nic.is_amid() {
                peer.cq.poll(1, |_| ());
                end.nic.run_looking();
            }
        } else {
            return;
        }
        is_asked = !is_asked;
    });
    let turns = std::iter::repeat_with(|| {
        // One that has learnt to look for packets does so while the program replies.
        thread.looker = Looker::default();
        thread.turn(scene.nic(1)).unwrap();
    });
    assert!(turns.take(1_000).any(|()| exchanges.get() == EXCHANGES));
}

/// It polls until what it sent has arrived, then looks at its memory for the reply, and pauses for
/// longer than the thread is on its guard after it found that a program had stopped. If it forgot
/// that, it would find the reply after a millisecond or two.
#[test]
fn a_program_that_stops_polling_is_known_after_a_pause() {
    const PAUSE_NS: u64 = 10_000_000;
    const EXCHANGES: usize = 40;
    /// Longer than the thread goes without a look.
    const LONG_NS: u64 = 3_300_000;
    enum Step {
        Pauses { until: Instant },
        Polls { until: Instant },
        Looks { since: Instant, heard: u64 },
    }
    let (clock, scene) = (Clock::new(), Scene::new(LEN));
    let mut thread = scene.thread(0);
    let took_ns = Rc::new(RefCell::new(Vec::new()));
    let (program, found) = (scene.clone(), Rc::clone(&took_ns));
    let heard_so_far = |scene: &Scene| scene.nic(0).stats().rx_packets;
    let mut step = Step::Pauses { until: now() };
    clock.meanwhile(move |wakes_at| {
        if let Step::Looks { since, heard } = step
            && heard_so_far(&program) > heard
        {
            found.borrow_mut().push(now().since(since));
            step = Step::Pauses {
                until: now().after(PAUSE_NS),
            };
        }
        if let Step::Pauses { until } = step
            && until <= now()
        {
            program.write(0, LEN);
            step = Step::Polls {
                until: now().after(LONG_NS),
            };
        }
        if let Step::Polls { until } = step {
            while now() < until.min(wakes_at) {
                assert_eq!(program.0.0[0].cq.poll(1, |_| ()), 0, "the message is long");
                staged::pass(10_000);
            }
            if until <= now() {
                program.nic(1).run_looking();
                program.finish(1);
                step = Step::Looks {
                    since: now(),
                    heard: heard_so_far(&program),
                };
                program.write(1, LEN);
            }
        }
    });
    let turns = std::iter::repeat_with(|| thread.turn(scene.nic(0)).unwrap());
    assert!(
        turns
            .take(100_000)
            .any(|()| took_ns.borrow().len() == EXCHANGES)
    );
    took_ns.borrow_mut().sort_unstable();
    let median_ns = took_ns.borrow()[EXCHANGES / 2];
    assert!(median_ns < 50_000, "{took_ns:?}");
}

/// It polls for its messages, and for a while before, but in between it computes.
#[test]
fn pieces_soon_wait_for_no_poll_of_a_program_that_computes() {
    const PIECES: usize = 4;
    const MESSAGES: usize = 20;
    /// Not so long that the habit is forgotten, which takes 100 ms at first.
    const POLLS_NS: u64 = 20_000_000;
    const COMPUTES_NS: u64 = 10_000_000;
    /// A thread that is awake sends them within this.
    const LATE_NS: u64 = 300_000;
    let (clock, scene) = (Clock::new(), Scene::new(LEN));
    let mut thread = scene.thread(0);
    let late = Rc::new(RefCell::new(Vec::new()));
    let (program, found) = (scene.clone(), Rc::clone(&late));
    let (mut since, mut computes) = (now(), false);
    clock.meanwhile(move |until| {
        program.nic(1).run_looking();
        let took_ns = now().since(since);
        if computes && took_ns >= COMPUTES_NS {
            program.finish(PIECES);
        } else if !computes && took_ns >= POLLS_NS {
            let before = program.nic(0).stats().tx_packets;
            (0..PIECES).for_each(|_| program.write(0, LEN));
            let sent = program.nic(0).stats().tx_packets - before;
            let is_late = sent < PIECES as u64 && until.since(now()) > LATE_NS;
            found.borrow_mut().push(is_late);
        } else {
            if !computes {
                program.exchange_until(until, PIECES);
            }
            return;
        }
        (since, computes) = (now(), !computes);
    });
    let turns = std::iter::repeat_with(|| thread.turn(scene.nic(0)).unwrap());
    assert!(turns.take(10_000).any(|()| late.borrow().len() == MESSAGES));
    assert!(
        late.borrow()[0],
        "a program that polls gets company for its pieces"
    );
    let count = late.borrow().iter().filter(|is_late| **is_late).count();
    assert!(count <= MESSAGES / 2, "{late:?}");
}

/// It posts for much longer than the background thread leaves a program alone that does not poll.
#[test]
fn messages_to_many_peers_share_system_calls() {
    const QPS: usize = 8;
    const BURST: usize = 1024;
    const POSTS: usize = QPS * BURST;
    const BURSTS: usize = 11;
    const POST_NS: u64 = 1_000;
    let clock = Clock::new();
    let mut ends = [(); 2].map(|()| End::of(Nic::open_without_thread(), LEN));
    ends[0].cq = ends[0].nic.create_cq(POSTS, None, 7).unwrap();
    let qps: Vec<_> = (0..QPS)
        .map(|_| {
            let mut init = ends[0].init(QpType::Rc);
            init.capacity.send_requests = BURST as u32;
            let (from, to) = (
                ends[0].nic.create_qp(&init).unwrap(),
                ends[1].qp(QpType::Rc),
            );
            connect_both(&ends[0], &from, &ends[1], &to, Mtu::B1024);
            (from, to)
        })
        .collect();
    let nic = Arc::clone(&ends[0].nic);
    let mut thread = waiting_thread(&nic);
    let calls_of_bursts = Rc::new(RefCell::new(Vec::new()));
    let (found, calls) = (Rc::clone(&calls_of_bursts), move |ends: &[End; 2]| {
        ends[0].nic.stats().tx_batches
    });
    let (mut posted, mut done, mut before) = (0, 0, 0);
    clock.meanwhile(move |until| {
        while now() < until {
            if posted < POSTS {
                write(&ends[0], &qps[posted / BURST].0, &ends[1], LEN);
                posted += 1;
                staged::pass(POST_NS);
                if posted == POSTS {
                    found.borrow_mut().push(calls(&ends) - before);
                }
            } else {
                done += ends[0].cq.poll(16, |_| ());
            }
            ends[1].nic.run_looking();
            if done == POSTS {
                (posted, done, before) = (0, 0, calls(&ends));
            }
        }
    });
    let turns = std::iter::repeat_with(|| thread.turn(&nic).unwrap());
    assert!(
        turns
            .take(10_000)
            .any(|()| calls_of_bursts.borrow().len() >= BURSTS)
    );
    calls_of_bursts.borrow_mut().sort_unstable();
    let usual = calls_of_bursts.borrow()[BURSTS / 2];
    assert!(
        usual <= POSTS as u64 / 8,
        "{calls_of_bursts:?} calls for {POSTS}"
    );
}
