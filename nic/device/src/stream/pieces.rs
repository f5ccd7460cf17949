//! What a queue pair has to send, as the socket takes it.

use urxe_iwarp::QueuePair;
use urxe_proto::{LocalAccess, Payload, RemoteAccess, RemoteRange, for_each_piece};

use super::constants::PIECES_MAX;
use super::socket::Piece;
use crate::memory::MemoryTable;

/// Where what is to be sent is; how many pieces, up to the first that cannot be reached.
pub(super) fn gather(
    qp: &QueuePair,
    memory: &MemoryTable,
    pieces: &mut [Piece; PIECES_MAX],
) -> usize {
    let pd = qp.pd();
    let mut count = 0;
    let mut add = |at: u64, len: usize| match pieces.get_mut(count) {
        Some(piece) => {
            *piece = Piece::new(at, len);
            count += 1;
            true
        }
        None => false,
    };
    for payload in qp.output() {
        let is_added = match payload {
            Payload::Empty | Payload::Words(_) => true,
            Payload::Bytes(bytes) => bytes.is_empty() || add(bytes.as_ptr() as u64, bytes.len()),
            Payload::Local { sges, offset, len } => {
                let mut has_room = true;
                let reached = for_each_piece(sges, offset, len as usize, |sge, at, len| {
                    let from = memory.local(pd, sge, at, len, LocalAccess::Read)?;
                    has_room = has_room && add(from, len);
                    Ok(())
                });
                reached.is_ok() && has_room
            }
            Payload::Remote { via, rkey, va, len } => {
                let range = RemoteRange { rkey, va, len };
                let from = memory.remote(via, range, RemoteAccess::Read);
                len == 0 || from.is_ok_and(|from| add(from, len as usize))
            }
        };
        if !is_added {
            break;
        }
    }
    count
}
