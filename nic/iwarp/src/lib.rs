//! iWARP as sans-IO state machines.
//!
//! A connection is a TCP stream, which the caller has. [`Initiator`] and [`Responder`] set it up:
//! bytes in, bytes out, until both ends agree on [`Terms`] (RFC 5044, 7; RFC 6581).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod setup;

pub use setup::{
    FirstFrame, Initiator, Offer, Outcome, Requested, Responder, RtrKind, SETUP_TIMEOUT_NS,
    SetupError, Terms,
};
