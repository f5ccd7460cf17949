//! iWARP on the wire: frames of MPA, headers of DDP and RDMAP, and the CRC32c.
//!
//! Pure data in, pure data out: no IO, no clock, no allocation, no unsafe code. A TCP stream begins
//! with a [`SetupFrame`] each way. FPDUs follow: a length, a ULPDU, padding and a CRC ([`fpdu`]),
//! with a [`Marker`] every 512 bytes where one end asked for them. A ULPDU is a DDP segment: a
//! [`DdpHeader`], and payload that its RDMAP [`Opcode`] gives a meaning to.
//!
//! The layouts are those of RFC 5044 (MPA), RFC 6581 (its enhanced set-up), RFC 5041 (DDP),
//! RFC 5040 (RDMAP) and RFC 7306 (atomics and immediate data).
#![no_std]
#![forbid(unsafe_code)]

mod atomic;
mod bytes;
mod crc;
mod ddp;
mod enhanced;
mod error;
mod fault;
pub mod fpdu;
mod immediate;
mod marker;
mod opcode;
mod read_request;
mod setup_frame;
mod terminate;

pub use atomic::{AtomicOperation, AtomicRequest, AtomicResponse};
pub use crc::Crc32c;
pub use ddp::{DdpHeader, MAX_DDP_HEADER_LEN, Queue, Tagged, Untagged};
pub use enhanced::{Enhanced, IRD_ORD_LARGEST, IRD_ORD_MAX, Rtr};
pub use error::ParseError;
pub use fault::{Fault, Layer};
pub use immediate::ImmediateData;
pub use marker::{MARKER_INTERVAL, Marker, Marking};
pub use opcode::Opcode;
pub use read_request::ReadRequest;
pub use setup_frame::{FrameKind, MAX_PRIVATE_DATA_LEN, MAX_SETUP_FRAME_LEN, SetupFrame};
pub use terminate::{MAX_TERMINATE_LEN, Terminate};
