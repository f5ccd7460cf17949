//! A machine in virtual time: processors, a scheduler, processes with programs and background
//! threads, and packets.
//!
//! The scheduler is what matters of Linux's: fair shares by weight, time slices, and a woken thread
//! that takes a processor at once if it takes precedence, or is owed much. Costs are those of a
//! present-day processor, rounded.

mod background;
mod program;

use std::collections::{BTreeSet, VecDeque};

use background::new_background;
pub(crate) use program::Program;
use program::{Body, new_program};

/// A thread that runs uncontended for so long leaves its processor to others that are ready.
const SLICE_NS: u64 = 3_000_000;
/// A woken thread takes the processor of another that is owed so much less.
const OWED_NS: u64 = 1_000_000;
/// From a send until the packet is in the receiver's socket.
const WIRE_NS: u64 = 3_000;
/// From the end of a sleep until the thread runs, on an idle processor.
const WAKE_UP_NS: u64 = 4_000;
/// To enter the kernel, and to come back.
const CALL_NS: u64 = 1_000;
/// Weights of nice 0 and nice -20 in Linux's scheduler.
const WEIGHTS: (u64, u64) = (1_024, 88_761);

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    /// It uses a processor for so long.
    Run(u64),
    /// It lets others run first.
    Yield,
    /// It sleeps until then, or until one of these happens.
    Sleep { until_ns: Option<u64>, on: Wakes },
}

/// What ends a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wakes {
    /// Something is in the process's socket.
    pub packets: bool,
    /// The program wants something of the background thread.
    pub wanted: bool,
    /// A round of another thread brought packets.
    pub arrivals: bool,
}

#[derive(Debug)]
enum State {
    Ready,
    Running { processor: usize, since_ns: u64 },
    Asleep { until_ns: Option<u64>, on: Wakes },
}

/// What the scheduler knows of a thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub process: usize,
    weight: u64,
    state: State,
    /// Of what it is doing.
    left_ns: u64,
    /// Runtime over weight.
    owed_ns: u64,
    pub ran_ns: u64,
    pub preemptions: i64,
    pub sleeps: i64,
}

/// What the threads of a process share.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// When the packets that are in its socket came.
    pub socket: VecDeque<u64>,
    /// How long each packet waited until a round took it in.
    pub waited_ns: Vec<u64>,
    /// Which thread is in the engine.
    pub owner: Option<usize>,
    pub rounds: u64,
    pub polls: u64,
    pub work: u64,
    pub ran_at_ns: u64,
    pub events: u64,
    pub blocked_in: u64,
    pub is_asked: bool,
    pub is_to_tell: bool,
    pub has_told: bool,
    /// Requests without an answer.
    pub is_amid: bool,
    /// When the background thread wakes by itself, while it waits for packets.
    pub wakes_at_ns: Option<u64>,
    /// Packets taken in so far, which the program may not have seen yet.
    pub taken: u64,
    /// What the program got done.
    pub done: u64,
    pub background: Option<usize>,
}

/// See the module.
pub(crate) struct Machine {
    pub now_ns: u64,
    pub processes: Vec<Process>,
    pub threads: Vec<Thread>,
    bodies: Vec<Option<Box<dyn Body>>>,
    processors: Vec<Option<usize>>,
    /// Packets on the wire: when they arrive, a number, where.
    wire: BTreeSet<(u64, u64, usize)>,
    sent: u64,
}

impl Machine {
    pub(crate) fn new(processors: usize) -> Self {
        Self {
            now_ns: 1_000_000_000,
            processes: Vec::new(),
            threads: Vec::new(),
            bodies: Vec::new(),
            processors: vec![None; processors],
            wire: BTreeSet::new(),
            sent: 0,
        }
    }

    /// Starts a program, with a background thread.
    pub(crate) fn start(&mut self, program: Program) -> usize {
        let process = self.processes.len();
        self.processes.push(Process::default());
        let thread = self.spawn(process, WEIGHTS.0, new_program(program));
        let background = self.spawn(process, WEIGHTS.1, new_background());
        self.processes[process].background = Some(background);
        assert_eq!((thread % 2, background), (0, thread + 1));
        process
    }

    fn spawn(&mut self, process: usize, weight: u64, body: Box<dyn Body>) -> usize {
        self.threads.push(Thread {
            process,
            weight,
            state: State::Ready,
            left_ns: 0,
            owed_ns: 0,
            ran_ns: 0,
            preemptions: 0,
            sleeps: 0,
        });
        self.bodies.push(Some(body));
        self.threads.len() - 1
    }

    /// A packet leaves for a process now.
    pub(crate) fn send(&mut self, to: usize) {
        self.arrive(to, self.now_ns + WIRE_NS);
    }

    /// A packet arrives then.
    pub(crate) fn arrive(&mut self, to: usize, at_ns: u64) {
        self.sent += 1;
        self.wire.insert((at_ns, self.sent, to));
    }

    /// The program's thread, and the background thread, of a process.
    pub(crate) fn threads_of(&self, process: usize) -> [&Thread; 2] {
        [&self.threads[2 * process], &self.threads[2 * process + 1]]
    }

    /// Wakes the threads of a process that sleep until something of this kind happens.
    pub(crate) fn wake(&mut self, process: usize, of_interest: impl Fn(&Wakes) -> bool) {
        for index in [2 * process, 2 * process + 1] {
            if let State::Asleep { on, .. } = &self.threads[index].state
                && of_interest(on)
            {
                self.make_ready(index);
            }
        }
    }

    /// Lets so much time pass.
    pub(crate) fn run_for(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        loop {
            self.schedule();
            let Some(next_ns) = self.next_event_ns().filter(|at| *at <= end_ns) else {
                self.pass_until(end_ns);
                return;
            };
            self.pass_until(next_ns);
            self.deliver();
            self.end_sleeps();
            self.go_on();
        }
    }

    fn next_event_ns(&self) -> Option<u64> {
        let arrival = self.wire.first().map(|(at, ..)| *at);
        let of_threads = self.threads.iter().filter_map(|thread| match thread.state {
            State::Running { .. } => Some(self.now_ns + thread.left_ns),
            State::Asleep { until_ns, .. } => until_ns.map(|at| at.max(self.now_ns)),
            State::Ready => None,
        });
        of_threads.chain(arrival).min()
    }

    fn pass_until(&mut self, at_ns: u64) {
        let passed_ns = at_ns - self.now_ns;
        self.now_ns = at_ns;
        for thread in &mut self.threads {
            if matches!(thread.state, State::Running { .. }) {
                thread.left_ns -= passed_ns;
                thread.ran_ns += passed_ns;
                thread.owed_ns += passed_ns * WEIGHTS.0 / thread.weight;
            }
        }
    }

    fn deliver(&mut self) {
        while let Some(&(at_ns, number, to)) = self.wire.first()
            && at_ns <= self.now_ns
        {
            self.wire.remove(&(at_ns, number, to));
            self.processes[to].socket.push_back(at_ns);
            self.wake(to, |on| on.packets);
        }
    }

    fn end_sleeps(&mut self) {
        for index in 0..self.threads.len() {
            if let State::Asleep {
                until_ns: Some(at_ns),
                ..
            } = self.threads[index].state
                && at_ns <= self.now_ns
            {
                self.make_ready(index);
            }
        }
    }

    fn make_ready(&mut self, index: usize) {
        let least_ns = self
            .threads
            .iter()
            .filter(|thread| !matches!(thread.state, State::Asleep { .. }));
        let least_ns = least_ns.map(|thread| thread.owed_ns).min().unwrap_or(0);
        let thread = &mut self.threads[index];
        thread.state = State::Ready;
        thread.left_ns += WAKE_UP_NS;
        // A long sleep earns no more than a slice.
        thread.owed_ns = thread.owed_ns.max(least_ns.saturating_sub(SLICE_NS));
    }

    /// Threads that have done what they did decide what comes next.
    fn go_on(&mut self) {
        for processor in 0..self.processors.len() {
            while let Some(index) = self.processors[processor]
                && self.threads[index].left_ns == 0
            {
                let mut body = self.bodies[index].take().expect("one that runs");
                let next = body.step(index, self);
                self.bodies[index] = Some(body);
                match next {
                    Do::Run(for_ns) => self.threads[index].left_ns = for_ns.max(1),
                    Do::Yield => {
                        self.threads[index].left_ns = 1_000;
                        self.leave(processor, State::Ready);
                        self.threads[index].owed_ns += SLICE_NS;
                    }
                    // What it would wait for is there.
                    Do::Sleep { on, .. } if on.packets && self.has_packets(index) => {
                        self.threads[index].left_ns = CALL_NS;
                    }
                    Do::Sleep { until_ns, on } => {
                        self.threads[index].sleeps += 1;
                        self.leave(processor, State::Asleep { until_ns, on });
                    }
                }
            }
        }
    }

    fn has_packets(&self, index: usize) -> bool {
        !self.processes[self.threads[index].process]
            .socket
            .is_empty()
    }

    fn leave(&mut self, processor: usize, state: State) {
        if let Some(index) = self.processors[processor].take() {
            self.threads[index].state = state;
        }
    }

    /// Gives processors to those that are to have them.
    fn schedule(&mut self) {
        loop {
            let ready = (0..self.threads.len())
                .filter(|index| matches!(self.threads[*index].state, State::Ready));
            let Some(next) = ready.min_by_key(|index| {
                let thread = &self.threads[*index];
                (u64::MAX - thread.weight, thread.owed_ns)
            }) else {
                return;
            };
            let idle = self.processors.iter().position(Option::is_none);
            let Some(processor) = idle.or_else(|| self.processor_to_take(next)) else {
                return;
            };
            if let Some(before) = self.processors[processor] {
                self.threads[before].preemptions += 1;
                self.leave(processor, State::Ready);
            }
            self.processors[processor] = Some(next);
            self.threads[next].state = State::Running {
                processor,
                since_ns: self.now_ns,
            };
            if self.threads[next].left_ns == 0 {
                self.threads[next].left_ns = 1;
            }
        }
    }

    /// A processor whose thread has to make room for `next`.
    fn processor_to_take(&self, next: usize) -> Option<usize> {
        let next = &self.threads[next];
        let gives_way = |thread: &&Thread| match thread.state {
            State::Running { since_ns, .. } if thread.weight == next.weight => {
                let is_over = self.now_ns - since_ns >= SLICE_NS && thread.owed_ns > next.owed_ns;
                is_over || thread.owed_ns > next.owed_ns + OWED_NS
            }
            State::Running { .. } => thread.weight < next.weight,
            State::Ready | State::Asleep { .. } => false,
        };
        let running = self.threads.iter().filter(gives_way);
        let most_served =
            running.max_by_key(|thread| (u64::MAX - thread.weight, thread.owed_ns))?;
        match most_served.state {
            State::Running { processor, .. } => Some(processor),
            State::Ready | State::Asleep { .. } => None,
        }
    }
}
