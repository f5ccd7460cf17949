//! The objects that a program has of an opened device.

pub(crate) mod address;
pub(crate) mod channel;
pub(crate) mod cq;
pub(crate) mod groups;
pub(crate) mod poster;
pub(crate) mod qp;
pub(crate) mod qp_init;
pub(crate) mod srq;
mod stream_qp;
