//! Queue pairs in virtual time.
//!
//! A [`World`] has hosts, directed links between them, and one clock that only events move. The
//! hosts drive [`urxe_proto`]'s queue pairs as the real device does: they emit whole packets with
//! their ICRC, and parse and check what arrives. Links have delay, rate, buffer and MTU, and
//! [`Rule`]s that drop, delay, duplicate, corrupt, forge or mark packets.
//!
//! Nothing here reads a clock or does IO, and all randomness comes from the seed of the world, so a
//! run with the same seed is the same run: [`World::digest`] tells whether it was.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod byte_stream;
mod event;
mod fault;
mod forge;
mod host;
mod link;
mod memory;
mod random;
mod setup;
mod trace;
mod world;

pub use byte_stream::{ByteStream, StreamShape};
pub use fault::{Fault, Match, Rule};
pub use host::{AckPolicy, Host, HostId, HostStats, ROUTE_HEADER};
pub use link::{Link, LinkConfig, LinkStats};
pub use memory::{Region, Rights, VecMemory};
pub use random::Random;
pub use setup::ConnectOptions;
pub use trace::Trace;
pub use world::{QpHandle, World};
