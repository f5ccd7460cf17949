//! How long packets wait, and how much of the processors the background threads take, on machines
//! of one and two processors in virtual time. Every case runs with several seeds; nothing here
//! depends on the machine that runs it.

mod machine;

use machine::{Machine, Program};
use oorandom::Rand64;
use urxe_duty::constants::LOOK_AGAIN_POLLED_MAX_NS;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SEEDS: u64 = 3;

/// How a program and its background thread fared.
#[derive(Debug)]
struct Fared {
    /// How long packets waited: sorted.
    waited_ns: Vec<u64>,
    /// Parts in a thousand of the time in which the background thread ran.
    background_permille: u64,
}

impl Fared {
    fn quantile(&self, permille: usize) -> u64 {
        self.waited_ns[(self.waited_ns.len() - 1) * permille / 1_000]
    }

    fn longest(&self) -> u64 {
        *self.waited_ns.last().expect("packets came")
    }
}

/// A program to which a peer elsewhere sends a packet each `gap_ns` on average, after it had
/// `settle_ns` to show what it does.
fn alone(processors: usize, program: Program, gap_ns: u64, seed: u64) -> Fared {
    const SETTLE_NS: u64 = 50 * MS;
    const MEASURED_NS: u64 = 500 * MS;
    let mut random = Rand64::new(u128::from(seed));
    let mut machine = Machine::new(processors);
    let process = machine.start(program);
    let mut at_ns = machine.now_ns;
    let end_ns = at_ns + SETTLE_NS + MEASURED_NS;
    while at_ns < end_ns {
        at_ns += random.rand_range(gap_ns / 2..gap_ns * 3 / 2);
        machine.arrive(process, at_ns);
    }
    machine.run_for(SETTLE_NS);
    let settled = machine.processes[process].waited_ns.len();
    let ran_ns = machine.threads_of(process)[1].ran_ns;
    machine.run_for(MEASURED_NS);
    let mut waited_ns = machine.processes[process].waited_ns.split_off(settled);
    // What is in the socket still has waited, too.
    waited_ns.extend(
        machine.processes[process]
            .socket
            .iter()
            .map(|came| machine.now_ns - came),
    );
    waited_ns.sort_unstable();
    let background_permille =
        (machine.threads_of(process)[1].ran_ns - ran_ns) * 1_000 / MEASURED_NS;
    Fared {
        waited_ns,
        background_permille,
    }
}

fn for_seeds(check: impl Fn(u64)) {
    (1..=SEEDS).for_each(check);
}

/// Packets that come as often as this leave the background thread time to sleep between them.
const GAPS_NS: [u64; 3] = [20 * US, 200 * US, 2 * MS];

#[test]
fn a_program_that_polls_takes_in_its_packets_itself() {
    for_seeds(|seed| {
        for processors in [1, 2] {
            let fared = alone(processors, Program::Polls, 50 * US, seed);
            assert!(fared.quantile(990) <= 2 * US, "{processors}: {fared:?}");
            assert!(
                fared.longest() <= 10 * US,
                "while the thread looks: {fared:?}"
            );
            assert!(fared.background_permille <= 5, "{processors}: {fared:?}");
        }
    });
}

#[test]
fn a_program_that_reads_its_memory_hears_of_packets_at_once() {
    for_seeds(|seed| {
        for gap_ns in GAPS_NS {
            for processors in [1, 2] {
                let fared = alone(processors, Program::ReadsMemory, gap_ns, seed);
                assert!(
                    fared.longest() <= 20 * US,
                    "{processors}, {gap_ns}: {fared:?}"
                );
            }
            let fared = alone(1, Program::ReadsMemory, gap_ns, seed);
            // To be woken, to run rounds, and to wait for a reply: what a packet takes, and no
            // more.
            let bound_permille = 12 * US * 1_000 / gap_ns;
            assert!(
                fared.background_permille <= bound_permille,
                "{gap_ns}: {fared:?}"
            );
        }
    });
}

#[test]
fn packets_wake_a_program_that_blocks_and_no_background_thread() {
    for_seeds(|seed| {
        for (processors, gap_ns) in GAPS_NS
            .into_iter()
            .flat_map(|gap_ns| [(1, gap_ns), (2, gap_ns)])
        {
            let fared = alone(processors, Program::Blocks, gap_ns, seed);
            assert!(
                fared.longest() <= 20 * US,
                "{processors}, {gap_ns}: {fared:?}"
            );
            assert!(
                fared.background_permille <= 1,
                "{processors}, {gap_ns}: {fared:?}"
            );
        }
    });
}

#[test]
fn packets_beside_a_computing_program_wait_one_sleep_at_most() {
    for_seeds(|seed| {
        for (for_ns, polls_ns) in [
            (100 * US, 100 * US),
            (MS, MS),
            (10 * MS, MS),
            (10 * MS, 10 * MS),
        ] {
            for processors in [1, 2] {
                let program = Program::Computes { for_ns, polls_ns };
                let fared = alone(processors, program, 50 * US, seed);
                let bound_ns = LOOK_AGAIN_POLLED_MAX_NS + 100 * US;
                assert!(
                    fared.longest() <= bound_ns,
                    "{program:?} on {processors}: {fared:?}"
                );
            }
            let fared = alone(1, Program::Computes { for_ns, polls_ns }, 50 * US, seed);
            assert!(
                fared.background_permille <= 150,
                "{for_ns}, {polls_ns}: {fared:?}"
            );
        }
    });
}

#[test]
fn a_thread_that_looks_leaves_a_stranger_its_processor() {
    for gap_ns in GAPS_NS {
        for program in [
            Program::Polls,
            Program::ReadsMemory,
            Program::Blocks,
            Program::Computes {
                for_ns: MS,
                polls_ns: MS,
            },
        ] {
            let mut machine = Machine::new(2);
            let process = machine.start(program);
            let stranger = machine.start(Program::ReadsMemory);
            let start_ns = machine.now_ns;
            (1..500 * MS / gap_ns).for_each(|nth| machine.arrive(process, start_ns + nth * gap_ns));
            machine.run_for(500 * MS);
            let [thread, _] = machine.threads_of(stranger);
            let permille = thread.ran_ns * 1_000 / (500 * MS);
            assert!(
                permille >= 800,
                "{program:?}, {gap_ns}: the stranger ran for {permille} permille"
            );
        }
    }
}

/// Each message used to wake the background thread, and that the program.
#[test]
fn beside_a_program_that_waits_by_itself_the_thread_looks_before_it_sleeps() {
    // One for each thread.
    let mut machine = Machine::new(4);
    for (with, begins) in [(1, true), (0, false)] {
        machine.start(Program::WaitsByItself { with, begins });
    }
    machine.run_for(500 * MS);
    let exchanges = machine.processes[1].done;
    let slept: i64 = (0..2).map(|at| machine.threads_of(at)[1].sleeps).sum();
    assert!(exchanges >= 10_000, "{exchanges}");
    assert!(
        10 * slept.unsigned_abs() < exchanges,
        "{slept} sleeps for {exchanges} exchanges"
    );
}

/// How many messages each of so many ranks sent in half a second, the fewest and the most, and how
/// many parts in a thousand of a processor their background threads took.
fn exchange(ranks: usize, processors: usize, computes_ns: u64) -> (u64, u64, u64) {
    let mut machine = Machine::new(processors);
    for rank in 0..ranks {
        machine.start(Program::Exchanges {
            with: (rank + 1) % ranks,
            computes_ns,
        });
    }
    machine.run_for(500 * MS);
    let done = machine.processes.iter().map(|process| process.done);
    let background_ns: u64 = (0..ranks)
        .map(|rank| machine.threads_of(rank)[1].ran_ns)
        .sum();
    let (fewest, most) = (done.clone().min().unwrap_or(0), done.max().unwrap_or(0));
    (fewest, most, background_ns * 1_000 / (500 * MS))
}

#[test]
fn ranks_that_share_processors_wait_in_the_kernel() {
    // So many messages in half a second: two thirds of what the policy sends on this machine.
    for (ranks, processors, computes_ns, least) in [
        (2, 1, 0, 9_000),
        (2, 2, 0, 80_000),
        (16, 2, 0, 3_500),
        (2, 1, 20 * US, 4_000),
        (16, 2, 20 * US, 780),
        (16, 2, 200 * US, 190),
    ] {
        let (fewest, most, background_permille) = exchange(ranks, processors, computes_ns);
        let case = format!("{ranks} ranks on {processors}, computing {computes_ns} ns");
        assert!(fewest >= least, "{case}: {fewest} messages");
        assert!(most <= fewest + ranks as u64, "{case}: {fewest} to {most}");
        assert!(
            background_permille <= 150,
            "{case}: {background_permille} permille"
        );
    }
}
