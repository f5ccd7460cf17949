//! The network side of a tapped socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use urxe_udp::{Destination, Framing, Piece, SendError, Sent, Socket, Transmit};
use urxe_wire::Packet;

use crate::attach::capture::{Capture, Direction, Passing};

/// See the module: what leaves here has left.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) local: SocketAddr,
    pub(crate) socket: Socket,
    pub(crate) capture: Option<Arc<Capture>>,
    pub(crate) traces: bool,
}

impl Wire {
    /// Sends one datagram.
    pub(crate) fn send(
        &self,
        destination: &Destination,
        tos: u8,
        bytes: &[u8],
    ) -> Result<Sent, SendError> {
        let iov = [Piece::new(bytes)];
        let transmit = Transmit {
            destination,
            segment_size: None,
            tos,
            framing: Framing::Never,
            whole: None,
            iov: &iov,
        };
        self.send_batch(&transmit, bytes)
    }

    pub(crate) fn send_batch(
        &self,
        transmit: &Transmit<'_>,
        bytes: &[u8],
    ) -> Result<Sent, SendError> {
        // Before the system call, so that no answer is older than its question.
        let time = SystemTime::now();
        let sent = self.socket.send(transmit)?;
        if sent.lost.is_none() {
            let passing = Passing {
                direction: Direction::Out,
                time,
                source: self.local,
                destination: transmit.destination.address(),
                tos: transmit.tos,
                stride: transmit.segment_size.map_or(bytes.len(), usize::from),
                frame: self
                    .socket
                    .frame_header(transmit.destination.address().ip(), transmit.tos),
            };
            self.record(&passing, &bytes[..sent.bytes]);
        }
        Ok(sent)
    }

    pub(crate) fn record(&self, passing: &Passing, bytes: &[u8]) {
        if let Some(capture) = &self.capture {
            capture.record(passing, bytes);
        }
        if self.traces {
            for datagram in bytes.chunks(passing.stride.max(1)) {
                trace(passing, datagram);
            }
        }
    }
}

fn trace(passing: &Passing, datagram: &[u8]) {
    let Passing {
        direction,
        source,
        destination,
        ..
    } = passing;
    let len = datagram.len();
    match Packet::parse(datagram) {
        Ok(packet) => {
            let bth = &packet.header.bth;
            log::trace!(
                "{direction} {source} > {destination}: {:?} QP {:#08x} PSN {} of {len} bytes",
                bth.opcode,
                bth.dest_qp.get(),
                bth.psn.get()
            );
        }
        Err(why) => log::trace!("{direction} {source} > {destination}: {len} bytes: {why}"),
    }
}
