//! What the tests of the simulation share: seeds, random programs, and the model they are held
//! against.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses its part"
)]

pub mod bench;
pub mod by_hand;
pub mod check;
pub mod driver;
pub mod failures;
pub mod go_back_n;
pub mod pair;
pub mod program;
pub mod queue_pair;
pub mod scenario;
pub mod seeds;
pub mod unreliable;
pub mod weather;
