//! Any sequence of packets to a connected queue pair that has requests of its own in flight: it never
//! panics, its state stays consistent, no packet reaches memory outside of the one region, and what it
//! wants to send can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use urxe_proto::{
    AccessError, AckMode, AtomicOp, AttrMask, Attributes, Capacity, Instant, LocalAccess, Memory,
    PdId, QpState, QueuePair, RecvRequest, RemoteAccess, RemoteRange, SendData, SendOp,
    SendRequest, Sge,
};
use urxe_wire::{MAX_HEADER_LEN, Packet, Psn, Qpn, Transport};

const KEY: u32 = 7;
const PD: PdId = PdId(1);

/// One region of 4 KiB at address 0.
struct Region(Vec<u8>);

impl Region {
    fn range(&self, key: u32, at: u64, len: usize) -> Result<std::ops::Range<usize>, AccessError> {
        if key != KEY {
            return Err(AccessError::UnknownKey);
        }
        let at = usize::try_from(at).map_err(|_| AccessError::OutOfBounds)?;
        let end = at.checked_add(len).filter(|end| *end <= self.0.len());
        Ok(at..end.ok_or(AccessError::OutOfBounds)?)
    }
}

impl Memory for Region {
    fn check_local(&self, _: PdId, sge: &Sge, _: LocalAccess) -> Result<(), AccessError> {
        self.range(sge.lkey, sge.addr, sge.len as usize).map(drop)
    }
    fn check_remote(&self, _: PdId, r: RemoteRange, _: RemoteAccess) -> Result<(), AccessError> {
        self.range(r.rkey, r.va, r.len as usize).map(drop)
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
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }
    fn read_local(&self, _: PdId, sge: &Sge, at: u32, out: &mut [u8]) -> Result<(), AccessError> {
        out.copy_from_slice(&self.0[self.range(sge.lkey, sge.addr + u64::from(at), out.len())?]);
        Ok(())
    }
    fn write_remote(&mut self, _: PdId, r: RemoteRange, bytes: &[u8]) -> Result<(), AccessError> {
        assert_eq!(r.len as usize, bytes.len());
        let range = self.range(r.rkey, r.va, bytes.len())?;
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }
    fn atomic(&mut self, _: PdId, rkey: u32, va: u64, _: AtomicOp) -> Result<u64, AccessError> {
        if !va.is_multiple_of(8) {
            return Err(AccessError::Misaligned);
        }
        self.range(rkey, va, 8).map(|_| 0)
    }
    fn invalidate(&mut self, _: PdId, _: u32) -> Result<(), AccessError> {
        Err(AccessError::Denied)
    }
}

fn connected() -> QueuePair {
    let capacity = Capacity {
        send_requests: 16,
        recv_requests: 16,
        send_sges: 2,
        recv_sges: 2,
        inline_bytes: 64,
    };
    let mut qp = QueuePair::new(Qpn::new(2), PD, Transport::Rc, capacity);
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
        ..Attributes::new()
    };
    let steps = [
        (
            QpState::Init,
            AttrMask::PKEY_INDEX | AttrMask::PORT | AttrMask::ACCESS_FLAGS,
        ),
        (
            QpState::ReadyToReceive,
            AttrMask::ADDRESS_VECTOR
                | AttrMask::PATH_MTU
                | AttrMask::DEST_QPN
                | AttrMask::RQ_PSN
                | AttrMask::MAX_DEST_RD_ATOMIC
                | AttrMask::MIN_RNR_TIMER,
        ),
        (
            QpState::ReadyToSend,
            AttrMask::TIMEOUT
                | AttrMask::RETRY_COUNT
                | AttrMask::RNR_RETRY
                | AttrMask::SQ_PSN
                | AttrMask::MAX_RD_ATOMIC,
        ),
    ];
    for (state, mask) in steps {
        let wanted = Attributes {
            state,
            ..wanted.clone()
        };
        qp.modify(&wanted, mask | AttrMask::STATE)
            .expect("a legal transition");
    }
    qp
}

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
    let requests = [
        (SendOp::Send, &sges),
        (SendOp::Read { va, rkey }, &sges),
        (SendOp::FetchAdd { va, rkey, add: 1 }, &small),
        (SendOp::Write { va, rkey }, &sges),
    ];
    for (wr_id, (op, sges)) in (0..).zip(requests) {
        let data = SendData::Sges(sges);
        let request = SendRequest {
            wr_id,
            op,
            data,
            signaled: true,
            solicited: false,
            fence: false,
        };
        qp.post_send(&request).expect("there is room");
    }
    for wr_id in 0..4 {
        qp.post_recv(&RecvRequest { wr_id, sges: &sges })
            .expect("there is room");
    }
}

fn drain(qp: &mut QueuePair, now: Instant, memory: &Region) {
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

// The input is a list of packets, each behind its length (two bytes) and a pause before it (one byte, ms).
fuzz_target!(|bytes: &[u8]| {
    let (mut qp, mut memory) = (connected(), Region(vec![0; 4096]));
    post(&mut qp);
    let (mut now, mut rest) = (Instant::from_nanos(1), bytes);
    drain(&mut qp, now, &memory);
    while let [low, high, pause, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high]) & 0x7ff).min(tail.len());
        let (packet, after) = tail.split_at(len);
        rest = after;
        now = now.after(u64::from(*pause) * 1_000_000);
        qp.handle_timeout(now);
        if let Ok(packet) = Packet::parse(packet) {
            qp.handle_packet(now, &packet, &mut memory);
        }
        drain(&mut qp, now, &memory);
        qp.check_invariants();
    }
});
