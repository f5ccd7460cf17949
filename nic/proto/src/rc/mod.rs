//! The reliable connection: one requester and one responder per queue pair.

pub(crate) mod acknowledge;
pub(crate) mod connection;
pub(crate) mod inbound;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod retry;
pub(crate) mod send_queue;
pub(crate) mod window;
