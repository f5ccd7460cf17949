//! Send queues that drain: what was begun goes on, nothing else begins, and the program is told.

mod support;

use support::{Host, Pair};
use urxe_proto::{AttrMask, Attributes, QpEvent, QpState, SendOp, WcStatus};
use urxe_sim::Rights;

fn set(host: &mut Host, state: QpState, is_told: bool) {
    let wanted = Attributes {
        state,
        sqd_notify: is_told,
        ..Attributes::new()
    };
    host.modify(&wanted, AttrMask::STATE | AttrMask::SQD_NOTIFY);
}

fn completed(host: &Host) -> Vec<(u64, WcStatus)> {
    let completions = host.completions.iter();
    completions.map(|done| (done.wr_id, done.status)).collect()
}

/// What the program was told, but for that the connection was used.
fn told(host: &Host) -> Vec<QpEvent> {
    let events = host.events.iter().copied();
    events
        .filter(|event| *event != QpEvent::CommunicationEstablished)
        .collect()
}

#[test]
fn a_draining_send_queue_finishes_what_it_began_and_says_so() {
    const LEN: u32 = 40_000;
    let mut seen_draining = 0;
    for seed in 0..20 {
        let mut pair = Pair::plain(seed);
        let theirs = pair.hosts[1].register(Rights::ALL, vec![7; LEN as usize]);
        let ours = pair.hosts[0].register(Rights::ALL, vec![0; LEN as usize]);
        let va = pair.hosts[1].memory.0.va(theirs, 0);
        let place = pair.hosts[0].sge(ours, 0, LEN);
        pair.hosts[0].post(1, SendOp::Read { va, rkey: theirs }, &[place]);
        pair.run_for(3);
        set(&mut pair.hosts[0], QpState::SendQueueDrain, true);
        pair.hosts[0].post(2, SendOp::Write { va, rkey: theirs }, &[place]);
        loop {
            let is_at_rest = pair.run_for(1);
            let host = &pair.hosts[0];
            seen_draining += u32::from(host.qp.is_draining());
            assert!(told(host).is_empty() || !host.qp.is_draining());
            if is_at_rest {
                break;
            }
        }
        assert_eq!(told(&pair.hosts[0]), [QpEvent::SendQueueDrained]);
        assert_eq!(completed(&pair.hosts[0]), [(1, WcStatus::Success)]);
        assert!(!pair.hosts[0].qp.is_draining());
        set(&mut pair.hosts[0], QpState::ReadyToSend, true);
        pair.run();
        let both = [(1, WcStatus::Success), (2, WcStatus::Success)];
        assert_eq!(completed(&pair.hosts[0]), both);
        assert_eq!(told(&pair.hosts[0]).len(), 1, "it is told once");
    }
    assert!(seen_draining > 0, "no READ was under way");
}

#[test]
fn a_send_queue_with_nothing_begun_has_drained_at_once_each_time() {
    let mut pair = Pair::plain(1);
    for count in 1..3 {
        set(&mut pair.hosts[0], QpState::SendQueueDrain, true);
        // The same state once more is nothing new.
        set(&mut pair.hosts[0], QpState::SendQueueDrain, true);
        pair.run();
        let drained = vec![QpEvent::SendQueueDrained; count];
        assert_eq!(told(&pair.hosts[0]), drained);
        set(&mut pair.hosts[0], QpState::ReadyToSend, true);
    }
    pair.hosts[0].events.clear();
    set(&mut pair.hosts[0], QpState::SendQueueDrain, false);
    pair.run();
    assert_eq!(told(&pair.hosts[0]), [], "it has not asked to be told");
}
