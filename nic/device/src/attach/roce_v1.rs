//! Whether the devices of this process have GIDs of RoCE v1 besides.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::process::error::Error;

/// The environment variable that gives every address a GID of RoCE v1 besides, with the value `on`:
/// [`crate::ROCE_V1_DISTANCE`] places behind that of RoCE v2.
pub const ROCE_V1_VARIABLE: &str = "URXE_ROCE_V1";

/// Whether this process may have them.
///
/// # Errors
/// [`Error::Invalid`] says why not, and what to do.
pub fn check_roce_v1() -> Result<(), Error> {
    urxe_udp::check_frames().map_err(|error| refusal(&error))
}

fn refusal(error: &io::Error) -> Error {
    Error::Invalid(format!(
        "RoCE v1 is not possible here: its packets are Ethernet frames, and this process may not open \
         a packet socket ({error}). Run it as root, or give it CAP_NET_RAW (setpriv --inh-caps \
         +net_raw --ambient-caps +net_raw; in a container --cap-add NET_RAW), or use RoCE v2, which \
         needs no right"
    ))
}

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether they are wanted and possible. The same for as long as the process lives, whatever rights
/// it gives up. Threads that ask at once may each find out: a lock could be held by another thread
/// when the process is copied by fork.
pub(crate) fn is_on() -> bool {
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    if STATE.load(Ordering::Relaxed) == UNKNOWN {
        let found = if find_out() { ON } else { OFF };
        STATE.store(found, Ordering::Relaxed);
    }
    STATE.load(Ordering::Relaxed) == ON
}

fn find_out() -> bool {
    let wanted = std::env::var(ROCE_V1_VARIABLE).unwrap_or_default();
    let possible = parse(&wanted).and_then(|is_wanted| {
        if is_wanted {
            check_roce_v1()?;
        }
        Ok(is_wanted)
    });
    possible.unwrap_or_else(|error| {
        log::error!("no GIDs of RoCE v1: {error}");
        false
    })
}

/// Nothing is no.
fn parse(text: &str) -> Result<bool, Error> {
    match text.trim() {
        "on" => Ok(true),
        "" | "off" => Ok(false),
        text => Err(Error::Invalid(format!(
            "{ROCE_V1_VARIABLE}: '{text}' is neither on nor off"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_unless_wanted() {
        for (text, expected) in [("", false), ("off", false), (" on\n", true)] {
            assert_eq!(parse(text).unwrap(), expected);
        }
        let error = parse("yes").unwrap_err().to_string();
        assert!(
            error.contains("URXE_ROCE_V1: 'yes' is neither on nor off"),
            "{error}"
        );
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let error = refusal(&io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(error.contains("CAP_NET_RAW") && error.contains("Operation not permitted"));
    }
}
