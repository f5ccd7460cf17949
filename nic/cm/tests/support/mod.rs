//! Messages between two hosts.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use urxe_cm::*;
use urxe_wire::{Gid, Mtu, Psn, Qpn};

/// The way to the other one of two hosts, 0 and 1.
pub fn path(from: usize) -> Path {
    let gid = |host: usize| Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host as u8 + 1));
    Path {
        link: 1,
        local: gid(from),
        remote: gid(1 - from),
        port: 4791,
        from: None,
    }
}

/// A request for a connection with this queue pair.
pub fn request(qpn: u32) -> Req {
    Req {
        local_comm_id: 0,
        service_id: ServiceId::of(PortSpace::Tcp, 7),
        ca_guid: 1,
        qkey: 0,
        qpn: Qpn::new(qpn),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: 0,
        service: Service::Rc,
        flow_control: false,
        starting_psn: Psn::new(qpn),
        local_response_timeout: 0,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: Some(Mtu::B1024),
        rnr_retry_count: 7,
        max_retries: 0,
        srq: false,
        local_gid: path(0).local,
        remote_gid: path(0).remote,
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 64,
        service_level: 0,
        ack_timeout: 17,
        private_data: [0; Req::PRIVATE_LEN],
    }
}

/// The answer to one.
pub fn reply(qpn: u32) -> Rep {
    Rep {
        local_comm_id: 0,
        remote_comm_id: 0,
        qkey: 0,
        qpn: Qpn::new(qpn),
        eecn: 0,
        starting_psn: Psn::new(qpn),
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
