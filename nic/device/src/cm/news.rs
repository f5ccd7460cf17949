//! Messages of communication management, as events of identifiers, and parameters, as messages.

use urxe_cm::{Event, IpHeader, Rep, Req, Service, ServiceId, SidrRep, SidrStatus};
use urxe_wire::{Gid, Qpn};

use super::id::{
    CmAddress, CmEventKind, CmParam, CmQpType, ConnectionParam, DatagramParam, Id, State,
};

pub(super) fn with_header(header: &IpHeader, data: &[u8]) -> Vec<u8> {
    [&header.emit(), data].concat()
}

pub(super) fn type_of(service: Service) -> CmQpType {
    match service {
        Service::Uc => CmQpType::Uc,
        Service::Xrc => CmQpType::XrcTarget,
        Service::Rc | Service::Other(_) => CmQpType::Rc,
    }
}

pub(super) fn requested(req: &Req) -> ConnectionParam {
    ConnectionParam {
        qp_num: req.qpn.get(),
        qkey: 0,
        private_data: req.private_data[IpHeader::LEN..].to_vec(),
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        flow_control: req.flow_control,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.srq,
    }
}

pub(super) fn replied(rep: &Rep) -> ConnectionParam {
    ConnectionParam {
        qp_num: rep.qpn.get(),
        qkey: 0,
        private_data: rep.private_data.to_vec(),
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.flow_control,
        retry_count: 0,
        rnr_retry_count: rep.rnr_retry_count,
        srq: rep.srq,
    }
}

pub(super) fn datagram(qp_num: u32, qkey: u32, address: Option<CmAddress>, data: &[u8]) -> CmParam {
    CmParam::Datagram(Box::new(DatagramParam {
        qp_num,
        qkey,
        address,
        private_data: data.to_vec(),
    }))
}

pub(super) fn resolution(
    status: SidrStatus,
    qp_num: u32,
    qkey: u32,
    private_data: [u8; SidrRep::PRIVATE_LEN],
) -> SidrRep {
    SidrRep {
        request_id: 0,
        status,
        info_len: 0,
        qpn: Qpn::new(qp_num),
        service_id: ServiceId(0),
        qkey,
        info: [0; SidrRep::INFO_LEN],
        private_data,
    }
}

/// What an event of an exchange means to an identifier.
pub(super) struct News {
    pub(super) kind: CmEventKind,
    pub(super) param: CmParam,
    pub(super) status: i32,
    /// The identifier's from now on, if it changes.
    pub(super) state: Option<State>,
}

pub(super) fn news_of(entry: &Id, event: Event) -> News {
    let mut state = None;
    let mut status = 0;
    let of = |param: ConnectionParam| CmParam::Connection(Box::new(param));
    let with = |private_data: &[u8]| {
        of(ConnectionParam {
            private_data: private_data.to_vec(),
            ..ConnectionParam::default()
        })
    };
    let (kind, param) = match event {
        Event::Request(req) => (CmEventKind::ConnectRequest, of(requested(&req))),
        Event::Resolve(req) => {
            let data = &req.private_data[IpHeader::LEN..];
            let param = datagram(0, 0, None, data);
            (CmEventKind::ConnectRequest, param)
        }
        Event::Reply(rep) => (CmEventKind::ConnectResponse, of(replied(&rep))),
        Event::Resolved(rep) if rep.status == SidrStatus::SUCCESS => {
            state = Some(State::Connected);
            let remote = entry.destination.map(|to| Gid::from(to.ip()));
            let address = remote.and_then(|gid| entry.address_of(gid));
            let param = datagram(rep.qpn.get(), rep.qkey, address, &rep.private_data);
            (CmEventKind::Established, param)
        }
        Event::Resolved(rep) => {
            state = Some(State::Disconnected);
            status = rep.status.0.into();
            // REJ stands for a missing listener in the kernel, and for the refusal of a program.
            (
                CmEventKind::Unreachable,
                datagram(0, 0, None, &rep.private_data),
            )
        }
        Event::Ready(private_data) => {
            state = Some(State::Connected);
            (CmEventKind::Established, with(&private_data[..]))
        }
        Event::Rejected(rej) => {
            state = Some(State::Disconnected);
            status = rej.reason.0.into();
            (CmEventKind::Rejected, with(&rej.private_data[..]))
        }
        Event::Unreachable => {
            state = Some(State::Disconnected);
            status = -libc::ETIMEDOUT;
            (CmEventKind::Unreachable, CmParam::None)
        }
        Event::Disconnected => {
            state = Some(State::Disconnected);
            (CmEventKind::Disconnected, CmParam::None)
        }
        Event::TimeWaitExit => (CmEventKind::TimeWaitExit, CmParam::None),
    };
    News {
        kind,
        param,
        status,
        state,
    }
}
