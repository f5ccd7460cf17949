//! Congestion control that needs more of the path than marks: HPCC, TIMELY, Swift, and one like
//! DCTCP. Each is a [`CongestionControl`](urxe_proto::CongestionControl) of a queue pair, as DCQCN
//! is, which `urxe-proto` has itself.
//!
//! They live on what acknowledgements bring back ([`urxe_proto::Feedback`]): round trips by the
//! adapter's clock, marks, and what switches write into packets. No adapter of `urxe-device` has
//! that; the simulator (`urxe-fabric`) models it. `docs/congestion-control.md` has the parameters
//! with their sources, and which figure of its paper each reproduces.
//!
//! Nothing here reads a clock, does IO or draws randomness. Numbers are IEEE 754 doubles with basic
//! operations alone, whose results are the same on every machine.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod dctcp;
mod hpcc;
mod path;
mod square_root;
mod swift;
mod timely;

pub use dctcp::{Dctcp, DctcpParameters};
pub use hpcc::{Hpcc, HpccParameters};
pub use path::Path;
pub use swift::{Swift, SwiftParameters};
pub use timely::{Timely, TimelyParameters};
