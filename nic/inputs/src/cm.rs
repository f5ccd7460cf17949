//! Any sequence of communication management datagrams to a manager that listens, connects, accepts,
//! rejects and resolves meanwhile: it never panics, what it sends is well-formed, and it comes to
//! rest.

use std::net::Ipv4Addr;

use urxe_cm::{
    ACK_DELAY, Event, MAD_LEN, Mad, Manager, Path, PortSpace, RejectReason, Rep, Req, Rtu, Service,
    ServiceId, SidrReq,
};
use urxe_wire::{Gid, Mtu, Psn, Qpn};

const MS: u64 = 1_000_000;
/// All that it repeats, and all it waits for, ends within this.
const BOUND_NS: u64 = 400_000 * MS;
/// IDs of exchanges that peers begin.
const FIRST_ID: u32 = 1_000;

fn path() -> Path {
    Path {
        link: 1,
        local: Gid::from(Ipv4Addr::new(10, 0, 0, 1)),
        remote: Gid::from(Ipv4Addr::new(10, 0, 0, 2)),
        port: 4791,
        from: None,
    }
}

fn request() -> Req {
    Req {
        local_comm_id: 0,
        service_id: ServiceId::of(PortSpace::Tcp, 7),
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::new(17),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 0,
        service: Service::Rc,
        flow_control: false,
        starting_psn: Psn::new(5),
        local_response_timeout: 0,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: Some(Mtu::B1024),
        rnr_retry_count: 7,
        max_retries: 0,
        srq: false,
        local_gid: path().local,
        remote_gid: path().remote,
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        ack_timeout: 17,
        private_data: [0; Req::PRIVATE_LEN],
    }
}

fn reply() -> Rep {
    Rep {
        local_comm_id: 0,
        remote_comm_id: 0,
        qkey: 0,
        qpn: Qpn::new(18),
        eecn: 0,
        starting_psn: Psn::new(6),
        responder_resources: 1,
        initiator_depth: 1,
        ack_delay: ACK_DELAY,
        failover: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: 2,
        private_data: [0; Rep::PRIVATE_LEN],
    }
}

struct Host {
    manager: Manager,
    now_ns: u64,
    next_id: u32,
    /// Bits that say what the program does next.
    choices: u8,
}

impl Host {
    fn choice(&mut self) -> bool {
        self.choices = self.choices.rotate_right(1);
        self.choices & 1 == 1
    }

    /// What the program does about what happened, and what is sent.
    fn settle(&mut self) {
        while let Some((id, event)) = self.manager.poll_event() {
            // Commands that do not fit any more are errors, not panics.
            let _ = match event {
                Event::Request(_) if self.choice() => self.manager.accept(self.now_ns, id, reply()),
                Event::Request(_) => {
                    let data = [0; urxe_cm::Rej::PRIVATE_LEN];
                    self.manager.reject(id, RejectReason::CONSUMER, data)
                }
                Event::Reply(_) if self.choice() => self.manager.ready(id, [0; Rtu::PRIVATE_LEN]),
                Event::Ready(_) if self.choice() => self.manager.disconnect(self.now_ns, id),
                Event::Reply(_) => {
                    self.manager.abandon(self.now_ns, id);
                    Ok(())
                }
                _ => Ok(()),
            };
        }
        while let Some(transmit) = self.manager.poll_transmit() {
            Mad::parse(&transmit.mad[..]).expect("what is sent is well-formed");
        }
    }

    fn wait(&mut self, nanos: u64) {
        let end_ns = self.now_ns + nanos;
        while let Some(at) = self.manager.poll_timeout().filter(|at| *at <= end_ns) {
            self.now_ns = at.max(self.now_ns);
            self.manager.handle_timeout(self.now_ns);
            self.settle();
        }
        self.now_ns = end_ns;
    }
}

/// The input is a byte of choices and a list of datagrams, each behind a pause (one byte, ms) and
/// its length (one byte). What is missing of 256 bytes is zero, and the head is always right, so
/// that more of them are understood.
pub fn run(bytes: &[u8]) {
    let Some((choices, mut rest)) = bytes.split_first() else {
        return;
    };
    let mut host = Host {
        manager: Manager::default(),
        now_ns: 0,
        next_id: FIRST_ID,
        choices: *choices,
    };
    host.manager.connect(0, 1, path(), request());
    host.manager.connect(0, 2, path(), request());
    let question = SidrReq {
        request_id: 0,
        pkey: 0xffff,
        service_id: ServiceId::of(PortSpace::Udp, 9),
        private_data: [0; SidrReq::PRIVATE_LEN],
    };
    host.manager.resolve(0, 3, path(), question);
    host.settle();
    while let [pause, len, tail @ ..] = rest {
        let (some, after) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = after;
        host.wait(u64::from(*pause) * MS);
        let mut raw = [0; MAD_LEN];
        raw[..some.len()].copy_from_slice(some);
        raw[..4].copy_from_slice(&[1, 7, 2, 3]);
        let Ok(mad) = Mad::parse(&raw) else { continue };
        let fresh = host.next_id;
        host.next_id += 1;
        host.manager.handle_mad(host.now_ns, path(), &mad, fresh);
        host.settle();
    }
    host.wait(BOUND_NS);
    // Connections that stand, and questions that the program did not answer, are all that is left:
    // no timer runs.
    assert_eq!(host.manager.poll_timeout(), None, "it never comes to rest");
}
