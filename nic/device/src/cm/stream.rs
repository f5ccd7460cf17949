//! Connections of iWARP devices: what a program asks for, and what becomes of it. Events and their
//! statuses are those that the kernel's rdma_cm has of iWARP devices.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use urxe_iwarp::{Offer, SetupError};
use urxe_proto::{Instant, QpState};
use urxe_wire::Qpn;

use super::address::with_port;
use super::agent::{Agent, Inner, errno};
use super::exchange::{Established, Exchange, Failure, Progress, bound, canonical, listen};
use super::id::{
    Bound, CmEventKind, CmParam, CmQpAttributes, CmQpType, ConnectionParam, Id, State,
};
use crate::attach::kind::DeviceKind;
use crate::nic::Nic;
use crate::nic::opened::opened;
use crate::process::error::Error;
use crate::stream::StreamConnection;

/// Connections of a listener that are taken in at a time.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections that wait in the kernel to be taken in.
const KERNEL_BACKLOG: libc::c_int = 1024;
/// Private data of an event, at most (`struct rdma_ucm_conn_param`).
const EVENT_DATA_MAX: usize = 255;

/// A connection of a device's has ended; told with the engine's lock held.
pub(crate) fn stream_ended(id: u32) {
    if let Some(agent) = Agent::existing() {
        agent.note_ended(id);
    }
}

fn invalid() -> io::Error {
    errno(libc::EINVAL)
}

/// The opened device that has an iWARP queue pair of this number, and its state.
fn device_of(number: Qpn) -> Option<(Arc<Nic>, QpState)> {
    let mut devices = opened().into_iter().filter(|nic| nic.is_iwarp());
    devices.find_map(|nic| {
        let state = nic.stream_state(number)?;
        Some((nic, state))
    })
}

/// The queue pair that a program names, if it can have a connection.
fn check_queue_pair(number: u32) -> io::Result<Qpn> {
    let number = Qpn::new(number);
    match device_of(number) {
        Some((_, QpState::Reset | QpState::Init)) => Ok(number),
        _ => Err(invalid()),
    }
}

fn offer(param: &ConnectionParam) -> Offer {
    Offer {
        wants_markers: false,
        wants_crc: true,
        ird: param.responder_resources.into(),
        ord: param.initiator_depth.into(),
        is_enhanced: true,
        // A program may send first at either end, as over RoCE.
        is_peer_to_peer: true,
    }
}

fn connection_param(private_data: &[u8], ird: u16, ord: u16) -> CmParam {
    let clamp = |count: u16| u8::try_from(count).unwrap_or(u8::MAX);
    CmParam::Connection(Box::new(ConnectionParam {
        private_data: private_data[..private_data.len().min(EVENT_DATA_MAX)].to_vec(),
        responder_resources: clamp(ird),
        initiator_depth: clamp(ord),
        ..ConnectionParam::default()
    }))
}

impl Inner {
    /// Whether an identifier is of an iWARP device, or will be.
    pub(super) fn is_stream(device: Option<&Bound>) -> bool {
        let kind = device.map(|device| device.info.kind);
        kind.unwrap_or_else(|| DeviceKind::of_process().unwrap_or_default()) == DeviceKind::Iwarp
    }

    // ---- commands ----------------------------------------------------------------------------

    pub(super) fn connect_stream(&mut self, id: u32, param: &ConnectionParam) -> io::Result<()> {
        let now = Instant::from_nanos(self.now_ns);
        let entry = self.in_state(id, &[State::RouteResolved])?;
        if entry.qp_type != CmQpType::Rc {
            return Err(errno(libc::EOPNOTSUPP));
        }
        let (Some(source), Some(destination)) = (entry.source, entry.destination) else {
            return Err(invalid());
        };
        // A port that the program has not asked for is TCP's to choose.
        let source = match entry.reservation {
            Some(_) => source,
            None => with_port(source, 0),
        };
        let qp = check_queue_pair(param.qp_num)?;
        entry.tcp = None;
        let addresses = (source, destination);
        let exchange =
            Exchange::connect(addresses, offer(param), &param.private_data, (id, qp), now)?;
        let key = self.exchanges.add(exchange, false)?;
        let entry = self.id(id)?;
        entry.exchange = Some(key);
        entry.state = State::Connecting;
        self.is_stale = true;
        Ok(())
    }

    /// Listens on the TCP port that the identifier is bound to.
    pub(super) fn listen_stream(&mut self, id: u32, source: SocketAddr) -> io::Result<()> {
        if self.id(id)?.qp_type != CmQpType::Rc {
            return Err(errno(libc::EOPNOTSUPP));
        }
        if self
            .exchanges
            .listeners
            .values()
            .any(|(other, _)| *other == id)
        {
            return Ok(());
        }
        let entry = self.id(id)?;
        let listener = match entry.tcp.take() {
            Some(kept) => kept,
            None => bound(source, entry.is_ipv6_only)?.into(),
        };
        listen(&listener, KERNEL_BACKLOG)?;
        self.exchanges.add_listener(id, listener)
    }

    pub(super) fn accept_stream(&mut self, id: u32, param: &ConnectionParam) -> io::Result<()> {
        let entry = self.in_state(id, &[State::Connecting])?;
        let key = entry.exchange.filter(|_| entry.is_passive);
        let exchange = key.and_then(|key| Some((key, self.exchanges.get_mut(key)?)));
        let (key, exchange) = exchange.ok_or_else(|| errno(libc::ECONNRESET))?;
        let qp = check_queue_pair(param.qp_num)?;
        let responder = exchange.responder().ok_or_else(invalid)?;
        responder
            .accept(&offer(param), &param.private_data)
            .map_err(|_| invalid())?;
        // Only now it is answered, and the program told by an event of what becomes of it.
        exchange.qp = qp;
        self.advance_stream(key);
        Ok(())
    }

    pub(super) fn reject_stream(&mut self, id: u32, private_data: &[u8]) -> io::Result<()> {
        let entry = self.in_state(id, &[State::Connecting])?;
        let key = entry.exchange.filter(|_| entry.is_passive);
        let key = key.ok_or_else(invalid)?;
        if let Some(exchange) = self.exchanges.get_mut(key) {
            let responder = exchange.responder().ok_or_else(invalid)?;
            responder.reject(private_data).map_err(|_| invalid())?;
            let entry = self.id(id)?;
            entry.state = State::Disconnected;
            entry.exchange = None;
            self.advance_stream(key);
        }
        Ok(())
    }

    pub(super) fn disconnect_stream(&mut self, id: u32) -> io::Result<()> {
        let states = [State::Connecting, State::Connected, State::Disconnected];
        let entry = self.in_state(id, &states)?;
        let is_connected = entry.state == State::Connected;
        if let Some(number) = entry.stream_qp.filter(|_| is_connected) {
            end_connection(number);
        }
        Ok(())
    }

    /// What a queue pair has to be set to: nothing, but for its state and what its peer may do.
    pub(super) fn stream_qp_attributes(entry: &Id, state: QpState) -> CmQpAttributes {
        CmQpAttributes::Stream {
            has_state: state != QpState::ReadyToSend,
            allow_access: entry.exchange.is_some() || entry.stream_qp.is_some(),
        }
    }

    /// Ends what a program's identifier is at, that is no more.
    pub(super) fn abandon_stream(&mut self, id: u32, entry: &Id) {
        self.exchanges.forget(id);
        if let Some(number) = entry.stream_qp.filter(|_| entry.state == State::Connected) {
            end_connection(number);
        }
    }

    // ---- what peers do -----------------------------------------------------------------------

    /// Looks at the sockets.
    pub(super) fn turn_streams(&mut self) {
        let now = Instant::from_nanos(self.now_ns);
        for key in self.exchanges.due(now) {
            if self.exchanges.listeners.contains_key(&key) {
                self.accept_connections(key);
            } else {
                self.advance_stream(key);
            }
        }
    }

    fn accept_connections(&mut self, key: u64) {
        let now = Instant::from_nanos(self.now_ns);
        for _ in 0..ACCEPTS_PER_TURN {
            let Some((id, listener)) = self.exchanges.listeners.get(&key) else {
                return;
            };
            let id = *id;
            match listener.accept() {
                Ok((stream, _)) => {
                    if let Ok(exchange) = Exchange::accepted(stream, id, now)
                        && let Ok(key) = self.exchanges.add(exchange, true)
                    {
                        self.advance_stream(key);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // One that was gone before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    log::warn!("a connection cannot be accepted: {error}");
                    return self.exchanges.rest(key, now);
                }
            }
        }
    }

    /// Goes on with an exchange as far as it goes.
    fn advance_stream(&mut self, key: u64) {
        let now = Instant::from_nanos(self.now_ns);
        let Some(exchange) = self.exchanges.get_mut(key) else {
            return;
        };
        let (is_new, progress) = exchange.advance(now);
        let (id, qp, addresses) = (exchange.id, exchange.qp, exchange.addresses());
        let is_asked = self.ids.get(&id).is_some_and(|id| id.exchange == Some(key));
        match progress {
            Progress::Pending => {
                self.exchanges.watch(key, is_new);
                if !is_asked {
                    self.admit_stream(key, addresses);
                }
            }
            Progress::Established(established) => {
                self.exchanges.remove(key);
                self.establish_stream(id, qp, addresses, *established);
            }
            Progress::Failed(failure) => {
                self.exchanges.remove(key);
                // One that the program has not answered yet tells it when it does.
                let is_answered = qp != Qpn::new(0);
                if is_asked && is_answered {
                    self.fail_stream(id, failure);
                } else if let Ok(entry) = self.id(id)
                    && is_asked
                {
                    entry.exchange = None;
                }
            }
        }
    }

    /// If the peer of an exchange has asked for a connection, its listener is told.
    fn admit_stream(&mut self, key: u64, (local, remote): (SocketAddr, SocketAddr)) {
        let Some(exchange) = self.exchanges.get_mut(key) else {
            return;
        };
        let listener = exchange.id;
        let Some(request) = exchange.responder().and_then(|side| side.request()) else {
            return;
        };
        // What the peer may have outstanding, this end is to answer, and the other way round.
        let (ird, ord) = (request.ord.unwrap_or(1), request.ird.unwrap_or(1));
        let param = connection_param(request.private_data, ird, ord);
        self.exchanges.note_heard(key);
        let (local, remote) = (canonical(local), canonical(remote));
        let device = self.device_with(with_port(local, 0));
        let entry = self.ids.get_mut(&listener);
        let entry =
            entry.filter(|entry| entry.state == State::Listening && entry.pending < entry.backlog);
        let (Some(device), Some(entry)) = (device, entry) else {
            self.exchanges.remove(key);
            return;
        };
        entry.pending += 1;
        let mut id = Id::new(entry.file, entry.uid, entry.space, CmQpType::Rc, entry.psn);
        let number = self.fresh_number();
        id.state = State::Connecting;
        id.is_passive = true;
        id.listener = Some(listener);
        id.exchange = Some(key);
        (id.source, id.destination) = (Some(local), Some(remote));
        id.device = Some(device);
        self.ids.insert(number, id);
        if let Some(exchange) = self.exchanges.get_mut(key) {
            exchange.id = number;
        }
        self.requested_of_listener(number, param);
    }

    /// Hands a connection over to its queue pair.
    fn establish_stream(
        &mut self,
        id: u32,
        qp: Qpn,
        (local, _): (SocketAddr, SocketAddr),
        established: Established,
    ) {
        let Established {
            stream,
            terms,
            rest,
            private_data,
        } = established;
        let Ok(entry) = self.id(id) else {
            return;
        };
        entry.exchange = None;
        let connected = StreamConnection::new(stream, terms, rest)
            .map_err(Error::from)
            .and_then(|connection| {
                let (nic, _) = device_of(qp).ok_or(Error::Gone("the queue pair"))?;
                nic.connect_stream(qp, connection.told_of(id))
            });
        match connected {
            Ok(()) => {
                entry.state = State::Connected;
                entry.stream_qp = Some(qp);
                entry.source = Some(canonical(local));
                let param = connection_param(&private_data, terms.ird, terms.ord);
                self.push(id, CmEventKind::Established, 0, param);
            }
            Err(error) => {
                log::warn!("QP {} has no connection: {error}", qp.get());
                entry.state = State::Disconnected;
                let status = -error.errno();
                self.push(id, CmEventKind::ConnectError, status, CmParam::None);
            }
        }
    }

    fn fail_stream(&mut self, id: u32, failure: Failure) {
        let Ok(entry) = self.id(id) else {
            return;
        };
        entry.exchange = None;
        entry.state = State::Disconnected;
        let (code, private_data) = match failure {
            Failure::Tcp(error) => (error.raw_os_error().unwrap_or(libc::EIO), Vec::new()),
            Failure::Mpa(SetupError::Rejected, data) => (libc::ECONNREFUSED, data),
            Failure::Mpa(SetupError::Ended, _) => (libc::ECONNRESET, Vec::new()),
            Failure::Mpa(SetupError::TimedOut, _) => (libc::ETIMEDOUT, Vec::new()),
            Failure::Mpa(error, _) => {
                log::warn!("no connection: {error}");
                (libc::EPROTO, Vec::new())
            }
        };
        let kind = match code {
            libc::ECONNREFUSED | libc::ECONNRESET => CmEventKind::Rejected,
            libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH => CmEventKind::Unreachable,
            _ => CmEventKind::ConnectError,
        };
        let param = connection_param(&private_data, 0, 0);
        self.push(id, kind, -code, param);
    }

    /// The connection of an identifier is over.
    pub(super) fn end_stream(&mut self, id: u32) {
        if let Ok(entry) = self.id(id)
            && entry.state == State::Connected
        {
            entry.state = State::Disconnected;
            self.push(id, CmEventKind::Disconnected, 0, CmParam::None);
        }
    }
}

fn end_connection(number: Qpn) {
    if let Some((nic, _)) = device_of(number) {
        nic.disconnect_stream(number);
    }
}
