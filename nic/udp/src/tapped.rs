//! Sockets with a tap.

use crate::error::SendError;
use crate::socket::Socket;
use crate::tap::{Tap, gather};
use crate::transmit::{Piece, Sent, Transmit};

impl Socket {
    /// Lets `tap` stand between the socket and the network.
    #[must_use]
    pub fn with_tap(mut self, tap: Box<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Gathers the bytes for the tap.
    #[cold]
    pub(crate) fn send_tapped(
        &self,
        tap: &dyn Tap,
        transmit: &Transmit<'_>,
    ) -> Result<Sent, SendError> {
        let bytes = gather(transmit.iov)?;
        let piece = [Piece::new(&bytes)];
        let gathered = Transmit {
            iov: &piece,
            ..*transmit
        };
        tap.send(&gathered, &bytes)
    }
}
