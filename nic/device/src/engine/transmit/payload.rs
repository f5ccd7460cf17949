//! What packets carry: where it is, and whether it is copied.

use urxe_proto::{LocalAccess, Payload, PdId, RemoteAccess, RemoteRange, Transmit};
use urxe_wire::Transport;

use crate::memory::MemoryTable;
use crate::process::guard::take;

/// The memory of a packet's payload may not be used any more; the packet, of this header, was not
/// added, nor was any behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryGone(pub(crate) urxe_wire::Bth);

/// Payloads up to this many bytes are copied: an iovec costs the kernel 50 ns (`urxe-udp`'s
/// README), and the bytes are read for the ICRC anyway.
const COPY_MAX: usize = 3072;

/// Whether the request that the packet belongs to completes only when the peer has it. The others
/// complete as soon as they are handed over, and the program may change its memory then.
pub(super) fn is_acknowledged(transmit: &Transmit<'_>) -> bool {
    let transport = transmit.header.bth.opcode.transport();
    matches!(transport, Some(Transport::Rc | Transport::Xrc))
}

/// Whether the payload is copied behind its header: if it is short, if nothing tells when the peer
/// has it, or if the memory is a peer's to read. The program may change such memory at any time,
/// and the ICRC must be that of the bytes that are sent.
pub(super) fn is_copied(transmit: &Transmit<'_>) -> bool {
    match transmit.payload {
        Payload::Local { len, .. } => len as usize <= COPY_MAX || !is_acknowledged(transmit),
        Payload::Empty | Payload::Bytes(_) | Payload::Words(_) | Payload::Remote { .. } => true,
    }
}

/// Copies a payload to `out`, which is as long.
pub(super) fn copy_payload(
    payload: &Payload<'_>,
    pd: PdId,
    memory: &MemoryTable,
    out: &mut [u8],
) -> Option<()> {
    match *payload {
        Payload::Empty => {}
        Payload::Bytes(bytes) => out.copy_from_slice(bytes),
        Payload::Words(words) => {
            for (to, word) in out.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_be_bytes());
            }
        }
        Payload::Local { sges, offset, .. } => {
            urxe_proto::gather(memory, pd, sges, offset, out).ok()?;
        }
        Payload::Remote { via, rkey, va, len } => {
            let range = RemoteRange { rkey, va, len };
            let from = memory.remote(via, range, RemoteAccess::Read).ok()?;
            // SAFETY: the range lies in a region that the program registered.
            unsafe { take(from, out).ok()? };
        }
    }
    Some(())
}

/// Where the payloads of `count` packets of a run are, one behind the other, in this process.
pub(super) fn run_source(
    payload: &Payload<'_>,
    count: usize,
    pd: PdId,
    memory: &MemoryTable,
) -> Option<*const u8> {
    let bytes = count * payload.len() as usize;
    let from = match *payload {
        Payload::Local {
            sges: [sge],
            offset,
            ..
        } => memory.local(pd, sge, offset, bytes, LocalAccess::Read),
        Payload::Remote { via, rkey, va, .. } => {
            let len = u32::try_from(bytes).ok()?;
            memory.remote(via, RemoteRange { rkey, va, len }, RemoteAccess::Read)
        }
        _ => return None,
    };
    from.ok().map(|from| from as *const u8)
}
