//! The threads of a process: programs of several kinds, and the background thread, each driven by its policy.

use urxe_duty::{
    Act, Advice, Background, Event, Look, Looker, Next, Poller, Ran, Reason, Seen, Usage,
};
use urxe_proto::Instant;

use super::{CALL_NS, Do, Machine, Wakes};

/// A round: for itself, and for each packet.
const ROUND_NS: (u64, u64) = (300, 700);
/// What a held acknowledgement waits for a reply.
const HELD_NS: u64 = 50_000;

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
    /// Computes for so long, then polls for so long.
    Computes { for_ns: u64, polls_ns: u64 },
    /// Sends to a process, polls until it has as many messages as it sent, then computes for so long.
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

pub(crate) fn new_background() -> Box<dyn Body> {
    Box::new(BackgroundThread {
        policy: Background::new(),
        looker: Looker::default(),
        doing: Doing::Nothing,
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
        self.advise(index, machine, packets)
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
fn begin_round(index: usize, machine: &mut Machine) -> Option<u64> {
    let process = &mut machine.processes[machine.threads[index].process];
    if process.owner.is_some() {
        return None;
    }
    process.owner = Some(index);
    Some(ROUND_NS.0 + ROUND_NS.1 * process.socket.len() as u64)
}

fn end_round(index: usize, machine: &mut Machine, packets: usize) {
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

enum Doing {
    Nothing,
    StepsAside {
        polls: u64,
    },
    QueuesUp,
    /// In a round that takes in so many packets.
    Round(usize),
    Looks {
        look: Look,
        rounds: u64,
        packets: usize,
        is_in_round: bool,
    },
    Waits {
        since_ns: u64,
        polls: u64,
    },
    Pauses,
    Sleeps {
        since_ns: u64,
    },
    RunsLate(usize),
}

struct BackgroundThread {
    policy: Background,
    looker: Looker,
    doing: Doing,
}

impl Body for BackgroundThread {
    fn step(&mut self, index: usize, machine: &mut Machine) -> Do {
        let mut event = match self.finish(index, machine) {
            Ok(event) => event,
            Err(more) => return more,
        };
        loop {
            let act = self.policy.next(event);
            match self.begin(index, machine, act) {
                Ok(next) => event = next,
                Err(begun) => return begun,
            }
        }
    }
}

impl BackgroundThread {
    /// What came of what the thread did; or what it goes on with.
    fn finish(&mut self, index: usize, machine: &mut Machine) -> Result<Event, Do> {
        let process = machine.threads[index].process;
        let now_ns = machine.now_ns;
        let polls_now = machine.processes[process].polls;
        Ok(match std::mem::replace(&mut self.doing, Doing::Nothing) {
            Doing::Nothing => see(process, machine),
            Doing::QueuesUp => return Err(self.queue_up(index, machine)),
            Doing::StepsAside { polls } => Event::SteppedAside {
                now_ns,
                was_taken: polls_now != polls || machine.processes[process].owner.is_some(),
            },
            Doing::Round(packets) => {
                end_round(index, machine, packets);
                Event::Ran(Ran {
                    received: packets as u64,
                    has_requests: packets > 0,
                    wanted_at_ns: (packets > 0).then_some(now_ns + HELD_NS),
                    events: machine.processes[process].events,
                    may_look: self.looker.may_pay(),
                })
            }
            Doing::Looks {
                look,
                rounds,
                packets,
                is_in_round,
            } => {
                return self.look_on(index, machine, (look, rounds, packets, is_in_round));
            }
            Doing::Waits { since_ns, polls } => {
                machine.processes[process].wakes_at_ns = None;
                let has_packets = !machine.processes[process].socket.is_empty();
                if has_packets {
                    self.looker.note_sleep(now_ns - since_ns);
                }
                Event::Waited {
                    since_ns,
                    until_ns: now_ns,
                    has_packets,
                    has_polled: polls_now != polls,
                }
            }
            Doing::Pauses => Event::Paused,
            Doing::Sleeps { since_ns } => Event::Slept {
                since_ns,
                until_ns: now_ns,
            },
            Doing::RunsLate(packets) => {
                end_round(index, machine, packets);
                let ran_at_ns = machine.processes[process].ran_at_ns;
                Event::RanLate {
                    now_ns,
                    ran_at_ns,
                    received: packets as u64,
                }
            }
        })
    }

    /// Runs a round once the engine is free.
    fn queue_up(&mut self, index: usize, machine: &mut Machine) -> Do {
        let process = machine.threads[index].process;
        match begin_round(index, machine) {
            Some(for_ns) => {
                self.doing = Doing::Round(machine.processes[process].socket.len());
                Do::Run(CALL_NS + for_ns)
            }
            None => {
                self.doing = Doing::QueuesUp;
                Do::Sleep {
                    until_ns: Some(machine.now_ns + CALL_NS),
                    on: Wakes::default(),
                }
            }
        }
    }

    fn look_on(
        &mut self,
        index: usize,
        machine: &mut Machine,
        (mut look, rounds, packets, is_in_round): (Look, u64, usize, bool),
    ) -> Result<Event, Do> {
        let process = machine.threads[index].process;
        let now = Instant::from_nanos(machine.now_ns);
        if is_in_round {
            end_round(index, machine, packets);
            let preemptions: i64 = machine
                .threads_of(process)
                .iter()
                .map(|thread| thread.preemptions)
                .sum();
            let next = self
                .looker
                .after_round(&mut look, now, packets, || preemptions);
            if next == Next::Sleep {
                return Ok(Event::LookedInVain { wanted_at_ns: None });
            }
        }
        if machine.processes[process].rounds != rounds {
            return Ok(Event::LookedAway);
        }
        let Some(for_ns) = begin_round(index, machine) else {
            return Ok(Event::LookedAway);
        };
        let packets = machine.processes[process].socket.len();
        self.doing = Doing::Looks {
            look,
            rounds,
            packets,
            is_in_round: true,
        };
        Err(Do::Run(for_ns))
    }

    /// Begins what the policy says; or what came of it, if that takes no time.
    fn begin(&mut self, index: usize, machine: &mut Machine, act: Act) -> Result<Event, Do> {
        let process = machine.threads[index].process;
        let now_ns = machine.now_ns;
        let own = &mut machine.processes[process];
        let sleep_until = |until_ns: u64, on: Wakes| Do::Sleep {
            until_ns: Some(until_ns),
            on,
        };
        let wanted = Wakes {
            wanted: true,
            ..Wakes::default()
        };
        Err(match act {
            Act::Ask => {
                own.is_to_tell = own.is_amid;
                return Ok(Event::Asked {
                    is_amid: own.is_amid,
                });
            }
            Act::Watch => {
                own.is_to_tell = false;
                return Ok(Event::Watches);
            }
            Act::EndTurn => return Ok(see(process, machine)),
            Act::StepAside { for_ns } => {
                self.doing = Doing::StepsAside { polls: own.polls };
                sleep_until(now_ns + for_ns, Wakes::default())
            }
            Act::Run { unless_taken } => match begin_round(index, machine) {
                Some(for_ns) => {
                    self.doing = Doing::Round(machine.processes[process].socket.len());
                    Do::Run(CALL_NS + for_ns)
                }
                None if unless_taken => return Ok(Event::Taken),
                None => self.queue_up(index, machine),
            },
            Act::Look {
                wanted_at_ns,
                rounds,
                ..
            } => {
                let preemptions: i64 = machine
                    .threads_of(process)
                    .iter()
                    .map(|thread| thread.preemptions)
                    .sum();
                let Some(look) = self
                    .looker
                    .begin(|| Instant::from_nanos(now_ns), || preemptions)
                else {
                    return Ok(Event::LookedInVain { wanted_at_ns });
                };
                self.doing = Doing::Looks {
                    look,
                    rounds,
                    packets: 0,
                    is_in_round: false,
                };
                Do::Run(100)
            }
            Act::Wait { until_ns } => {
                self.doing = Doing::Waits {
                    since_ns: now_ns,
                    polls: own.polls,
                };
                own.wakes_at_ns = until_ns;
                if !own.socket.is_empty() || own.is_asked {
                    return Err(Do::Run(CALL_NS));
                }
                Do::Sleep {
                    until_ns,
                    on: Wakes {
                        packets: true,
                        wanted: true,
                        ..Wakes::default()
                    },
                }
            }
            Act::Pause { for_ns } => {
                self.doing = Doing::Pauses;
                sleep_until(now_ns + for_ns, Wakes::default())
            }
            Act::Sleep { reason, for_ns } => {
                self.doing = Doing::Sleeps { since_ns: now_ns };
                if reason != Reason::Sends {
                    own.is_to_tell = false;
                }
                if own.is_asked {
                    Do::Run(CALL_NS)
                } else {
                    sleep_until(now_ns + for_ns, wanted)
                }
            }
            Act::RunIfLate { by_ns, .. } => {
                // What is overdue is an acknowledgement of packets that wait.
                let is_late = own
                    .socket
                    .front()
                    .is_some_and(|came| now_ns - came >= by_ns.max(HELD_NS));
                let Some(for_ns) = is_late.then(|| begin_round(index, machine)).flatten() else {
                    return Ok(Event::InTime);
                };
                self.doing = Doing::RunsLate(machine.processes[process].socket.len());
                Do::Run(CALL_NS + for_ns)
            }
        })
    }
}

fn see(process: usize, machine: &mut Machine) -> Event {
    let own = &mut machine.processes[process];
    Event::Turn(Seen {
        now_ns: machine.now_ns,
        rounds: own.rounds,
        polls: own.polls,
        work: own.work,
        ran_at_ns: own.ran_at_ns,
        is_asked: std::mem::take(&mut own.is_asked),
        has_told: std::mem::take(&mut own.has_told),
        is_blocked_in: own.blocked_in > 0,
    })
}
