//! Any bytes as the stream of a connected iWARP queue pair that has requests of its own in flight.
//! It never panics and never goes on for ever. No byte reaches memory outside of the one region,
//! and every work request completes once.

use urxe_iwarp::{FirstFrame, Place, QueuePair, RtrKind, StreamAction, StreamMemory, Terms};
use urxe_proto::{
    AccessError, AttrMask, Attributes, Capacity, Instant, Memory, Payload, QpConfig, QpState,
    QpType, RecvRequest, RemoteAccess, RemoteRange, SendData, SendOp, SendRequest, SendTarget, Sge,
    SharedReceiveQueue, Via, gather,
};
use urxe_wire::{Immediate, Mtu, Qpn};

use crate::queue_pair::{KEY, PD, Region};

/// Send and receive requests that are posted.
const REQUESTS: u64 = 8;
/// More than all answers to an input: each READ request takes more bytes than its length can
/// multiply.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

impl StreamMemory for Region {
    fn read_remote(
        &self,
        via: Via,
        range: RemoteRange,
        access: RemoteAccess,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let range = self.remote(via, range, access)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }
}

/// See the module.
pub fn run(bytes: &[u8]) {
    let [flags, more, stream @ ..] = bytes else {
        return;
    };
    let mut memory = Region::new();
    let shares = more & 1 != 0;
    let mut srq = shares.then(|| SharedReceiveQueue::new(PD, 16, 2));
    let mut qp = connected(*flags, shares, &memory);
    post(&mut qp, srq.as_mut());
    let in_place = more & 2 != 0;
    let mut written = 0;
    let mut rest = stream;
    // Each piece has its length before it.
    while let [len, behind @ ..] = rest {
        let (piece, later) = behind.split_at(behind.len().min(usize::from(*len)));
        rest = later;
        take(&mut qp, piece, in_place, srq.as_mut(), &mut memory);
        qp.resume(srq.as_mut(), &mut memory);
        written += send(&mut qp, usize::from(*len) * 7, &mut memory);
        assert!(written < MAX_OUTPUT_BYTES);
    }
    qp.handle_end(more & 4 != 0, &memory);
    written += send(&mut qp, usize::MAX, &mut memory);
    assert!(written < MAX_OUTPUT_BYTES);
    assert_eq!(qp.state(), QpState::Error);
    let now = Instant::from_nanos(1);
    let actions: Vec<_> = std::iter::from_fn(|| qp.poll_action(now)).take(9).collect();
    assert_eq!(actions, [StreamAction::Close]);
    let left = srq.map_or(0, |srq| srq.len() as u64);
    let completed = std::iter::from_fn(|| qp.poll_completion()).count() as u64;
    assert_eq!(completed + left, 2 * REQUESTS, "work requests, each once");
    while qp.poll_event().is_some() {}
}

/// A queue pair without a connection, whose peer may do all.
pub(crate) fn fresh(shares_receives: bool, memory: &Region) -> QueuePair {
    let capacity = Capacity {
        send_requests: 16,
        recv_requests: 16,
        send_sges: 2,
        recv_sges: 2,
        inline_bytes: 64,
    };
    let mut qp = QueuePair::new(QpConfig {
        number: Qpn::new(2),
        pd: PD,
        qp_type: QpType::Rc,
        capacity,
        shares_receives,
        port_mtu: Mtu::B1024,
    });
    let wanted = Attributes {
        state: QpState::Init,
        allow_remote_write: true,
        allow_remote_read: true,
        allow_remote_atomic: true,
        ..Attributes::new()
    };
    let mask = AttrMask::STATE | AttrMask::ACCESS_FLAGS;
    qp.modify(&wanted, mask, memory).expect("reset to init");
    qp
}

fn connected(flags: u8, shares_receives: bool, memory: &Region) -> QueuePair {
    let mut qp = fresh(shares_receives, memory);
    let terms = Terms {
        // Most inputs have no right CRC.
        has_crc: flags & 7 == 7,
        sends_markers: flags & 8 != 0,
        receives_markers: flags & 16 != 0,
        ird: 2,
        ord: 2,
        first: match flags >> 6 {
            0 => FirstFrame::Free,
            1 => FirstFrame::Send(RtrKind::Write),
            2 => FirstFrame::Send(RtrKind::Read),
            _ => FirstFrame::Await,
        },
    };
    assert!(qp.connect(terms, if flags & 32 != 0 { 200 } else { 1460 }));
    qp
}

fn post(qp: &mut QueuePair, srq: Option<&mut SharedReceiveQueue>) {
    let sge = |addr, len| Sge {
        addr,
        len,
        lkey: KEY,
    };
    let mut srq = srq;
    for wr_id in 0..REQUESTS {
        let request = RecvRequest {
            wr_id,
            sges: &[sge(wr_id * 8, 100), sge(1000, 5)],
        };
        let posted = match srq.as_deref_mut() {
            Some(srq) => srq.post(&request),
            None => qp.post_recv(&request),
        };
        posted.expect("there is room");
    }
    let (va, rkey) = (0, 9);
    let ops = [
        (SendOp::Read { va, rkey }, 300),
        (SendOp::Send, 700),
        (SendOp::FetchAdd { va, rkey, add: 1 }, 8),
        (SendOp::Write { va, rkey }, 2000),
        (SendOp::Read { va, rkey }, 0),
        (
            SendOp::WriteImm {
                va,
                rkey,
                immediate: Immediate([1; 4]),
            },
            3,
        ),
        (SendOp::SendInvalidate { rkey }, 0),
        (SendOp::Read { va, rkey }, 4000),
    ];
    for (wr_id, (op, len)) in (0..).zip(ops) {
        let request = SendRequest {
            wr_id,
            op,
            data: SendData::Sges(&[sge(8, len)]),
            signaled: true,
            solicited: false,
            fence: false,
            target: SendTarget::Connection,
        };
        qp.post_send(&request).expect("there is room");
    }
}

/// Hands bytes over, to where they go if that is known.
pub(crate) fn take(
    qp: &mut QueuePair,
    bytes: &[u8],
    in_place: bool,
    srq: Option<&mut SharedReceiveQueue>,
    memory: &mut Region,
) {
    let mut rest = bytes;
    if in_place {
        for place in qp.destinations(memory) {
            let (piece, later) = rest.split_at(rest.len().min(place.len() as usize));
            rest = later;
            let filled = match place {
                Place::Local { pd, sge } => memory.write_local(pd, &sge, 0, piece),
                Place::Remote { via, range } => {
                    let len = u32::try_from(piece.len()).expect("at most 255 bytes");
                    memory.write_remote(via, RemoteRange { len, ..range }, piece)
                }
            };
            filled.expect("a place is checked");
        }
        let placed = bytes.len() - rest.len();
        if placed > 0 {
            qp.handle_placed(placed, memory);
        }
    }
    qp.handle_bytes(rest, srq, memory);
}

/// Takes what is to be sent, at most `max` bytes of it; how many.
pub(crate) fn send(qp: &mut QueuePair, max: usize, memory: &mut Region) -> usize {
    let mut sent = 0;
    loop {
        let waiting = qp.poll_output(max.min(10_000), memory);
        let mut out = Vec::new();
        for piece in qp.output() {
            match piece {
                Payload::Bytes(bytes) => out.extend_from_slice(bytes),
                Payload::Local { sges, offset, len } => {
                    let at = out.len();
                    out.resize(at + len as usize, 0);
                    gather(memory, PD, sges, offset, &mut out[at..]).expect("it was checked");
                }
                Payload::Remote { via, rkey, va, len } => {
                    let range = RemoteRange { rkey, va, len };
                    let access = RemoteAccess::Read;
                    // A window may have gone meanwhile.
                    match memory.remote(via, range, access) {
                        Ok(range) => out.extend_from_slice(&memory.bytes[range]),
                        Err(_) => out.resize(out.len() + len as usize, 0),
                    }
                }
                Payload::Empty | Payload::Words(_) => {}
            }
        }
        assert_eq!(out.len(), waiting);
        let now = waiting.min(max - sent);
        qp.handle_sent(now);
        sent += now;
        if now == 0 || sent >= MAX_OUTPUT_BYTES {
            return sent;
        }
    }
}
