//! Congestion control of queue pairs: DCQCN, HPCC, TIMELY, Swift, and one like DCTCP. Each is a
//! [`CongestionControl`](urxe_proto::CongestionControl).
//!
//! DCQCN lives on notifications of the peer, and `urxe-device` has it. The others live on what
//! acknowledgements bring back ([`urxe_proto::Feedback`]): round trips by the adapter's clock,
//! marks, and what switches write into packets. No adapter of `urxe-device` has that; the simulator
//! (`urxe-fabric`) models it. `docs/congestion-control.md` has the parameters with their sources,
//! and which figure of its paper each reproduces.
//!
//! Nothing here reads a clock, does IO or draws randomness. Numbers are IEEE 754 doubles with basic
//! operations alone, whose results are the same on every machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod dcqcn;
mod dctcp;
mod hpcc;
mod pacer;
mod path;
mod square_root;
mod swift;
mod timely;

pub use dcqcn::{DcqcnParameters, FirstRate, ReactionPoint};
pub use dctcp::{Dctcp, DctcpParameters};
pub use hpcc::{Hpcc, HpccParameters};
pub use pacer::Pacer;
pub use path::Path;
pub use swift::{Swift, SwiftParameters};
pub use timely::{Timely, TimelyParameters};
