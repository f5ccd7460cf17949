//! All exchanges of one host, as state machines.
//!
//! A program's side calls the commands ([`Manager::connect`], [`Manager::accept`], ...). The code
//! that moves datagrams calls [`Manager::handle_mad`] and [`Manager::handle_timeout`], and after
//! each of all these takes what there is from [`Manager::poll_transmit`], [`Manager::poll_event`]
//! and [`Manager::poll_timeout`]. A request of a peer becomes an exchange as soon as it is handed
//! in. A caller that does not want it, because no program listens, calls [`Manager::refuse`] in
//! place of `handle_mad`.
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | `ReqSent` | asked, repeats until answered | REP, REJ, the last retry |
//! | `RepReceived` | answered, the program has to confirm | `ready`, `reject`, REJ |
//! | `ReqReceived` | a peer asked, the program has to answer | `accept`, `reject`, REJ |
//! | `RepSent` | the program said yes, repeats until confirmed | RTU, DREQ, REJ, the last retry |
//! | `Established` | | `disconnect`, DREQ |
//! | `DreqSent` | ended here, repeats until confirmed | DREP, DREQ, the last retry |
//! | `TimeWait` | over; answers repetitions | time |

mod connecting;
mod connection;
mod receive;
mod resolution;
mod resolving;
mod timing;
mod values;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use urxe_wire::{Gid, Qpn};

use crate::mad::{Mad, Message};
use crate::message::{Mra, Rej, SidrRep, Stage};
use crate::reason::{RejectReason, SidrStatus};
use connection::{Connection, State};
use resolution::Resolution;
pub use timing::{ACK_DELAY, MAX_RETRIES, RESPONSE_TIMEOUT, ack_timeout_code};
pub use values::{ConnectionError, Event, Parameters, Path, PortOf, Transmit};

/// See the module.
#[derive(Debug, Default)]
pub struct Manager {
    port_of: Option<PortOf>,
    connections: BTreeMap<u32, Connection>,
    resolutions: BTreeMap<u32, Resolution>,
    /// Connections that a peer asked for, by its address and communication ID: a repeated REQ.
    by_request: BTreeMap<((u32, Gid), u32), u32>,
    /// Connections by the peer's address and queue pair: a queue pair that came to a new life.
    by_qp: BTreeMap<((u32, Gid), Qpn), u32>,
    /// Resolutions that a peer asked for: a repeated SIDR_REQ.
    by_resolution: BTreeMap<((u32, Gid), u32), u32>,
    timers: BTreeSet<(u64, u32)>,
    outgoing: VecDeque<Transmit>,
    events: VecDeque<(u32, Event)>,
}

impl Manager {
    /// A manager that knows from which port devices of one kind send. A connection whose peer did
    /// so is ended by nothing that comes from elsewhere: another user of the peer's host has its
    /// address, but not its port.
    #[must_use]
    pub fn with_ports(port_of: PortOf) -> Self {
        Self {
            port_of: Some(port_of),
            ..Self::default()
        }
    }

    // ---- what there is -----------------------------------------------------------------------

    /// Whether no exchange has this ID.
    #[must_use]
    pub fn is_free(&self, id: u32) -> bool {
        id != 0 && !self.connections.contains_key(&id) && !self.resolutions.contains_key(&id)
    }

    /// Whether there are no exchanges at all.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.resolutions.is_empty()
    }

    /// Whether this is a request that is known already: handed in, it only repeats the answer.
    #[must_use]
    pub fn is_repetition(&self, path: &Path, message: &Message) -> bool {
        match message {
            Message::Req(req) => self.asked_by(path, req).is_some(),
            Message::SidrReq(req) => self.resolved_for(path, req).is_some(),
            _ => false,
        }
    }

    /// What the queue pair of a connection has to be set to. Before the peer answered, what is
    /// known of its side is zero.
    #[must_use]
    pub fn parameters(&self, id: u32) -> Option<&Parameters> {
        self.connections
            .get(&id)
            .map(|connection| &connection.parameters)
    }

    /// Whether both ends' queue pairs are known.
    #[must_use]
    pub fn has_answer(&self, id: u32) -> bool {
        self.connections
            .get(&id)
            .is_some_and(|connection| connection.state != State::ReqSent)
    }

    // ---- what comes out ----------------------------------------------------------------------

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outgoing.pop_front()
    }

    /// The next thing that happened, and the exchange it happened to.
    pub fn poll_event(&mut self) -> Option<(u32, Event)> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] is wanted, nanoseconds.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.first().map(|(at_ns, _)| *at_ns)
    }

    /// The time is `now_ns`: repeats, gives up, forgets.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        while let Some(&(at_ns, id)) = self.timers.first() {
            if at_ns > now_ns {
                return;
            }
            self.timers.pop_first();
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.deadline_ns = None;
                self.expire_connection(now_ns, id);
            } else if let Some(resolution) = self.resolutions.get_mut(&id) {
                resolution.deadline_ns = None;
                self.expire_resolution(now_ns, id);
            }
        }
    }

    // ---- what all commands need --------------------------------------------------------------

    fn send(&mut self, path: Path, mad: &Mad) {
        self.outgoing.push_back(Transmit {
            path,
            mad: Box::new(mad.emit()),
        });
    }

    /// Refuses a request that no program wants, without remembering it.
    pub fn refuse(&mut self, path: Path, mad: &Mad) {
        let message = match &mad.message {
            Message::Req(req) => Rej {
                local_comm_id: 0,
                remote_comm_id: req.local_comm_id,
                stage: Stage::Request,
                info_len: 0,
                reason: RejectReason::INVALID_SERVICE_ID,
                info: [0; Rej::INFO_LEN],
                private_data: [0; Rej::PRIVATE_LEN],
            }
            .into(),
            Message::SidrReq(req) => SidrRep {
                request_id: req.request_id,
                status: SidrStatus::UNSUPPORTED,
                info_len: 0,
                qpn: Qpn::default(),
                service_id: req.service_id,
                qkey: 0,
                info: [0; SidrRep::INFO_LEN],
                private_data: [0; SidrRep::PRIVATE_LEN],
            }
            .into(),
            _ => return,
        };
        self.answer(path, mad, message);
    }

    /// Sends an answer that belongs to no exchange.
    fn answer(&mut self, path: Path, to: &Mad, message: Message) {
        let transaction = to.transaction;
        self.send(
            path,
            &Mad {
                transaction,
                message,
            },
        );
    }
}

/// "It will take longer", about a message of an exchange.
fn please_wait(local_comm_id: u32, remote_comm_id: u32, stage: Stage) -> Message {
    Mra {
        local_comm_id,
        remote_comm_id,
        stage,
        service_timeout: timing::SERVICE_TIMEOUT,
        private_data: [0; Mra::PRIVATE_LEN],
    }
    .into()
}
