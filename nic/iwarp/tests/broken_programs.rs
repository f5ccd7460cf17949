//! Random programs whose connection breaks amid them: every request completes, what completed well
//! is where it belongs, and the queue pairs can be connected again.

mod support;

use support::program::{Program, seeds};
use support::{DEPTH, TERMS};
use urxe_iwarp::Terms;
use urxe_proto::{AttrMask, Attributes, QpState};
use urxe_sim::Random;

/// What breaks a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// One direction ends, in the middle of whatever it is in.
    Cut,
    /// The connection is lost, as by RST.
    Lost,
    /// A program ends it.
    Error,
    /// A program resets its queue pair, which then completes nothing.
    Reset,
    /// A program takes away memory that is being read, or written.
    Source,
    Target,
}

const BREAKS: [Break; 6] = [
    Break::Cut,
    Break::Lost,
    Break::Error,
    Break::Reset,
    Break::Source,
    Break::Target,
];

fn terms(random: &mut Random) -> Terms {
    Terms {
        has_crc: random.below(3) > 0,
        sends_markers: random.below(4) == 0,
        receives_markers: random.below(4) == 0,
        ..TERMS
    }
}

fn post(program: &mut Program) {
    for me in 0..2 {
        // The responder's requests wait until the first FPDU; the initiator's has to come.
        let count = program.random.between(u64::from(me == 0), 16);
        (0..count).for_each(|_| program.post(me));
    }
}

fn set_state(program: &mut Program, side: usize, state: QpState) {
    let wanted = Attributes {
        state,
        ..Attributes::new()
    };
    program.pair.hosts[side].modify(&wanted, AttrMask::STATE);
}

fn run(seed: u64) {
    let mut random = Random::new(seed ^ 0xb4ea);
    let terms = terms(&mut random);
    let segment_len = [256, 1460, 65_000][random.index(3)];
    let mut program = Program::new(seed, u64::from(DEPTH) * 2, terms, segment_len);
    post(&mut program);
    let rounds = random.between(0, 60);
    program.pair.run_for(u32::try_from(rounds).unwrap());
    let how = BREAKS[random.index(BREAKS.len())];
    let side = random.index(2);
    let what = format!("seed {seed}, {how:?} at host {side} after {rounds} rounds");
    match how {
        Break::Cut => program.pair.end(side),
        Break::Lost => program.pair.lose(),
        Break::Error => set_state(&mut program, side, QpState::Error),
        Break::Reset => set_state(&mut program, side, QpState::Reset),
        Break::Source | Break::Target => {
            let key = if how == Break::Source {
                program.source[side]
            } else {
                program.target[side]
            };
            program.pair.hosts[side].memory.0.deregister(key);
        }
    }
    program.pair.run();
    if matches!(how, Break::Source | Break::Target) {
        // It may have been over before, or have had no more need of it.
        (0..2).for_each(|n| set_state(&mut program, n, QpState::Error));
        program.pair.run();
    }
    for n in 0..2 {
        if how != Break::Reset || n != side {
            program.check_broken(&what, n);
        }
        assert!(program.pair.hosts[n].is_closed, "{what}");
    }
    if matches!(how, Break::Source | Break::Target) {
        return;
    }
    program.reconnect(seed, terms, segment_len);
    post(&mut program);
    program.pair.run();
    program.check(seed);
}

#[test]
fn a_connection_that_breaks_leaves_nothing_open_and_nothing_wrong() {
    (0..seeds(300)).for_each(run);
}
