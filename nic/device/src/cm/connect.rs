//! Connections and datagram services: what a program asks for, and what becomes of it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use urxe_cm::{
    ACK_DELAY, Event, IpHeader, Mad, Manager, Message, Path, Rej, RejectReason, Rep, Req, Rtu,
    Service, ServiceId, SidrReq, SidrStatus, ack_timeout_code, padded,
};
use urxe_wire::{DEFAULT_PKEY, Gid, Psn, Qpn, ROCE_UDP_PORT};

use super::agent::{Inner, errno};
use super::id::{
    Bound, CmAddress, CmEvent, CmEventKind, CmParam, CmQpAttributes, CmQpType, ConnectionParam, Id,
    ReliableSender, SLOT_SHIFT, State,
};
use super::news::{News, news_of, resolution, type_of, with_header};
use super::relay;
use crate::process::random::random_u32;
use urxe_proto::QpState;

/// Requests that a listener keeps for its program where that does not say, and at most.
const BACKLOG_MAX: u32 = 1024;

impl Inner {
    // ---- commands ----------------------------------------------------------------------------

    pub(super) fn connect(&mut self, id: u32, param: &ConnectionParam) -> io::Result<()> {
        if Self::is_stream(self.id(id)?.device.as_ref()) {
            return self.connect_stream(id, param);
        }
        let now_ns = self.now_ns;
        let entry = self.in_state(id, &[State::RouteResolved])?;
        let invalid = || errno(libc::EINVAL);
        let (Some(source), Some(destination), Some(device)) =
            (entry.source, entry.destination, entry.device.clone())
        else {
            return Err(invalid());
        };
        let header = IpHeader {
            source: source.ip(),
            source_port: source.port(),
            destination: destination.ip(),
        };
        let data = with_header(&header, &param.private_data);
        let service_id = ServiceId::of(entry.space, destination.port());
        let path = path_to(device.info.ifindex, source, destination);
        if entry.is_datagram() {
            let request = SidrReq {
                request_id: 0,
                pkey: DEFAULT_PKEY.0,
                service_id,
                private_data: padded(&data).ok_or_else(invalid)?,
            };
            let comm = self.fresh_comm(&device)?;
            self.manager.resolve(now_ns, comm, path, request);
            return self.begin(id, comm);
        }
        let request = Req {
            local_comm_id: 0,
            service_id,
            ca_guid: u64::from_be_bytes(device.info.guid),
            qkey: 0,
            qpn: Qpn::new(param.qp_num),
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            remote_response_timeout: 0,
            service: match entry.qp_type {
                CmQpType::Uc => Service::Uc,
                CmQpType::XrcInitiator => Service::Xrc,
                _ => Service::Rc,
            },
            flow_control: param.flow_control,
            starting_psn: entry.psn,
            local_response_timeout: 0,
            retry_count: param.retry_count.min(7),
            pkey: DEFAULT_PKEY.0,
            path_mtu: Some(device.info.active_mtu()),
            rnr_retry_count: param.rnr_retry_count.min(7),
            max_retries: 0,
            srq: param.srq,
            local_gid: path.local,
            remote_gid: path.remote,
            flow_label: 0,
            packet_rate: 0,
            traffic_class: entry.traffic_class,
            hop_limit: CmAddress::HOP_LIMIT,
            service_level: 0,
            ack_timeout: entry.ack_timeout.unwrap_or(ack_timeout_code(ACK_DELAY)),
            private_data: padded(&data).ok_or_else(invalid)?,
        };
        let comm = self.fresh_comm(&device)?;
        self.manager.connect(now_ns, comm, path, request);
        self.begin(id, comm)
    }

    fn begin(&mut self, id: u32, comm: u32) -> io::Result<()> {
        self.by_comm.insert(comm, id);
        let entry = self.id(id)?;
        entry.comm = Some(comm);
        entry.state = State::Connecting;
        Ok(())
    }

    pub(super) fn listen(&mut self, id: u32, backlog: u32) -> io::Result<()> {
        let entry = self.in_state(id, &[State::Idle, State::Bound, State::Listening])?;
        if entry.state == State::Idle {
            let any = SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, 0));
            self.bind(id, any)?;
        }
        let entry = self.id(id)?;
        let source = entry.source.ok_or_else(|| errno(libc::EOPNOTSUPP))?;
        let (space, device) = (entry.space, entry.device.clone());
        let is_taken = self.listening().any(|(other, entry)| {
            other != id && entry.space == space && entry.source == Some(source)
        });
        if is_taken {
            return Err(errno(libc::EADDRINUSE));
        }
        let is_stream = Self::is_stream(device.as_ref());
        match device {
            _ if is_stream => self.listen_stream(id, source)?,
            Some(device) => {
                self.open_door(&device.info)?;
            }
            None => self.open_doors(),
        }
        let entry = self.id(id)?;
        if entry.requests.is_none() && !is_stream {
            let requests = relay::bind_listener(space, source.port(), source.ip())?;
            self.watch.add_reader(&*requests)?;
            self.id(id)?.requests = Some(Arc::new(requests));
        }
        let entry = self.id(id)?;
        entry.state = State::Listening;
        entry.backlog = if (1..BACKLOG_MAX).contains(&backlog) {
            backlog
        } else {
            BACKLOG_MAX
        };
        self.listeners.insert(id);
        self.is_stale = true;
        Ok(())
    }

    /// Says yes to a request, or, with `param` absent, confirms a reply.
    pub(super) fn accept(
        &mut self,
        id: u32,
        uid: Option<u64>,
        param: Option<&ConnectionParam>,
    ) -> io::Result<()> {
        let now_ns = self.now_ns;
        let entry = self.in_state(id, &[State::Connecting])?;
        if let Some(uid) = uid {
            entry.uid = uid;
        }
        if Self::is_stream(entry.device.as_ref()) {
            return self.accept_stream(id, param.ok_or_else(|| errno(libc::EINVAL))?);
        }
        let comm = entry.comm.ok_or_else(|| errno(libc::EINVAL))?;
        if !entry.is_passive {
            self.manager
                .ready(comm, [0; Rtu::PRIVATE_LEN])
                .map_err(|_| errno(libc::EINVAL))?;
            self.id(id)?.state = State::Connected;
            return Ok(());
        }
        let param = param.ok_or_else(|| errno(libc::EINVAL))?;
        let invalid = || errno(libc::EINVAL);
        if entry.is_datagram() {
            let qkey = if param.qkey == 0 {
                entry.qkey
            } else {
                param.qkey
            };
            let private_data = padded(&param.private_data).ok_or_else(invalid)?;
            let rep = resolution(SidrStatus::SUCCESS, param.qp_num, qkey, private_data);
            self.manager
                .answer_resolution(now_ns, comm, rep)
                .map_err(|_| errno(libc::EINVAL))?;
            self.id(id)?.state = State::Connected;
            return Ok(());
        }
        let device = entry.device.clone().ok_or_else(invalid)?;
        let rep = Rep {
            local_comm_id: 0,
            remote_comm_id: 0,
            qkey: 0,
            qpn: Qpn::new(param.qp_num),
            eecn: if entry.qp_type == CmQpType::XrcTarget {
                param.qp_num
            } else {
                0
            },
            starting_psn: entry.psn,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            ack_delay: ACK_DELAY,
            failover: 0,
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count.min(7),
            srq: param.srq,
            ca_guid: u64::from_be_bytes(device.info.guid),
            private_data: padded(&param.private_data).ok_or_else(invalid)?,
        };
        self.manager
            .accept(now_ns, comm, rep)
            .map_err(|_| errno(libc::EINVAL))
    }

    pub(super) fn reject(&mut self, id: u32, reason: u8, private_data: &[u8]) -> io::Result<()> {
        let now_ns = self.now_ns;
        let entry = self.in_state(id, &[State::Connecting])?;
        if Self::is_stream(entry.device.as_ref()) {
            return self.reject_stream(id, private_data);
        }
        let comm = entry.comm.ok_or_else(|| errno(libc::EINVAL))?;
        let is_datagram = entry.is_datagram();
        let invalid = || errno(libc::EINVAL);
        let outcome = if is_datagram {
            let data = padded(private_data).ok_or_else(invalid)?;
            let rep = resolution(SidrStatus::REJECT, 0, 0, data);
            self.manager.answer_resolution(now_ns, comm, rep)
        } else {
            let reason = match reason {
                0 => RejectReason::CONSUMER,
                reason => RejectReason(reason.into()),
            };
            if ![RejectReason::CONSUMER, RejectReason::VENDOR_OPTION].contains(&reason) {
                return Err(invalid());
            }
            let data: [u8; Rej::PRIVATE_LEN] = padded(private_data).ok_or_else(invalid)?;
            self.manager.reject(comm, reason, data)
        };
        outcome.map_err(|_| invalid())?;
        self.id(id)?.state = State::Disconnected;
        Ok(())
    }

    pub(super) fn disconnect(&mut self, id: u32) -> io::Result<()> {
        let now_ns = self.now_ns;
        let states = [State::Connecting, State::Connected, State::Disconnected];
        let entry = self.in_state(id, &states)?;
        if Self::is_stream(entry.device.as_ref()) {
            return self.disconnect_stream(id);
        }
        if let Some(comm) = entry.comm.filter(|_| entry.state != State::Disconnected) {
            entry.state = State::Disconnected;
            let _ = self.manager.disconnect(now_ns, comm);
        }
        Ok(())
    }

    /// Data came on the queue pair of a connection that waits for its peer to be ready.
    pub(super) fn notify_established(&mut self, id: u32) -> io::Result<()> {
        let entry = self.in_state(id, &[State::Connecting, State::Connected])?;
        // The peer's word for it may come first, which programs may ignore (`man rdma_notify`).
        let reason = if entry.state == State::Connected {
            libc::EISCONN
        } else {
            libc::EINVAL
        };
        let comm = entry.comm.ok_or_else(|| errno(libc::EINVAL))?;
        self.manager
            .notify_established(comm)
            .map_err(|_| errno(reason))
    }

    /// What a queue pair that goes to `state` has to be set to.
    pub(super) fn qp_attributes(&mut self, id: u32, state: QpState) -> io::Result<CmQpAttributes> {
        let entry = self.id(id)?;
        let invalid = || errno(libc::EINVAL);
        if entry.device.is_none() {
            return Err(invalid());
        }
        if Self::is_stream(entry.device.as_ref()) {
            return Ok(Self::stream_qp_attributes(entry, state));
        }
        let unconnected = CmQpAttributes::Unconnected {
            qkey: entry.is_datagram().then_some(entry.qkey),
        };
        let Some(comm) = entry.comm.filter(|_| !entry.is_datagram()) else {
            return Ok(unconnected);
        };
        let (qp_type, is_passive, own_timeout) =
            (entry.qp_type, entry.is_passive, entry.ack_timeout);
        let parameters = *self.manager.parameters(comm).ok_or_else(invalid)?;
        let entry = self.id(id)?;
        let is_answered = |manager: &Manager| is_passive || manager.has_answer(comm);
        let takes_reads = matches!(qp_type, CmQpType::Rc | CmQpType::XrcTarget);
        let makes_reads = matches!(qp_type, CmQpType::Rc | CmQpType::XrcInitiator);
        let active_mtu = entry.device.as_ref().map(|device| device.info.active_mtu());
        let address = entry
            .address_of(parameters.path.remote)
            .ok_or_else(invalid)?;
        let address = CmAddress {
            traffic_class: parameters.traffic_class,
            ..address
        };
        match state {
            QpState::Init => Ok(CmQpAttributes::Init {
                allow_read: parameters.responder_resources > 0,
            }),
            QpState::ReadyToReceive if is_answered(&self.manager) => {
                Ok(CmQpAttributes::ReadyToReceive {
                    address,
                    path_mtu: active_mtu
                        .map_or(parameters.path_mtu, |mtu| mtu.min(parameters.path_mtu)),
                    dest_qp: parameters.remote_qpn,
                    rq_psn: parameters.rq_psn,
                    max_dest_rd_atomic: takes_reads.then_some(parameters.responder_resources),
                })
            }
            QpState::ReadyToSend if is_answered(&self.manager) => Ok(CmQpAttributes::ReadyToSend {
                sq_psn: parameters.sq_psn,
                reliable: makes_reads.then_some(ReliableSender {
                    max_rd_atomic: parameters.initiator_depth,
                    retry_count: parameters.retry_count,
                    rnr_retry_count: parameters.rnr_retry_count,
                }),
                timeout: (makes_reads || takes_reads)
                    .then_some(own_timeout.unwrap_or(parameters.ack_timeout)),
            }),
            _ => Err(invalid()),
        }
    }

    // ---- what peers do -----------------------------------------------------------------------

    /// The listener that a request is for.
    pub(super) fn listener_for(&self, path: &Path, service_id: ServiceId) -> Option<u32> {
        let (space, port) = service_id.port()?;
        let address = path.local.to_ip();
        let covering = self.listening().filter(|(_, id)| {
            let is_its_device = id
                .device
                .as_ref()
                .is_none_or(|d| d.info.ifindex == path.link);
            is_its_device && id.listens_on(space, port, address)
        });
        // One that listens on this very address comes before one that listens on all.
        covering
            .max_by_key(|(_, id)| id.source.is_some_and(|source| source.ip() == address))
            .map(|(number, _)| number)
    }

    /// Takes a request in for a listener that has room for it; drops it else, so that the peer asks
    /// again.
    pub(super) fn admit(&mut self, listener: u32, path: Path, mad: &Mad) -> io::Result<()> {
        let now_ns = self.now_ns;
        let entry = self.id(listener)?;
        if entry.pending >= entry.backlog {
            return Ok(());
        }
        let (file, space, uid) = (entry.file, entry.space, entry.uid);
        let local_port = entry.source.map_or(0, |source| source.port());
        let local = crate::attach::gid_entry::socket_address(path.local, path.link, local_port);
        // Not by listing the devices: this may be on the way of a packet.
        let door = self.door(path.link);
        let Some(device) = door.and_then(|door| door.bound_to(path.local)) else {
            return Ok(());
        };
        let (private_data, qp_type): (&[u8], _) = match &mad.message {
            Message::Req(req) => (&req.private_data, type_of(req.service)),
            Message::SidrReq(req) => (&req.private_data, CmQpType::Ud),
            _ => return Ok(()),
        };
        let header = IpHeader::parse(private_data);
        let comm = self.fresh_comm(&device)?;
        self.manager.handle_mad(now_ns, path, mad, comm);
        if self.manager.is_free(comm) {
            // Refused: a queue pair that is in another connection.
            return Ok(());
        }
        let number = self.fresh_number();
        let psn = random_psn()?;
        let _ = self.manager.prepare_accept(comm, psn);
        let mut id = Id::new(file, uid, space, qp_type, psn);
        id.state = State::Connecting;
        id.is_passive = true;
        id.listener = Some(listener);
        id.comm = Some(comm);
        id.source = Some(local);
        let remote_port = header.map_or(0, |header| header.source_port);
        id.destination = Some(crate::attach::gid_entry::socket_address(
            path.remote,
            path.link,
            remote_port,
        ));
        id.traffic_class = self.manager.parameters(comm).map_or(0, |p| p.traffic_class);
        id.device = Some(device);
        self.ids.insert(number, id);
        self.by_comm.insert(comm, number);
        self.id(listener)?.pending += 1;
        Ok(())
    }

    /// Turns what happened to an exchange into an event of its identifier.
    pub(super) fn handle_exchange_event(&mut self, comm: u32, event: Event) {
        let Some(&id) = self.by_comm.get(&comm) else {
            return;
        };
        let Some(entry) = self.ids.get_mut(&id) else {
            return;
        };
        let is_over = matches!(
            event,
            Event::Rejected(_) | Event::Unreachable | Event::TimeWaitExit
        );
        let News {
            kind,
            param,
            status,
            state,
        } = news_of(entry, event);
        if let Some(state) = state {
            entry.state = state;
        }
        if is_over {
            self.by_comm.remove(&comm);
            entry.comm = None;
        }
        if kind == CmEventKind::ConnectRequest {
            self.requested_of_listener(id, param);
        } else {
            self.push(id, kind, status, param);
        }
    }

    pub(super) fn requested_of_listener(&mut self, id: u32, param: CmParam) {
        let Some((listener, entry)) = self
            .ids
            .get(&id)
            .and_then(|entry| entry.listener)
            .and_then(|listener| Some((listener, self.ids.get(&listener)?)))
        else {
            return;
        };
        let event = CmEvent {
            uid: entry.uid,
            id,
            kind: CmEventKind::ConnectRequest,
            status: 0,
            param,
            of: listener,
        };
        self.push_to(entry.file, event);
    }

    // ---- numbers -----------------------------------------------------------------------------

    /// A communication ID that nothing has. It begins with the slot, so that the process that holds
    /// port 4791 knows whose it is, and is random otherwise, so that no other program does.
    fn fresh_comm(&mut self, device: &Bound) -> io::Result<u32> {
        let slot = u32::from(self.open_door(&device.info)?);
        loop {
            let random = random_u32().map_err(|_| errno(libc::EAGAIN))?;
            let comm = slot << SLOT_SHIFT | random >> (32 - SLOT_SHIFT);
            if self.manager.is_free(comm) {
                return Ok(comm);
            }
        }
    }
}

fn path_to(link: u32, source: SocketAddr, destination: SocketAddr) -> Path {
    Path {
        link,
        local: Gid::from(source.ip()),
        remote: Gid::from(destination.ip()),
        port: ROCE_UDP_PORT,
        from: None,
    }
}

pub(super) fn random_psn() -> io::Result<Psn> {
    random_u32().map(Psn::new).map_err(|_| errno(libc::EAGAIN))
}
