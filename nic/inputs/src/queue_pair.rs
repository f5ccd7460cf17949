//! Any sequence of packets to a connected queue pair, of any type, that has requests of its own in
//! flight. It never panics, and its state stays consistent. No packet reaches memory outside of the
//! one region, and what it wants to send can be written.

use urxe_proto::{
    AccessError, AckMode, AddressVector, AtomicOp, AttrMask, Attributes, BindTarget, Capacity,
    GRH_BYTES, Instant, LocalAccess, Memory, MemoryWindow, PdId, PeerAbilities, QpConfig, QpState,
    QpType, QueuePair, RecvRequest, RemoteAccess, RemoteRange, SendData, SendOp, SendRequest,
    SendTarget, Sge, SharedReceiveQueue, Via, WindowAccess, WindowBind, WindowType,
    required_attributes,
};
use urxe_wire::{MAX_HEADER_LEN, Mtu, Packet, Psn, Qpn, Srqn};

pub(crate) const KEY: u32 = 7;
pub(crate) const PD: PdId = PdId(1);

pub(crate) const WINDOW_KEY: u32 = 0x8000_0000;
const QKEY: u32 = 9;
const SRQN: Srqn = Srqn::new(5);

/// One region of 4 KiB at address 0, and a window.
pub(crate) struct Region {
    pub(crate) bytes: Vec<u8>,
    window: MemoryWindow,
}

impl Region {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; 4096],
            window: MemoryWindow::new(PD, WindowType::Type2, WINDOW_KEY),
        }
    }

    fn range(&self, key: u32, at: u64, len: usize) -> Result<std::ops::Range<usize>, AccessError> {
        if key != KEY {
            return Err(AccessError::UnknownKey);
        }
        let at = usize::try_from(at).map_err(|_| AccessError::OutOfBounds)?;
        let end = at.checked_add(len).filter(|end| *end <= self.bytes.len());
        Ok(at..end.ok_or(AccessError::OutOfBounds)?)
    }

    pub(crate) fn remote(
        &self,
        via: Via,
        r: RemoteRange,
        access: RemoteAccess,
    ) -> Result<std::ops::Range<usize>, AccessError> {
        if MemoryWindow::index_of(r.rkey) == MemoryWindow::index_of(WINDOW_KEY) {
            let (key, va) = self.window.translate(via, r, access)?;
            return self.range(key, va, r.len as usize);
        }
        self.range(r.rkey, r.va, r.len as usize)
    }
}

impl Memory for Region {
    fn check_local(&self, _: PdId, sge: &Sge, _: LocalAccess) -> Result<(), AccessError> {
        self.range(sge.lkey, sge.addr, sge.len as usize).map(drop)
    }
    fn check_remote(
        &self,
        via: Via,
        r: RemoteRange,
        access: RemoteAccess,
    ) -> Result<(), AccessError> {
        self.remote(via, r, access).map(drop)
    }
    fn write_local(
        &mut self,
        _: PdId,
        sge: &Sge,
        at: u32,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        assert!(
            u64::from(at) + bytes.len() as u64 <= u64::from(sge.len),
            "beyond the element"
        );
        let range = self.range(sge.lkey, sge.addr + u64::from(at), bytes.len())?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
    fn read_local(&self, _: PdId, sge: &Sge, at: u32, out: &mut [u8]) -> Result<(), AccessError> {
        out.copy_from_slice(
            &self.bytes[self.range(sge.lkey, sge.addr + u64::from(at), out.len())?],
        );
        Ok(())
    }
    fn write_remote(&mut self, via: Via, r: RemoteRange, bytes: &[u8]) -> Result<(), AccessError> {
        assert_eq!(r.len as usize, bytes.len());
        let range = self.remote(via, r, RemoteAccess::Write)?;
        self.bytes[range].copy_from_slice(bytes);
        Ok(())
    }
    fn atomic(&mut self, via: Via, rkey: u32, va: u64, _: AtomicOp) -> Result<u64, AccessError> {
        if !va.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        let range = RemoteRange { rkey, va, len: 8 };
        self.remote(via, range, RemoteAccess::Atomic).map(|_| 0)
    }
    fn bind_window(&mut self, via: Via, bind: &WindowBind) -> Result<(), AccessError> {
        let target = BindTarget {
            pd: PD,
            allows_binding: true,
            is_writable: true,
            is_zero_based: false,
            base: 0,
            len: 4096,
        };
        self.window.bind(via, bind, Some(&target))
    }
    fn invalidate(&mut self, via: Via, rkey: u32) -> Result<(), AccessError> {
        self.window.invalidate(via, rkey)
    }
}

fn connected(qp_type: QpType, shares_receives: bool) -> QueuePair {
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
        qp_type,
        capacity,
        shares_receives,
        port_mtu: Mtu::B1024,
    });
    let wanted = Attributes {
        allow_remote_write: true,
        allow_remote_read: true,
        allow_remote_atomic: true,
        dest_qp: Qpn::new(3),
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0x00ff_fffc),
        max_rd_atomic: 2,
        max_dest_rd_atomic: 2,
        timeout: 10,
        retry_count: 3,
        rnr_retry: 3,
        qkey: QKEY,
        ..Attributes::new()
    };
    let states = [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend];
    for state in states {
        let needed = required_attributes(qp_type, qp.state(), state);
        let (mask, _) = needed.expect("a legal transition");
        let wanted = Attributes {
            state,
            ..wanted.clone()
        };
        qp.modify(&wanted, mask | AttrMask::STATE)
            .expect("with all that it needs");
    }
    qp
}

/// Posts what queue pairs of this type have.
fn post(qp: &mut QueuePair) {
    let sges = [Sge {
        addr: 64,
        len: 2500,
        lkey: KEY,
    }];
    let small = [Sge {
        addr: 0,
        len: 8,
        lkey: KEY,
    }];
    let (va, rkey) = (0, KEY);
    let bind = WindowBind {
        rkey: WINDOW_KEY + 1,
        lkey: KEY,
        addr: 1024,
        len: 1024,
        access: WindowAccess::all() - WindowAccess::ZERO_BASED,
    };
    let target = match qp.config().qp_type {
        QpType::Ud => SendTarget::Datagram {
            address: AddressVector::default(),
            qp: Qpn::new(3),
            qkey: QKEY,
        },
        QpType::XrcInitiator => SendTarget::XrcSrq(SRQN),
        _ => SendTarget::Connection,
    };
    let requests: [(SendOp, &[Sge]); 6] = [
        (SendOp::BindWindow(bind), &[]),
        (SendOp::Send, &sges),
        (SendOp::Send, &small),
        (SendOp::Read { va, rkey }, &sges),
        (SendOp::FetchAdd { va, rkey, add: 1 }, &small),
        (SendOp::Write { va, rkey }, &sges),
    ];
    for (wr_id, (op, sges)) in (0..).zip(requests) {
        let data = SendData::Sges(sges);
        // Not all types have all operations.
        let _ = qp.post_send(&SendRequest {
            wr_id,
            op,
            data,
            signaled: true,
            solicited: false,
            fence: false,
            target,
        });
    }
    for wr_id in 0..4 {
        let _ = qp.post_recv(&RecvRequest { wr_id, sges: &sges });
    }
}

fn shared() -> SharedReceiveQueue {
    let mut queue = SharedReceiveQueue::new(PD, 8, 2);
    let sges = [Sge {
        addr: 64,
        len: 2500,
        lkey: KEY,
    }];
    for wr_id in 0..4 {
        queue
            .post(&RecvRequest { wr_id, sges: &sges })
            .expect("there is room");
    }
    queue
}

fn drain(qp: &mut QueuePair, now: Instant, memory: &mut Region) {
    let mut header = [0; MAX_HEADER_LEN];
    for _ in 0..10_000 {
        let Some(transmit) = qp.poll_transmit(now, AckMode::Flush, memory) else {
            while qp.poll_completion().is_some() || qp.poll_event().is_some() {}
            return;
        };
        transmit
            .header
            .emit(transmit.payload.len() as usize, &mut header)
            .expect("can be written");
    }
    panic!("it sends without end");
}

/// The input is a byte that says what queue pair it is, and a list of packets, each behind its
/// length (two bytes) and a pause before it (one byte, ms).
pub fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let (qp_type, shares_receives) = match kind % 8 {
        0 => (QpType::Rc, false),
        1 => (QpType::Rc, true),
        2 => (QpType::Uc, false),
        3 => (QpType::Uc, true),
        4 => (QpType::Ud, false),
        5 => (QpType::Ud, true),
        6 => (QpType::XrcInitiator, false),
        _ => (QpType::XrcTarget, true),
    };
    let mut qp = connected(qp_type, shares_receives);
    // A peer of our own kind may send in another order, and tells what arrived.
    qp.set_peer_abilities(PeerAbilities::from_bits_truncate(kind >> 3));
    let (mut memory, mut queue) = (Region::new(), shared());
    post(&mut qp);
    let (mut now, mut rest) = (Instant::from_nanos(1), bytes);
    drain(&mut qp, now, &mut memory);
    while let [low, high, pause, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high]) & 0x7ff).min(tail.len());
        let (packet, after) = tail.split_at(len);
        rest = after;
        now = now.after(u64::from(*pause) * 1_000_000);
        qp.handle_timeout(now);
        if let Ok(packet) = Packet::parse(packet) {
            let names_it = packet
                .header
                .xrceth
                .is_none_or(|xrceth| xrceth.srqn == SRQN);
            let queue = Some(&mut queue).filter(|_| shares_receives && names_it);
            if qp_type == QpType::Ud {
                qp.handle_datagram(&packet, &[0; GRH_BYTES], queue, &mut memory);
            } else {
                qp.handle_packet(now, &packet, queue, &mut memory);
            }
        }
        drain(&mut qp, now, &mut memory);
        qp.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use urxe_wire::{Bth, Deth, Header, NakCode, Opcode, Operation, Reth, Syndrome, Transport};

    use super::*;

    /// The peer may have two READs outstanding, and asks for hundreds before the first is answered.
    #[test]
    fn a_flood_of_reads_is_refused_and_takes_little_memory() {
        for peer_abilities in [PeerAbilities::empty(), PeerAbilities::URXE] {
            let mut qp = connected(QpType::Rc, false);
            qp.set_peer_abilities(peer_abilities);
            let mut memory = Region::new();
            let now = Instant::from_nanos(1);
            for psn in 0..5000 {
                let opcode = Opcode::new(Transport::Rc, Operation::ReadRequest);
                let mut header = Header::new(Bth::new(opcode, Qpn::new(2), Psn::new(psn)));
                header.reth = Some(Reth {
                    va: 0,
                    rkey: KEY,
                    len: 8,
                });
                let packet = Packet {
                    header,
                    payload: &[],
                };
                qp.handle_packet(now, &packet, None, &mut memory);
            }
            let mut last = None;
            let mut answers = 0;
            while let Some(transmit) = qp.poll_transmit(now, AckMode::Flush, &mut memory) {
                last = transmit.header.aeth.map(|aeth| aeth.syndrome);
                answers += 1;
            }
            assert_eq!(last, Some(Syndrome::Nak(NakCode::InvalidRequest)));
            assert_eq!(answers, 1, "the connection is over");
            assert_eq!(qp.state(), QpState::Error);
        }
    }

    #[test]
    fn a_write_of_other_than_the_announced_length_is_refused() {
        for len in [0, 7, 9, 1024] {
            let mut qp = connected(QpType::Rc, false);
            let mut memory = Region::new();
            let opcode = Opcode::new(Transport::Rc, Operation::WriteOnly);
            let mut header = Header::new(Bth::new(opcode, Qpn::new(2), Psn::new(0)));
            header.reth = Some(Reth {
                va: 0,
                rkey: KEY,
                len: 8,
            });
            let packet = Packet {
                header,
                payload: &[1; 1024][..len],
            };
            let now = Instant::from_nanos(1);
            qp.handle_packet(now, &packet, None, &mut memory);
            let answer = qp.poll_transmit(now, AckMode::Flush, &mut memory);
            let syndrome = answer.and_then(|answer| answer.header.aeth).unwrap();
            let invalid = Syndrome::Nak(NakCode::InvalidRequest);
            assert_eq!(syndrome.syndrome, invalid, "{len}");
            assert!(memory.bytes.iter().all(|byte| *byte == 0), "{len}");
        }
    }

    #[test]
    fn a_datagram_with_another_qkey_takes_no_receive() {
        let mut qp = connected(QpType::Ud, false);
        let mut memory = Region::new();
        post(&mut qp);
        let mut arrives = |qkey| {
            let opcode = Opcode::new(Transport::Ud, Operation::SendOnly);
            let mut header = Header::new(Bth::new(opcode, Qpn::new(2), Psn::new(0)));
            header.deth = Some(Deth {
                qkey,
                src_qp: Qpn::new(3),
            });
            let packet = Packet {
                header,
                payload: &[1; 16],
            };
            qp.handle_datagram(&packet, &[0; GRH_BYTES], None, &mut memory);
            qp.poll_completion().is_some()
        };
        assert!(!arrives(QKEY + 1));
        assert!(!arrives(0));
        assert!(arrives(QKEY));
    }
}
