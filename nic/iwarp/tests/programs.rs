//! Random programs of two hosts: all that moves is known, and all else stays as it is.

mod support;

use support::program::{Program, seeds};
use support::{DEPTH, TERMS};
use urxe_iwarp::Terms;
use urxe_sim::Random;

fn run_program(seed: u64, terms: Terms, segment_len: usize) -> Program {
    let slots = u64::from(DEPTH) * 2;
    let mut program = Program::new(seed, slots, terms, segment_len);
    for _ in 0..3 {
        for me in 0..2 {
            // The responder's requests wait until the first FPDU; the initiator's has to come.
            let count = program.random.between(u64::from(me == 0), 16);
            (0..count).for_each(|_| program.post(me));
        }
        program.pair.run();
    }
    program.check(seed);
    program
}

#[test]
fn random_programs_move_what_they_should_and_nothing_else() {
    for seed in 0..seeds(150) {
        let mut random = Random::new(seed ^ 0xfeed);
        let terms = Terms {
            has_crc: random.below(3) > 0,
            sends_markers: random.below(4) == 0,
            receives_markers: random.below(4) == 0,
            ..TERMS
        };
        let segment_len = [256, 536, 1460, 8960, 65_000][random.index(5)];
        run_program(seed, terms, segment_len);
    }
}

#[test]
fn payload_is_read_to_where_it_goes() {
    let program = run_program(7, TERMS, 8960);
    for host in &program.pair.hosts {
        let stats = host.qp.stats();
        if host.reads_in_place {
            assert!(stats.bytes_placed > stats.bytes_copied, "{stats:?}");
        } else {
            assert_eq!(stats.bytes_placed, 0);
        }
    }
    assert!(program.pair.hosts.iter().any(|host| host.reads_in_place));
}
