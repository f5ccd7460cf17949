//! RoCE on the wire: headers, opcodes, numbers and the invariant CRC.
//!
//! Pure data in, pure data out: no IO, no clock, no allocation, no unsafe code. One header per
//! file; each has its byte ranges as constants and a plain value type with `parse` and `emit`.
//! [`Packet::parse`] takes a whole UDP payload and says why it does not understand one;
//! [`Header::emit`] writes what precedes the payload; [`icrc`] computes and checks the four bytes
//! that follow it.
//!
//! The layouts are those of the InfiniBand Architecture Specification, volume 1, release 1.4
//! ("IBTA" below), chapter 9, and its annexes A16 (RoCE v1), A17 (RoCEv2), A14 (XRC); FLUSH and
//! ATOMIC WRITE are those of release 1.5.
#![no_std]
#![forbid(unsafe_code)]

mod aeth;
mod atomic_ack_eth;
mod atomic_eth;
mod bth;
mod bytes;
mod constants;
mod deth;
mod error;
mod feth;
mod gid;
mod grh;
mod header;
pub mod icrc;
mod ieth;
mod immediate;
mod mtu;
mod opcode;
mod operation;
mod packet;
mod pkey;
mod psn;
mod qpn;
mod reth;
mod timer;
mod transport;
mod xrceth;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::Bth;
pub use constants::*;
pub use deth::Deth;
pub use error::{EmitError, OpcodeError, ParseError, Part};
pub use feth::Feth;
pub use gid::Gid;
pub use grh::Grh;
pub use header::{Extensions, Header, MAX_HEADER_LEN, pad_len};
pub use ieth::Ieth;
pub use immediate::Immediate;
pub use mtu::Mtu;
pub use opcode::Opcode;
pub use operation::Operation;
pub use packet::{HELD_LEN, Packet};
pub use pkey::Pkey;
pub use psn::{PartialPsn, Psn};
pub use qpn::Qpn;
pub use reth::Reth;
pub use timer::{ack_timeout_ns, rnr_timer_code, rnr_timer_us};
pub use transport::Transport;
pub use xrceth::{Srqn, XrcEth};
