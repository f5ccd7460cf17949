//! Shared receive queues.

pub(crate) mod domain;
pub(crate) mod table;
