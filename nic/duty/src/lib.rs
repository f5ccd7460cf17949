//! Which thread runs the NIC's engine, and when: decisions without IO. Every event carries its
//! time; every answer says what the thread that asked does next.
//!
//! | policy | asked by | decides |
//! |---|---|---|
//! | [`Background`] | the background thread, all the time | to sleep while the program makes progress, else to run the engine, look for packets, or wait for them |
//! | [`Poller`] | a thread that polls and finds nothing | to poll again, to yield, or to wait in the kernel for a while |
//! | [`Looker`] | a thread about to sleep until packets come | whether to look for them first, and for how long |
//! | [`Posts`] | the engine, at each post and round | whether posted packets wait for company, and when a program that only posts runs a round |
//! | [`Replies`] | a connection of an iWARP device | whether the completion of what was sent waits for the reply of the peer |
//! | [`EventWaits`] | a completion channel | whether the program waits for events in it, or by itself |
//!
//! The numbers behind the decisions stand in [`constants`]. What each thread reads and shares with
//! the others (atomics, descriptors, the clock, processor usage) is the caller's.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod act;
mod activity;
mod background;
mod chance;
pub mod constants;
mod event_waits;
mod looker;
mod parting;
mod poller;
mod posts;
mod replies;

pub use act::{Act, Event, Ran, Reason, Seen};
pub use background::Background;
pub use event_waits::EventWaits;
pub use looker::{Look, Looker, Next};
pub use poller::{Advice, Poller, Usage};
pub use posts::Posts;
pub use replies::Replies;
