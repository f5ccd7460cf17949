//! The background thread of a process, driven by its policy.

use urxe_duty::{Act, Background, Event, Look, Looker, Next, Ran, Reason, Seen};
use urxe_proto::Instant;

use super::program::{Body, begin_round, end_round};
use super::{CALL_NS, Do, Machine, Process, Wakes};

/// What a held acknowledgement waits for a reply.
const HELD_NS: u64 = 50_000;

pub(crate) fn new_background() -> Box<dyn Body> {
    Box::new(BackgroundThread {
        policy: Background::new(),
        looker: Looker::default(),
        doing: Doing::Nothing,
    })
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
            let preemptions = preemptions(process, machine);
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
            } => return self.begin_look(process, machine, wanted_at_ns, rounds),
            Act::Wait { until_ns } => self.begin_wait(own, now_ns, until_ns),
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
                let is_late = |came: &u64| now_ns - came >= by_ns.max(HELD_NS);
                let is_late = own.socket.front().is_some_and(is_late);
                let Some(for_ns) = is_late.then(|| begin_round(index, machine)).flatten() else {
                    return Ok(Event::InTime);
                };
                self.doing = Doing::RunsLate(machine.processes[process].socket.len());
                Do::Run(CALL_NS + for_ns)
            }
        })
    }

    fn begin_look(
        &mut self,
        process: usize,
        machine: &Machine,
        wanted_at_ns: Option<u64>,
        rounds: u64,
    ) -> Result<Event, Do> {
        let preemptions = preemptions(process, machine);
        let now = || Instant::from_nanos(machine.now_ns);
        let Some(look) = self.looker.begin(now, || preemptions) else {
            return Ok(Event::LookedInVain { wanted_at_ns });
        };
        self.doing = Doing::Looks {
            look,
            rounds,
            packets: 0,
            is_in_round: false,
        };
        Err(Do::Run(100))
    }

    fn begin_wait(&mut self, own: &mut Process, now_ns: u64, until_ns: Option<u64>) -> Do {
        self.doing = Doing::Waits {
            since_ns: now_ns,
            polls: own.polls,
        };
        own.wakes_at_ns = until_ns;
        if own.is_asked {
            return Do::Run(CALL_NS);
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
}

/// How often threads of the process had to leave their processor.
fn preemptions(process: usize, machine: &Machine) -> i64 {
    let threads = machine.threads_of(process);
    threads.iter().map(|thread| thread.preemptions).sum()
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
