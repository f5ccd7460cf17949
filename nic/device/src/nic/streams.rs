//! The connections of an iWARP device, as threads wait for them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::Nic;
use crate::attach::kind::DeviceKind;
use crate::stream::Streams;

impl Nic {
    /// Starts an iWARP device, once. `told` is told of connections that end, by their cookies.
    pub(crate) fn start_streams(&self, told: fn(u32)) -> io::Result<()> {
        let mut engine = self.engine();
        if engine.streams.is_none() {
            let streams = Streams::new(Some(told))?;
            let connections = streams.fd().try_clone_to_owned()?;
            let _ = self.connections.set(connections.into());
            engine.streams = Some(Box::new(streams));
            drop(engine);
            self.sockets_changed();
        }
        Ok(())
    }

    /// Whether it is an iWARP device.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        self.info.kind == DeviceKind::Iwarp
    }

    /// Readable while a connection of an iWARP device has something.
    pub(crate) fn connections(&self) -> Option<BorrowedFd<'_>> {
        self.connections.get().map(|fd| fd.as_fd())
    }
}
