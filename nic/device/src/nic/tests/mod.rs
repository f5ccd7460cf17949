//! Opened devices in tests.

pub(crate) mod alone;
mod exchanges;
