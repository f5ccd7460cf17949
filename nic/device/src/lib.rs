//! The NIC's objects (protection domains, memory regions, completion queues, queue pairs) and the
//! engine that moves packets between `urxe-proto` and `urxe-udp`.
//!
//! This is the only crate of the NIC that reads a clock.
//!
//! # Which thread makes progress
//!
//! There is no thread per packet. A program that polls a completion queue runs the engine inline,
//! on its own thread. One that blocks in [`CompletionChannel::wait`] runs it there. A background
//! thread per [`Nic`] takes over when the program does neither (it computes, or waits in its own
//! `poll`), and sleeps otherwise, so that no packet wakes two threads.

/// What tests of this crate alone have in common with those of whole devices.
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
#[cfg(test)]
extern crate self as urxe_device;

mod attach;
mod cm;
mod delivery;
mod engine;
mod exit;
mod forks;
mod memory;
mod nic;
mod objects;
mod open;
mod process;
mod stat_server;
mod stream;

pub use attach::congestion::{CongestionControl, DCQCN_VARIABLE};
pub use attach::gid_entry::{GidEntry, GidType};
pub use attach::gid_table::{GID_TABLE_LENGTH, ROCE_V1_DISTANCE};
pub use attach::impair::{Delay, Impairment, Share};
pub use attach::kind::{DeviceKind, TRANSPORT_VARIABLE};
pub use attach::lid::{address_of_lid, lid};
pub use attach::list::{DeviceInfo, list};
pub use attach::roce_v1::{ROCE_V1_VARIABLE, check_roce_v1};
pub use attach::tap::{
    FRAMES_VARIABLE, IMPAIR_VARIABLE, PCAP_VARIABLE, RECEIVE_BUFFER_VARIABLE, Wiring,
};
pub use cm::{
    CmAddress, CmEvent, CmEventKind, CmFile, CmInfo, CmOption, CmParam, CmQpAttributes, CmQpType,
    CmWait, ConnectionParam, DatagramParam, ReliableSender,
};
pub use delivery::events::{AsyncEvent, AsyncEventKind, EventWait};
pub use delivery::moderation::Moderation;
pub use engine::ping::{PingAnswer, PingQuestion};
pub use engine::srq::domain::Xrcd;
pub use engine::stats::DeviceStats;
pub use exit::at_exit;
pub use forks::prepare_for_fork;
pub use memory::dm::DeviceMemory;
pub use memory::mapping::Mapping;
pub use memory::{Access, MemoryRegion, Pd};
pub use nic::{Limits, Nic, PortInfo};
pub use objects::channel::{ChannelWait, CompletionChannel};
pub use objects::cq::Cq;
pub use objects::poster::SendPoster;
pub use objects::qp::Qp;
pub use objects::qp_init::QpInit;
pub use objects::srq::{Srq, SrqAttributes, SrqInit, XrcSrqInit};
pub use process::across_fork::{AcrossFork, Held, Locked, epoch};
pub use process::blocking::{BlockingCall, Step, Waiting, poll, timespec};
pub use process::error::Error;
pub use process::found_once::FoundOnce;
pub use process::futex::{Mutex, MutexGuard};
pub use process::guard::{find_handlers, forget_mask};
pub use process::threads::{Uncancelled, with_signals_blocked};
pub use stat_server::{
    Counters, DeviceStat, ProcessStat, QpStat, STAT_SCHEMA, STAT_SOCKET_PREFIX, counters_of, peer,
};

pub use engine::vendor_mad::{gsi_datagram, gsi_payload};
pub use stream::StreamConnection;
pub use urxe_cm::PortSpace;
pub use urxe_proto::{
    AccessError, AddressVector, AttrMask, Attributes, Capacity, Completion, CompletionKind,
    DatagramHeader, GRH_BYTES, ModifyError, Placement, PostError, QpEvent, QpState, QpStats,
    QpType, QueueSide, RecvRequest, SendData, SendOp, SendRequest, SendTarget, Sge, SrqEvent,
    WcStatus, WindowAccess, WindowBind, WindowType,
};
pub use urxe_udp::Changes;
pub use urxe_wire::{Gid, Immediate, Mtu, Pkey, Psn, Qpn, Srqn, Transport};
