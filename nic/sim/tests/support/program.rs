//! Random programs of RC verbs for one direction of a connection, with everything that must come of
//! them worked out beforehand: a model so simple that it can be believed.

use urxe_sim::Random;

/// Sizes of the regions, bytes.
pub const SOURCE_BYTES: usize = 48 << 10;
pub const TARGET_BYTES: usize = 32 << 10;
pub const COUNTERS: usize = 4;
/// Memory windows that the responder has bound to the target, one of which peers use until they
/// invalidate it.
pub const WINDOWS: usize = 3;
/// What fills memory that nothing was written to.
pub const UNTOUCHED: u8 = 0xcc;

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Send {
        immediate: Option<[u8; 4]>,
    },
    /// A SEND that invalidates a window of the peer.
    SendInvalidate {
        window: usize,
    },
    /// With the key of the region, or of a window on it.
    Write {
        at: usize,
        immediate: Option<[u8; 4]>,
        window: Option<usize>,
    },
    /// From the target region, or from the peer's source region.
    Read {
        from_target: bool,
        at: usize,
    },
    CompareSwap {
        counter: usize,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        counter: usize,
        add: u64,
    },
    /// Of a counter.
    AtomicWrite {
        counter: usize,
    },
    /// Binds the requester's own window with this key; nothing else notices.
    Bind {
        key: u8,
    },
    Invalidate {
        key: u8,
    },
}

impl Action {
    pub fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Self::Send { .. }
                | Self::SendInvalidate { .. }
                | Self::Write {
                    immediate: Some(_),
                    ..
                }
        )
    }

    pub fn is_local(&self) -> bool {
        matches!(self, Self::Bind { .. } | Self::Invalidate { .. })
    }

    pub fn is_fetch(&self) -> bool {
        matches!(
            self,
            Self::Read { .. } | Self::CompareSwap { .. } | Self::FetchAdd { .. }
        )
    }
}

/// One work request and what must come of it.
#[derive(Clone, Debug)]
pub struct Op {
    pub action: Action,
    pub len: usize,
    /// Where its data starts in the source region (SEND, WRITE), or the length of its gather
    /// pieces.
    pub source_at: usize,
    pub inline: bool,
    pub pieces: usize,
    pub signaled: bool,
    pub solicited: bool,
    pub fence: bool,
    /// The data it carries, or what it must fetch.
    pub data: Vec<u8>,
    /// For what consumes a receive: the target region once it is executed.
    pub target_after: Option<Vec<u8>>,
}

/// The requests of one side, in order.
#[derive(Clone, Debug)]
pub struct Program {
    pub ops: Vec<Op>,
    pub target_at_end: Vec<u8>,
    pub counters_at_end: [u64; COUNTERS],
    pub windows_at_end: [bool; WINDOWS],
}

/// Which operations a program may have and how large they are.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub ops: u64,
    pub mtu_bytes: usize,
    pub inline_bytes: usize,
    /// Whether the transport has ATOMIC WRITE.
    pub has_atomic_write: bool,
}

/// How many of a million requests have completions, in a program that waits for most of them, and
/// in one that does as MPI does and wants one in many.
const SIGNALED_PPM: [u32; 2] = [700_000, 20_000];

struct Generator<'a> {
    random: &'a mut Random,
    mix: Mix,
    signaled_ppm: u32,
    /// The requester's own data, and that of its peer.
    source: &'a [u8],
    peer_source: &'a [u8],
    target: Vec<u8>,
    counters: [u64; COUNTERS],
    /// Which of the peer's windows are bound still.
    peer_windows: [bool; WINDOWS],
    /// A READ of the target is under way: what changes it next must wait (fence).
    target_is_being_read: bool,
    /// The key with which the window is bound.
    window: Option<u8>,
    next_key: u8,
}

/// A program for one direction, between sides with these source regions.
pub fn generate(random: &mut Random, mix: Mix, source: &[u8], peer_source: &[u8]) -> Program {
    let mut generator = Generator {
        signaled_ppm: SIGNALED_PPM[usize::from(random.chance(300_000))],
        random,
        mix,
        source,
        peer_source,
        target: vec![UNTOUCHED; TARGET_BYTES],
        counters: [0; COUNTERS],
        peer_windows: [true; WINDOWS],
        target_is_being_read: false,
        window: None,
        next_key: 0,
    };
    let mut ops: Vec<_> = (0..mix.ops).map(|_| generator.op()).collect();
    if let Some(last) = ops.last_mut() {
        last.signaled = true;
    }
    Program {
        ops,
        target_at_end: generator.target,
        counters_at_end: generator.counters,
        windows_at_end: generator.peer_windows,
    }
}

impl Generator<'_> {
    fn op(&mut self) -> Op {
        let action = self.action();
        let len = self.len_of(&action);
        let source_at = self.random.index(SOURCE_BYTES - len);
        let data = self.execute(&action, source_at, len);
        let writes = matches!(action, Action::Write { .. });
        let fence = (writes && std::mem::take(&mut self.target_is_being_read))
            || self.random.chance(50_000);
        if matches!(
            action,
            Action::Read {
                from_target: true,
                ..
            }
        ) {
            self.target_is_being_read = true;
        }
        Op {
            len,
            source_at,
            inline: !action.is_fetch()
                && !action.is_local()
                && len <= self.mix.inline_bytes
                && self.random.chance(500_000),
            pieces: 1 + self.random.index(3),
            signaled: self.random.chance(self.signaled_ppm),
            solicited: self.random.chance(200_000),
            fence,
            data,
            target_after: action.consumes_receive().then(|| self.target.clone()),
            action,
        }
    }

    fn action(&mut self) -> Action {
        let immediate = (self.random.bits() as u32).to_be_bytes();
        let at = self.random.index(TARGET_BYTES / 2);
        let counter = self.random.index(COUNTERS);
        let window = self.random.index(2 * WINDOWS);
        let window = Some(window).filter(|at| self.peer_windows.get(*at) == Some(&true));
        match self.random.below(20) {
            0..=2 => Action::Send { immediate: None },
            3..=4 => Action::Send {
                immediate: Some(immediate),
            },
            5..=8 => Action::Write {
                at,
                immediate: None,
                window,
            },
            9..=10 => Action::Write {
                at,
                immediate: Some(immediate),
                window,
            },
            11..=12 => Action::Read {
                from_target: true,
                at,
            },
            13 => Action::Read {
                from_target: false,
                at,
            },
            14 => {
                // Half of them meet the number that is there.
                let hit = self.random.chance(500_000);
                let compare = if hit {
                    self.counters[counter]
                } else {
                    self.random.bits()
                };
                Action::CompareSwap {
                    counter,
                    compare,
                    swap: self.random.bits(),
                }
            }
            15 => Action::FetchAdd {
                counter,
                add: self.random.bits(),
            },
            16 => match window {
                Some(window) => Action::SendInvalidate { window },
                None => Action::Send { immediate: None },
            },
            17 if self.mix.has_atomic_write => Action::AtomicWrite { counter },
            // Binding needs a free window and a key that it has not had just before.
            _ => match self.window.take() {
                Some(key) => Action::Invalidate { key },
                None => {
                    self.next_key = self.next_key.wrapping_add(1);
                    self.window = Some(self.next_key);
                    Action::Bind { key: self.next_key }
                }
            },
        }
    }

    /// Lengths around what matters: nothing, a few bytes, around multiples of the MTU, and long.
    fn len_of(&mut self, action: &Action) -> usize {
        let is_of_counter = matches!(
            action,
            Action::CompareSwap { .. } | Action::FetchAdd { .. } | Action::AtomicWrite { .. }
        );
        if is_of_counter {
            return 8;
        }
        if action.is_local() {
            return 0;
        }
        let mtu = self.mix.mtu_bytes;
        let len = match self.random.below(8) {
            0 => 0,
            1..=2 => 1 + self.random.index(16),
            3 => 1 + self.random.index(mtu),
            4 => mtu * (1 + self.random.index(4)),
            5 => mtu * (1 + self.random.index(3)) + 1 + self.random.index(3),
            6 => mtu * (1 + self.random.index(3)) - 1,
            _ => self.random.index(TARGET_BYTES / 2),
        };
        len.min(TARGET_BYTES / 2)
    }

    /// What the operation does to the model; returns the data that travels.
    fn execute(&mut self, action: &Action, source_at: usize, len: usize) -> Vec<u8> {
        let carried = self.source[source_at..source_at + len].to_vec();
        match *action {
            Action::Send { .. } | Action::Bind { .. } | Action::Invalidate { .. } => carried,
            Action::SendInvalidate { window } => {
                self.peer_windows[window] = false;
                carried
            }
            Action::Write { at, .. } => {
                self.target[at..at + len].copy_from_slice(&carried);
                carried
            }
            Action::AtomicWrite { counter } => {
                let mut value = [0; 8];
                value.copy_from_slice(&carried);
                self.counters[counter] = u64::from_ne_bytes(value);
                carried
            }
            Action::Read {
                from_target: true,
                at,
            } => self.target[at..at + len].to_vec(),
            Action::Read {
                from_target: false,
                at,
            } => self.peer_source[at..at + len].to_vec(),
            Action::CompareSwap {
                counter,
                compare,
                swap,
            } => {
                let old = self.counters[counter];
                if old == compare {
                    self.counters[counter] = swap;
                }
                old.to_ne_bytes().to_vec()
            }
            Action::FetchAdd { counter, add } => {
                let old = self.counters[counter];
                self.counters[counter] = old.wrapping_add(add);
                old.to_ne_bytes().to_vec()
            }
        }
    }
}
