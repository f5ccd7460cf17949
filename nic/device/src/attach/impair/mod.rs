//! A bad network on purpose: packets that the device sends are lost, doubled, overtaken, damaged or
//! late, as a seed decides.
//!
//! It strikes what leaves, as `netem` of Linux does: then what a capture shows is what went over
//! the wire, and where both ends run so, each direction is struck once. For both directions, run
//! both ends so.
//!
//! Every socket has its own sequence of decisions, made of the seed and the socket's address and
//! port, with the same number of draws for each packet: the n-th packet of a socket always has the
//! same fate, and another kind of fault changes nothing about which packets are lost.

mod link;
mod setting;

pub(crate) use link::BadLink;
pub(crate) use setting::ImpairCounters;
pub use setting::{Delay, Impairment, Share};
