//! What any bytes may do to the parts that take bytes from others: nothing but what is said here.
//!
//! Each module takes an input, whatever it is, and panics if a promise is broken. cargo-fuzz looks
//! for such inputs (`nic/fuzz`, `make fuzz`); what it found worth keeping is in `corpus/`, and
//! every `cargo test` replays it.

pub mod cm;
pub mod connection;
pub mod ddp;
pub mod mpa;
pub mod packet;
pub mod queue_pair;
pub mod rdmap;

/// A target: its name, which is also that of its corpus, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 7] = [
    ("packet", packet::run),
    ("queue_pair", queue_pair::run),
    ("cm", cm::run),
    ("mpa", mpa::run),
    ("ddp", ddp::run),
    ("rdmap", rdmap::run),
    ("connection", connection::run),
];
