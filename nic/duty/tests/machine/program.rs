//! The threads of programs of several kinds, driven by their policies, and rounds of the engine.

use urxe_duty::{Advice, Looker, Poller, Usage};
use urxe_proto::Instant;

use super::{CALL_NS, Do, Machine, Wakes};

/// A round: for itself, and for each packet.
const ROUND_NS: (u64, u64) = (300, 700);

/// One step after another.
pub(crate) trait Body {
    /// What the thread of this index does next.
    fn step(&mut self, index: usize, machine: &mut Machine) -> Do;
}

/// What a program does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// Polls, and does nothing else.
    Polls,
    /// Reads its memory, where a peer writes.
    ReadsMemory,
    /// Blocks in a completion channel.
    Blocks,
    /// Sends to a process whenever a message came, one of the two also at first, and waits for the
    /// next in a `poll` of its own, where a round of the background thread wakes it.
    WaitsByItself { with: usize, begins: bool },
    /// Computes for so long, then polls for so long.
    Computes { for_ns: u64, polls_ns: u64 },
    /// Sends to a process, polls until it has as many messages as it sent, then computes for so
    /// long.
    Exchanges { with: usize, computes_ns: u64 },
}

pub(crate) fn new_program(program: Program) -> Box<dyn Body> {
    Box::new(ProgramThread {
        program,
        poller: Poller::new(),
        looker: Looker::default(),
        step: Step::Begin,
        since_ns: 0,
        sent: 0,
    })
}

enum Step {
    Begin,
    /// In a round that takes in so many packets.
    Round(usize),
    Slept,
}

struct ProgramThread {
    program: Program,
    poller: Poller,
    looker: Looker,
    step: Step,
    since_ns: u64,
    sent: u64,
}

impl Body for ProgramThread {
    fn step(&mut self, index: usize, machine: &mut Machine) -> Do {
        let process = machine.threads[index].process;
        let now_ns = machine.now_ns;
        match self.program {
            Program::ReadsMemory => Do::Run(1_000),
            Program::Blocks => self.block(index, machine),
            Program::WaitsByItself { with, begins } => {
                self.wait_by_itself(index, machine, with, begins)
            }
            Program::Polls => self.poll(index, machine),
            Program::Computes { for_ns, polls_ns } => {
                if matches!(self.step, Step::Begin) && now_ns - self.since_ns >= for_ns + polls_ns {
                    self.since_ns = now_ns + for_ns;
                    return Do::Run(for_ns);
                }
                self.poll(index, machine)
            }
            Program::Exchanges { with, computes_ns } => {
                let own = &mut machine.processes[process];
                if matches!(self.step, Step::Begin) && own.taken >= self.sent {
                    own.done += 1;
                    own.work += 1;
                    own.is_amid = true;
                    self.sent += 1;
                    machine.send(with);
                    return Do::Run(CALL_NS + computes_ns);
                }
                self.poll(index, machine)
            }
        }
    }
}

impl ProgramThread {
    fn poll(&mut self, index: usize, machine: &mut Machine) -> Do {
        let process = machine.threads[index].process;
        if matches!(self.step, Step::Begin | Step::Slept) {
            self.step = Step::Begin;
            if let Some(for_ns) = begin_round(index, machine) {
                self.step = Step::Round(machine.processes[process].socket.len());
                return Do::Run(for_ns);
            }
            return self.advise(index, machine, 0);
        }
        let Step::Round(packets) = std::mem::replace(&mut self.step, Step::Begin) else {
            unreachable!("the other steps are above")
        };
        Self::end_poll(index, machine, packets);
        self.advise(index, machine, packets)
    }

    /// The program polled, and took in so many packets.
    fn end_poll(index: usize, machine: &mut Machine, packets: usize) {
        let process = machine.threads[index].process;
        end_round(index, machine, packets);
        let now_ns = machine.now_ns;
        let own = &mut machine.processes[process];
        own.rounds += 1;
        own.polls += 1;
        own.work += packets as u64;
        if packets > 0 {
            own.ran_at_ns = now_ns;
            own.is_amid = false;
            if std::mem::take(&mut own.is_to_tell) {
                own.has_told = true;
                own.is_asked = true;
                machine.wake(process, |on| on.wanted);
            }
        } else if own.rounds.is_multiple_of(8) {
            own.ran_at_ns = now_ns;
        }
    }

    /// Polls once before it waits, as it must: it is told only of what comes afterwards.
    fn wait_by_itself(
        &mut self,
        index: usize,
        machine: &mut Machine,
        with: usize,
        begins: bool,
    ) -> Do {
        let process = machine.threads[index].process;
        let has_polled = match std::mem::replace(&mut self.step, Step::Begin) {
            Step::Begin => false,
            Step::Slept => true,
            Step::Round(packets) => {
                Self::end_poll(index, machine, packets);
                true
            }
        };
        let own = &mut machine.processes[process];
        if own.taken + u64::from(begins) > self.sent {
            own.done += 1;
            self.sent += 1;
            machine.send(with);
            return Do::Run(CALL_NS);
        }
        if has_polled {
            return Do::Sleep {
                until_ns: None,
                on: Wakes {
                    arrivals: true,
                    ..Wakes::default()
                },
            };
        }
        match begin_round(index, machine) {
            Some(for_ns) => {
                self.step = Step::Round(machine.processes[process].socket.len());
                Do::Run(for_ns)
            }
            // The background thread is in the engine, and tells of what it takes in.
            None => {
                self.step = Step::Slept;
                Do::Run(CALL_NS)
            }
        }
    }

    fn advise(&mut self, index: usize, machine: &Machine, packets: usize) -> Do {
        let [_, background] = machine.threads_of(machine.threads[index].process);
        let thread = &machine.threads[index];
        let work = machine.processes[thread.process].work;
        let usage = || Usage {
            preemptions: thread.preemptions,
            sleeps: thread.sleeps,
            ran_ns: thread.ran_ns,
            background_ns: background.ran_ns,
        };
        let now = || Instant::from_nanos(machine.now_ns);
        match self.poller.poll(packets > 0, work, now, usage) {
            Advice::Spin => Do::Run(100),
            Advice::Yield => Do::Yield,
            Advice::Wait(for_ns) => Do::Sleep {
                until_ns: Some(machine.now_ns + for_ns),
                on: Wakes {
                    packets: true,
                    arrivals: true,
                    ..Wakes::default()
                },
            },
        }
    }

    fn block(&mut self, index: usize, machine: &mut Machine) -> Do {
        let process = machine.threads[index].process;
        match std::mem::replace(&mut self.step, Step::Begin) {
            Step::Begin | Step::Slept => {
                machine.processes[process].blocked_in = 1;
                let Some(for_ns) = begin_round(index, machine) else {
                    return Do::Run(CALL_NS);
                };
                self.step = Step::Round(machine.processes[process].socket.len());
                Do::Run(for_ns)
            }
            Step::Round(packets) => {
                end_round(index, machine, packets);
                let since_ns = std::mem::replace(&mut self.since_ns, machine.now_ns);
                if packets > 0 {
                    self.looker.note_sleep(machine.now_ns - since_ns);
                    return Do::Run(CALL_NS);
                }
                self.step = Step::Slept;
                Do::Sleep {
                    until_ns: None,
                    on: Wakes {
                        packets: true,
                        arrivals: true,
                        ..Wakes::default()
                    },
                }
            }
        }
    }
}

/// Takes the engine's lock, if it is free. How long the round takes.
pub(crate) fn begin_round(index: usize, machine: &mut Machine) -> Option<u64> {
    let process = &mut machine.processes[machine.threads[index].process];
    if process.owner.is_some() {
        return None;
    }
    process.owner = Some(index);
    Some(ROUND_NS.0 + ROUND_NS.1 * process.socket.len() as u64)
}

pub(crate) fn end_round(index: usize, machine: &mut Machine, packets: usize) {
    let process = machine.threads[index].process;
    let now_ns = machine.now_ns;
    let own = &mut machine.processes[process];
    assert_eq!(own.owner.take(), Some(index));
    for _ in 0..packets {
        let came_ns = own
            .socket
            .pop_front()
            .expect("only the owner takes packets");
        own.waited_ns.push(now_ns - came_ns);
        own.taken += 1;
    }
    if packets > 0 {
        machine.wake(process, |on| on.arrivals);
    }
}
