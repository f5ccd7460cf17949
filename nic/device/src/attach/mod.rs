//! What the NIC is attached to: network interfaces, their addresses, and what stands between its
//! sockets and the network.

pub(crate) mod capture;
pub(crate) mod congestion;
pub(crate) mod gid_entry;
pub(crate) mod gid_table;
pub(crate) mod impair;
pub(crate) mod kind;
pub(crate) mod lid;
pub(crate) mod link;
pub(crate) mod list;
pub(crate) mod roce_v1;
pub(crate) mod tap;
