//! InfiniBand communication management: how two programs agree on a connection, or find a datagram
//! queue pair, over the general services queue pair (QP 1) of their devices.
//!
//! [`Mad`] is a management datagram with one of the connection manager's messages; [`Manager`] is
//! all exchanges of one host as state machines, with their retransmissions. Nothing here does IO,
//! reads a clock or draws randomness: time, datagrams and communication IDs are arguments.
//!
//! The layouts and the protocol are those of the InfiniBand Architecture Specification, volume 1,
//! release 1.4 ("IBTA" below), chapter 12, and of its annex A11 (RDMA IP CM service).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bytes;
mod error;
mod ip;
mod mad;
mod manager;
mod message;
mod reason;
mod service;

pub use bytes::MAD_LEN;
pub use error::MadError;
pub use ip::IpHeader;
pub use mad::{Attribute, Mad, Message};
pub use manager::{
    ACK_DELAY, ConnectionError, Event, MAX_RETRIES, Manager, Parameters, Path, PortOf,
    RESPONSE_TIMEOUT, Transmit, ack_timeout_code,
};
pub use message::{
    Apr, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, Service, SidrRep, SidrReq, Stage, padded,
};
pub use reason::{RejectReason, SidrStatus};
pub use service::{PortSpace, ServiceId};
