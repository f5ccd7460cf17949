//! The port of a device.
use crate::errno::{Errno, Outcome};

/// RoCE devices of ours have one port.
pub(crate) const PORT: u8 = 1;

/// EINVAL unless `port` is the one there is.
pub(crate) fn check_port(port: u32) -> Outcome<()> {
    if port == u32::from(PORT) {
        Ok(())
    } else {
        Err(Errno::INVAL)
    }
}
