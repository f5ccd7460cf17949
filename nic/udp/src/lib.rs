//! UDP sockets at full speed, one file per kernel feature. Plain data in ([`Transmit`]), plain data
//! out ([`RecvMeta`]).
//!
//! This crate knows IP and UDP, and datagrams that are Ethernet frames without either, and nothing
//! of what is inside.
#![doc = include_str!("../README.md")]

mod address;
mod buffer;
mod busy;
mod capabilities;
mod changes;
mod clock;
mod control;
mod drops;
mod ecn;
mod error;
mod frames;
mod gro;
mod gso;
mod held;
mod inherited;
mod interfaces;
mod link;
mod mmsg;
mod multicast;
mod netlink;
mod pmtu;
mod receive;
mod received;
mod send;
mod socket;
mod sockopt;
mod tap;
mod tapped;
mod threads;
mod transmit;
mod uncancelled;
mod wait;
mod wakeup;

pub use address::Destination;
pub use busy::BusyPoll;
pub use capabilities::Capabilities;
pub use changes::Changes;
pub use error::SendError;
pub use gso::MAX_TRANSMIT_BYTES;
pub use inherited::{Private, abandon_inherited};
pub use interfaces::{Interface, InterfaceAddress, interfaces};
pub use link::{FrameKind, Selector, Unreachable, check_frames};
pub use mmsg::{RecvBatch, SentMany};
pub use pmtu::path_mtu_bytes;
pub use received::{FrameHeader, RecvBuffer, RecvMeta};
pub use socket::{Options, Socket};
pub use tap::Tap;
pub use threads::with_signals_blocked;
pub use transmit::{Framing, Piece, Sent, Transmit};
pub use wait::{Event, Interest, Waiter, set_timer_slack_ns, wait_readable, wait_writable};
pub use wakeup::Wakeup;
