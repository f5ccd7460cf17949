//! iWARP as sans-IO state machines.
//!
//! A connection is a TCP stream, which the caller has. [`Initiator`] and [`Responder`] set it up:
//! bytes in, bytes out, until both ends agree on [`Terms`] (RFC 5044, 7; RFC 6581). A [`QueuePair`]
//! takes it from there. It is the DDP and RDMAP of both directions over MPA, with the work
//! requests, completions, memory and receive queues of `urxe-proto`. It reads no clock and opens no
//! socket, and reaches memory through [`StreamMemory`], checked by key, bounds and rights at every
//! access.
//!
//! # Call order
//!
//! 1. Commands: [`QueuePair::modify`] to `Init`, [`QueuePair::post_recv`], [`QueuePair::connect`]
//!    with the terms, [`QueuePair::post_send`]. [`QueuePair::disconnect`] ends the connection.
//! 2. The way out, when the stream takes bytes: [`QueuePair::poll_output`] prepares FPDUs,
//!    [`QueuePair::output`] has their pieces (for one `sendmsg`), and [`QueuePair::handle_sent`]
//!    tells how many bytes the stream took. SENDs and WRITEs complete by that. While the stream
//!    takes no more, [`QueuePair::handle_blocked`].
//! 3. The way in, when the stream has bytes: [`QueuePair::destinations`] says where the next of
//!    them go. Read them there, and what is behind them into a buffer (one `readv`). Then
//!    [`QueuePair::handle_placed`] and [`QueuePair::handle_bytes`] take them.
//!    [`QueuePair::handle_end`] ends it. A queue pair that [is stalled](QueuePair::is_stalled)
//!    takes nothing in: once there is a receive request, [`QueuePair::resume`].
//! 4. Outputs, after any of these, each until it returns `None`: [`QueuePair::poll_completion`],
//!    [`QueuePair::poll_event`], [`QueuePair::poll_action`]. [`QueuePair::handle_timeout`] when
//!    [`QueuePair::poll_timeout`] has passed.
//!
//! What came may allow to send: an answer is owed, or a READ may go that had to wait. So step 2
//! follows step 3, as it follows a post.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod constants;
mod input;
mod memory;
mod output;
mod qp;
mod requests;
mod setup;
mod stats;
mod stream;

pub use constants::{
    CLOSE_TIMEOUT_NS, MAX_SENT_PRIVATE_DATA_LEN, RECEIVE_TIMEOUT_NS, REPLY_TIMEOUT_NS,
    SETUP_TIMEOUT_NS,
};
pub use memory::{Place, StreamMemory};
pub use qp::QueuePair;
pub use setup::{
    FirstFrame, Initiator, Offer, Outcome, Requested, Responder, RtrKind, SetupError, Terms,
};
pub use stats::Stats;
pub use stream::StreamAction;
