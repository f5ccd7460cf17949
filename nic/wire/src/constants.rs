//! Numbers of the wire that belong to no single header.

use crate::pkey::Pkey;

/// The UDP destination port of RoCEv2 (IANA).
pub const ROCE_UDP_PORT: u16 = 4791;

/// The type of the Ethernet frames of RoCE v1 (IBTA annex A16; IEEE's register of Ethertypes).
pub const ROCE_V1_ETHERTYPE: u16 = 0x8915;

/// The partition key of a device that was not told otherwise.
pub const DEFAULT_PKEY: Pkey = Pkey::DEFAULT;

/// The queue key of the connection manager's QP 1 (IBTA vol 1, 13.5.2: GSI well-known Q_Key).
pub const CM_QKEY: u32 = 0x8001_0000;

/// Length of the invariant CRC that ends every packet, in bytes.
pub const ICRC_LEN: usize = 4;

/// Length of the reserved bytes that a congestion notification packet carries after its BTH (IBTA
/// annex A17.9.3).
pub const CNP_RESERVED_LEN: usize = 16;

/// The most data that one message may carry, 2^31 bytes (IBTA vol 1, 9.7.7).
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;
