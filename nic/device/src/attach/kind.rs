//! What kind of device every interface has: RoCE or iWARP.

use std::str::FromStr;
use std::sync::OnceLock;

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
    /// That of the devices of this process. The same for as long as it lives.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an environment that cannot be understood.
    pub fn of_process() -> Result<Self, Error> {
        static OF_PROCESS: OnceLock<Result<DeviceKind, String>> = OnceLock::new();
        let of_process = OF_PROCESS.get_or_init(|| {
            let text = std::env::var(TRANSPORT_VARIABLE).unwrap_or_default();
            text.trim().parse()
        });
        of_process
            .clone()
            .map_err(|why| Error::Invalid(format!("{TRANSPORT_VARIABLE}: {why}")))
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
