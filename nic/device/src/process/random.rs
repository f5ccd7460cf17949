//! Randomness.

use crate::process::error::Error;

/// A random number from the operating system.
pub(crate) fn random_u32() -> Result<u32, Error> {
    getrandom::u32().map_err(|error| Error::Io(std::io::Error::other(error)))
}
