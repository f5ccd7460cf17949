//! What kind of device every interface has: RoCE or iWARP.

use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::process::error::Error;

/// The environment variable that says what kind the devices are: `roce` (as without it) or `iwarp`.
pub const TRANSPORT_VARIABLE: &str = "URXE_TRANSPORT";

/// What a device speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// RoCE: packets over UDP or Ethernet.
    #[default]
    Roce,
    /// iWARP: a TCP connection for each queue pair.
    Iwarp,
}

impl FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" | "roce" => Ok(Self::Roce),
            "iwarp" => Ok(Self::Iwarp),
            other => Err(format!("'{other}' is neither roce nor iwarp")),
        }
    }
}

impl DeviceKind {
    /// That of the devices of this process. The same for as long as it lives. Threads that ask at
    /// once may each find out: a lock could be held by another thread when the process is copied by
    /// fork.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an environment that cannot be understood.
    pub fn of_process() -> Result<Self, Error> {
        const UNKNOWN: u8 = 0;
        const ROCE: u8 = 1;
        const IWARP: u8 = 2;
        static FOUND: AtomicU8 = AtomicU8::new(UNKNOWN);
        match FOUND.load(Ordering::Relaxed) {
            ROCE => return Ok(Self::Roce),
            IWARP => return Ok(Self::Iwarp),
            _ => {}
        }
        let text = std::env::var(TRANSPORT_VARIABLE).unwrap_or_default();
        let parsed = text.trim().parse();
        let kind = parsed.map_err(|why| Error::Invalid(format!("{TRANSPORT_VARIABLE}: {why}")))?;
        let found = match kind {
            Self::Roce => ROCE,
            Self::Iwarp => IWARP,
        };
        FOUND.store(found, Ordering::Relaxed);
        Ok(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_that_there_is_not_is_refused_with_those_that_there_are() {
        assert_eq!("".parse(), Ok(DeviceKind::Roce));
        assert_eq!("iwarp".parse(), Ok(DeviceKind::Iwarp));
        let error = "tcp".parse::<DeviceKind>().unwrap_err();
        assert!(error.contains("'tcp'") && error.contains("roce") && error.contains("iwarp"));
    }
}
