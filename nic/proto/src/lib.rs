//! The RoCE transport as sans-IO state machines.
//!
//! A [`QueuePair`] is a requester and a responder, of any transport service that RoCE has. It never
//! reads a clock, opens a socket, allocates memory regions or draws randomness: time and packets
//! are arguments, memory is reached through the [`Memory`] trait. So the same code runs over UDP
//! sockets (`urxe-device`) and in virtual time (`urxe-sim`).
//!
//! # Call order
//!
//! 1. Commands: [`QueuePair::modify`], [`QueuePair::post_send`], [`QueuePair::post_recv`].
//! 2. Inputs: [`QueuePair::handle_packet`] or [`QueuePair::handle_datagram`] for each packet,
//!    [`QueuePair::handle_timeout`] when [`QueuePair::poll_timeout`] has passed.
//! 3. Outputs, after any of these, each until it returns `None`: [`QueuePair::poll_transmit`] (or
//!    [`QueuePair::poll_run`], which gives the middle of a long message at once),
//!    [`QueuePair::poll_completion`], [`QueuePair::poll_event`].
//!
//! With [`QueuePair::set_notified_control`] it also controls congestion: the caller tells it of
//! marked packets ([`QueuePair::handle_congestion_mark`]) and sends what
//! [`QueuePair::poll_notification`] gives; the notifications of the peer come through
//! [`QueuePair::handle_packet`]. A queue pair that has to slow down has no packet to transmit until
//! its time comes, which [`QueuePair::poll_timeout`] tells. Any other [`CongestionControl`] is set
//! by [`QueuePair::set_congestion_control`], and told of what acknowledgements bring back by
//! [`QueuePair::handle_feedback`].
//!
//! References "IBTA" are to the InfiniBand Architecture Specification, volume 1, release 1.4.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attr_mask;
mod attributes;
mod connection;
mod control;
mod egress;
mod habit;
mod memory;
mod memory_window;
mod notification;
mod peer;
mod qp;
mod rc;
mod receive_queue;
mod run;
mod send_queue;
mod sender;
mod sge;
mod state;
mod time;
mod unreliable;
mod verbs;

pub use attr_mask::AttrMask;
pub use attributes::{Attributes, ModifyError};
pub use control::{Acknowledged, CongestionControl, Feedback, Hop, Loss, NotifiedControl};
pub use egress::Egress;
pub use habit::Habit;
pub use memory::{
    AccessError, AtomicOp, LocalAccess, Memory, PdId, Placement, RemoteAccess, RemoteRange, Via,
    WindowAccess, WindowBind, for_each_piece, gather, scatter,
};
pub use memory_window::{BindTarget, MemoryWindow, WindowType};
pub use peer::PeerAbilities;
pub use qp::{AckMode, Capacity, PostError, QpConfig, QpEvent, QpStats, QueuePair};
pub use rc::acknowledge::ACK_HOLD_NS;
pub use rc::window::{Window, WindowLimits};
pub use receive_queue::{ReceiveQueue, RecvWqe, SharedReceiveQueue, SrqEvent};
pub use run::Run;
pub use sge::Sge;
pub use state::{QpState, required_attributes, transition_table};
pub use time::Instant;
pub use unreliable::GRH_BYTES;
pub use verbs::{
    AddressVector, Completion, CompletionKind, DatagramHeader, Payload, QpType, QueueSide,
    RecvRequest, SendData, SendOp, SendRequest, SendTarget, Transmit, WcStatus,
};
