//! The NIC's objects (protection domains, memory regions, completion queues, queue pairs) and the
//! engine that moves packets between `urxe-proto` and `urxe-udp`.
//!
//! This is the only crate of the NIC that reads a clock.
//!
//! # Who makes progress
//!
//! There is no thread per packet. A program that polls a completion queue runs the engine inline, on
//! its own thread. One that blocks in [`CompletionChannel::wait`] runs it there. A background thread
//! per [`Nic`] takes over when the program does neither (it computes, or waits in its own `poll`), and
//! sleeps otherwise, so that no packet wakes two threads.

mod channel;
mod clock;
mod cm;
mod cq;
mod engine;
mod error;
mod events;
mod exit;
mod idle;
mod list;
mod memory;
mod nic;
mod port;
mod progress;
mod qp;
mod receive;
mod table;
mod timers;
mod transmit;

pub use channel::CompletionChannel;
pub use cm::{
    CmAddress, CmEvent, CmEventKind, CmFile, CmInfo, CmOption, CmParam, CmQpAttributes, CmQpType,
    ConnectionParam, DatagramParam, ReliableSender,
};
pub use cq::Cq;
pub use error::Error;
pub use events::{AsyncEvent, AsyncEventKind};
pub use exit::at_exit;
pub use list::{DeviceInfo, GidEntry, list};
pub use memory::{Access, MemoryRegion, Pd};
pub use nic::{DeviceStats, Limits, Nic, PortInfo};
pub use qp::{Qp, QpInit, SendPoster};

pub use urxe_cm::PortSpace;
pub use urxe_proto::{
    AttrMask, Attributes, Capacity, Completion, CompletionKind, ModifyError, PostError, QpEvent,
    QpState, QpStats, QueueSide, RecvRequest, SendData, SendOp, SendRequest, Sge, WcStatus,
};
pub use urxe_wire::{Gid, Immediate, Mtu, Pkey, Psn, Qpn, Transport};
