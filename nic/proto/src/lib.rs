//! The RoCE transport as sans-IO state machines.
//!
//! A [`QueuePair`] is a requester and a responder. It never reads a clock, opens a socket, allocates
//! memory regions or draws randomness: time and packets are arguments, memory is reached through the
//! [`Memory`] trait. So the same code runs over UDP sockets (`urxe-device`) and in virtual time
//! (`urxe-sim`).
//!
//! # Call order
//!
//! 1. Commands: [`QueuePair::modify`], [`QueuePair::post_send`], [`QueuePair::post_recv`].
//! 2. Inputs: [`QueuePair::handle_packet`] for each packet, [`QueuePair::handle_timeout`] when
//!    [`QueuePair::poll_timeout`] has passed.
//! 3. Outputs, after any of these, each until it returns `None`: [`QueuePair::poll_transmit`],
//!    [`QueuePair::poll_completion`], [`QueuePair::poll_event`].
//!
//! References "IBTA" are to the InfiniBand Architecture Specification, volume 1, release 1.4.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod memory;
mod qp;
mod rc;
mod state;
mod time;
mod verbs;

pub use attributes::{AttrMask, Attributes, ModifyError};
pub use memory::{
    AccessError, AtomicOp, LocalAccess, Memory, PdId, RemoteAccess, RemoteRange, gather, scatter,
};
pub use qp::{AckMode, Capacity, PostError, QpEvent, QpStats, QueuePair};
pub use rc::acknowledge::ACK_HOLD_NS;
pub use rc::window::{Window, WindowLimits};
pub use state::{QpState, required_attributes, transition_table};
pub use time::Instant;
pub use verbs::{
    Completion, CompletionKind, Payload, QueueSide, RecvRequest, SendData, SendOp, SendRequest,
    Sge, Transmit, WcStatus,
};
