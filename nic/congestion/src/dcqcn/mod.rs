//! DCQCN: congestion control from marks of switches (Zhu et al., "Congestion Control for
//! Large-Scale RDMA Deployments", SIGCOMM 2015; the packet is that of IBTA annex A17.9.3).
//!
//! A switch with a long queue marks packets "congestion experienced". The receiver of one, the
//! *notification point*, tells its sender with a congestion notification packet (CNP), at most one
//! in a while for each queue pair; every queue pair of `urxe-proto` is one that has
//! [`DcqcnParameters`]. The receiver of that, the *reaction point*, cuts the rate of the queue
//! pair, and raises it again while no more come. The rate goes first halfway back to where it was,
//! several times (fast recovery), then by small steps (additive increase), then by growing ones
//! (hyper increase).
//!
//! A queue pair that never got a CNP has no reaction point, and pays one comparison for each
//! packet. One that got back to the line rate gives its reaction point up.
//!
//! Nothing here wants to be woken but to send: rates at a point in time are worked out when the
//! caller asks.

mod parameters;
mod reaction;

pub use parameters::{DcqcnParameters, FirstRate};
pub use reaction::ReactionPoint;
