//! What hosts do, as data.

use alloc::vec::Vec;

use serde::Deserialize;

/// What a message is sent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
}

/// Which host sends to which.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Pattern {
    /// The first host to the second.
    Pair,
    /// The first two to each other.
    BothWays,
    /// Each to every other.
    Mesh,
    /// All others to host 0.
    Incast,
    /// Each to one other, at random; no host gets from two.
    Permutation,
    /// As listed.
    Listed {
        /// Sender and receiver.
        pairs: Vec<(u32, u32)>,
    },
}

/// What hosts do.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Traffic {
    /// A message there and one back between the first two hosts, as perftest's latency programs.
    PingPong {
        /// Length of a message.
        size_bytes: u32,
        /// There and back that count.
        iterations: u32,
        /// There and back before.
        warmup: u32,
        /// A message goes in as many parts at once, over a queue pair each. For sockets, one.
        rails: u32,
    },
    /// Streams of messages, as perftest's bandwidth programs, each over queue pairs of its own.
    Streams {
        /// Which host sends to which other.
        pattern: Pattern,
        /// What messages are sent by; sockets only send.
        operation: Operation,
        /// Length of a message.
        size_bytes: u32,
        /// Queue pairs of each stream.
        queue_pairs: u32,
        /// Messages under way on each queue pair.
        depth: u32,
        /// Messages of each queue pair; `None`: until the time is over.
        messages: Option<u64>,
        /// Not counted at the beginning, nanoseconds.
        warmup_ns: u64,
        /// How long to count, if messages do not end.
        measured_ns: u64,
        /// Time between the starts of one stream and of the next.
        #[serde(default)]
        stagger_ns: u64,
        /// Whether all queue pairs of a host use the same port (as connections of librdmacm over a
        /// bond): of every second host the other one.
        #[serde(default)]
        one_port: bool,
    },
    /// MPI_Alltoall, again and again.
    Alltoall {
        /// For each pair.
        size_bytes: u32,
        /// In which order.
        algorithm: Algorithm,
        /// How often.
        iterations: u32,
        /// As for streams.
        #[serde(default)]
        one_port: bool,
    },
    /// Flows that arrive at random, whatever the network makes of those before.
    Flows(FlowsConfig),
    /// A collective operation of a training job, once.
    Collective(CollectiveConfig),
    /// Messages of a list, each once those that it needs have arrived: any schedule of sends.
    Messages {
        /// What they are sent by; [`Operation::Send`] where any needs another, for no receiver is
        /// told of the end of a WRITE or READ.
        operation: Operation,
        /// All of them; those that need none by their time.
        messages: Vec<Message>,
    },
}

impl Traffic {
    /// What messages are sent by, where that is to be chosen.
    pub(crate) const fn operation(&self) -> Option<Operation> {
        match self {
            Self::Streams { operation, .. } | Self::Messages { operation, .. } => Some(*operation),
            Self::Flows(flows) => Some(flows.operation),
            Self::PingPong { .. } | Self::Alltoall { .. } | Self::Collective(_) => None,
        }
    }
}

/// Flows that arrive as a Poisson process. Each is one message of a queue pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsConfig {
    /// Which host sends to which: of [`Pattern::Mesh`], and of a list of pairs, each flow takes one
    /// at random.
    pub pattern: Pattern,
    /// What a flow is sent by.
    pub operation: Operation,
    /// Payload that arrives for the host with the most to send or to receive, as a part of the rate
    /// of its ports.
    pub load: f64,
    /// How long flows are: ascending, a size in bytes and the part of all flows that are not
    /// longer. The first part is 0, the last 1; between two points all sizes are as likely.
    pub sizes: Vec<(f64, f64)>,
    /// How many arrive.
    pub flows: u64,
    /// So many at the beginning do not count.
    #[serde(default)]
    pub warmup_flows: u64,
    /// Incasts besides.
    #[serde(default)]
    pub incast: Option<IncastConfig>,
}

/// Incasts among other flows: some hosts send to one at the same time, again and again, as a
/// Poisson process. Which ones is random.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncastConfig {
    /// Hosts that send at the same time.
    pub senders: u32,
    /// What each sends.
    pub size_bytes: u32,
    /// Payload of all incasts, as a part of the rate of all ports of all hosts.
    pub load: f64,
}

/// A collective operation: messages by SEND, each once what it needs has come.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectiveConfig {
    /// Which one, and how.
    pub algorithm: Collective,
    /// Data of each rank: what is reduced, what is there when all is gathered, or what a rank has
    /// for all ranks together.
    pub size_bytes: u32,
    /// Ranks of a group; all hosts, if this is not there. All groups begin at the same time.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// Hosts from one rank of a group to the next; 1, if this is not there.
    #[serde(default)]
    pub stride: u32,
    /// Of a tree: what is passed on at a time; all, if this is not there.
    #[serde(default)]
    pub chunk_bytes: Option<u32>,
}

/// See [`CollectiveConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collective {
    /// Reduce-scatter and all-gather around a ring.
    RingAllReduce,
    /// All-gather around a ring.
    RingAllGather,
    /// All-reduce by recursive halving and doubling.
    HalvingDoublingAllReduce,
    /// All-reduce up and down two binary trees, half of the data in each.
    DoubleTreeAllReduce,
    /// Each rank sends a part to every other at once, as experts do.
    AllToAll,
}

/// A message of a list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Length.
    pub size_bytes: u32,
    /// When it starts; not before all of `after` have arrived.
    #[serde(default)]
    pub at_ns: u64,
    /// Messages that have to have arrived before, by their place in the list.
    #[serde(default)]
    pub after: Vec<u32>,
    /// Messages between the same hosts on the same channel share a queue pair, which sends them in
    /// the order of their starts; [`Operation::Send`] alone has channels. Without one, a message
    /// has a queue pair to itself while it is under way.
    #[serde(default)]
    pub channel: Option<u32>,
}

/// How an MPI library does MPI_Alltoall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Each rank sends to all others at once, the nearest above it first.
    Linear,
    /// Step by step: in step i each rank sends to the i-th above it, and receives from the i-th
    /// below. A block is sent when its receiver has come to that step, too (rendezvous, whose
    /// handshake takes no time here).
    Pairwise,
}
