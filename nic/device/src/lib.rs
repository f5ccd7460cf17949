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

/// What tests of this crate alone have in common with those of whole devices.
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(test)]
extern crate self as urxe_device;

mod across_fork;
mod ahead;
mod background;
mod batch;
mod blocking;
mod capture;
mod channel;
mod clock;
mod cm;
mod congestion;
mod cq;
mod datagram;
mod dm;
mod engine;
mod error;
mod events;
mod exit;
mod farewell;
mod fork;
mod forward;
mod gid_entry;
mod gid_table;
mod guard;
mod impair;
mod lid;
mod link;
mod list;
mod look;
mod mapping;
mod memory;
mod moderation;
mod multicast;
mod naps;
mod nic;
mod odp;
mod path;
mod ping;
mod port;
mod progress;
mod qp;
mod random;
mod receive;
mod signalled;
mod srq;
mod stat;
mod table;
mod tap;
mod threads;
mod timers;
mod transmit;
mod usage;
mod vendor_mad;

pub use across_fork::{AcrossFork, Held, Locked, epoch};
pub use blocking::{BlockingCall, Step, Waiting, poll, timespec};
pub use channel::{ChannelWait, CompletionChannel};
pub use cm::{
    CmAddress, CmEvent, CmEventKind, CmFile, CmInfo, CmOption, CmParam, CmQpAttributes, CmQpType,
    CmWait, ConnectionParam, DatagramParam, ReliableSender,
};
pub use congestion::{CongestionControl, DCQCN_VARIABLE};
pub use cq::Cq;
pub use dm::DeviceMemory;
pub use error::Error;
pub use events::{AsyncEvent, AsyncEventKind, EventWait};
pub use exit::at_exit;
pub use fork::prepare_for_fork;
pub use gid_entry::GidEntry;
pub use gid_table::GID_TABLE_LENGTH;
pub use guard::{find_handlers, forget_mask};
pub use impair::{Delay, Impairment, Share};
pub use lid::{address_of_lid, lid};
pub use list::{DeviceInfo, list};
pub use mapping::Mapping;
pub use memory::{Access, MemoryRegion, Pd};
pub use moderation::Moderation;
pub use nic::{DeviceStats, Limits, Nic, PortInfo};
pub use ping::{PingAnswer, PingQuestion};
pub use qp::{Qp, QpInit, SendPoster};
pub use srq::{Srq, SrqAttributes, SrqInit, XrcSrqInit, Xrcd};
pub use stat::{
    Counters, DeviceStat, ProcessStat, QpStat, STAT_SCHEMA, STAT_SOCKET_PREFIX, counters_of, peer,
};
pub use tap::{FRAMES_VARIABLE, IMPAIR_VARIABLE, PCAP_VARIABLE, RECEIVE_BUFFER_VARIABLE, Wiring};
pub use threads::{Uncancelled, with_signals_blocked};

pub use urxe_cm::PortSpace;
pub use urxe_proto::{
    AccessError, AddressVector, AttrMask, Attributes, Capacity, Completion, CompletionKind,
    DcqcnParameters, FirstRate, GRH_BYTES, ModifyError, Placement, PostError, QpEvent, QpState,
    QpStats, QpType, QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge,
    SrqEvent, WcStatus, WindowAccess, WindowBind, WindowType,
};
pub use urxe_udp::Changes;
pub use urxe_wire::{Gid, Immediate, Mtu, Pkey, Psn, Qpn, Srqn, Transport};
pub use vendor_mad::{gsi_datagram, gsi_payload};
