//! Setting up a connection: a request of the initiator, a reply of the responder (RFC 5044, 7.1;
//! RFC 6581).

mod exchange;
mod initiator;
mod responder;
mod terms;

pub use initiator::Initiator;
pub use responder::{Requested, Responder};
pub use terms::{FirstFrame, Offer, Outcome, RtrKind, SetupError, Terms};
