//! Identifiers: what a program holds of a connection, a listener or a datagram service, and the
//! events of them.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use urxe_cm::PortSpace;
use urxe_udp::Private;
use urxe_wire::{Gid, Mtu, Psn, Qpn};

use super::relay::Reservation;
use crate::attach::list::DeviceInfo;

/// The bits of a communication ID below the slot.
pub(super) const SLOT_SHIFT: u32 = 22;

/// Q_Key of datagram queue pairs in the port space UDP, and of all but IPoIB (`RDMA_UDP_QKEY`).
pub(super) const UDP_QKEY: u32 = 0x0123_4567;
/// Q_Key of IPoIB's groups.
pub(super) const IPOIB_QKEY: u32 = 0x0b1b;

/// What kind of queue pair an identifier is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmQpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Datagrams.
    Ud,
    /// Extended reliable connection, the end that sends.
    XrcInitiator,
    /// Extended reliable connection, the end that receives.
    XrcTarget,
}

/// What an event tells; the numbers of `enum rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "rdma_get_cm_event(3) describes them")]
pub enum CmEventKind {
    AddrResolved = 0,
    AddrError = 1,
    RouteResolved = 2,
    ConnectRequest = 4,
    ConnectResponse = 5,
    ConnectError = 6,
    Unreachable = 7,
    Rejected = 8,
    Established = 9,
    Disconnected = 10,
    DeviceRemoval = 11,
    MulticastJoin = 12,
    AddrChange = 14,
    TimeWaitExit = 15,
    /// Written by the program itself, for another thread of it.
    User = 18,
    /// Written by librdmacm for itself.
    Internal = 19,
}

/// What one end of a connection tells the other, with the names of `struct rdma_conn_param`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "rdma_connect(3) describes them")]
pub struct ConnectionParam {
    pub qp_num: u32,
    pub qkey: u32,
    pub private_data: Vec<u8>,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: bool,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: bool,
}

/// Where datagrams go, as `struct ibv_ah_attr` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs' own names")]
pub struct CmAddress {
    pub dest_gid: Gid,
    pub source_gid_index: u8,
    pub traffic_class: u8,
    pub hop_limit: u8,
}

/// A datagram service that was found, a request for one, or a multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "rdma_get_cm_event(3) describes them")]
pub struct DatagramParam {
    pub qp_num: u32,
    pub qkey: u32,
    pub address: Option<CmAddress>,
    pub private_data: Vec<u8>,
}

/// What comes with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmParam {
    /// Nothing.
    None,
    /// Of a connection.
    Connection(Box<ConnectionParam>),
    /// Of datagrams.
    Datagram(Box<DatagramParam>),
    /// What the program wrote ([`CmEventKind::User`]).
    Argument(u64),
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmEvent {
    /// What the program calls the identifier, or the group.
    pub uid: u64,
    /// The identifier or group that it is about. With a request, the new identifier; `uid` is the
    /// listener's then.
    pub id: u32,
    /// What happened.
    pub kind: CmEventKind,
    /// 0, a negated errno, or the reason of a rejection.
    pub status: i32,
    /// What comes with it.
    pub param: CmParam,
    /// Whose event it is: the identifier that counts it, for a request the listener.
    pub(super) of: u32,
}

/// How far an identifier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Bound,
    AddrResolved,
    RouteResolved,
    /// Asked or being asked.
    Connecting,
    Connected,
    Disconnected,
    Listening,
    /// Its device is gone: it can only be ended.
    Removed,
}

/// The device of an identifier, as of when it was bound to it.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) gid_index: u8,
    /// What the program takes to be so: the interface's MAC address, and that it has the
    /// identifier's address.
    pub(super) mac: Option<[u8; 6]>,
    pub(super) has_address: bool,
}

impl Bound {
    pub(super) fn new(info: &Arc<DeviceInfo>, gid_index: u8) -> Self {
        Self {
            info: Arc::clone(info),
            gid_index,
            mac: info.mac,
            has_address: true,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Id {
    pub(super) file: u64,
    pub(super) uid: u64,
    pub(super) space: PortSpace,
    pub(super) qp_type: CmQpType,
    pub(super) state: State,
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    pub(super) device: Option<Bound>,
    /// The port is this identifier's.
    pub(super) reservation: Option<Arc<Reservation>>,
    /// Of an iWARP device, the socket that keeps a port which the program did not choose, until it
    /// listens or connects.
    pub(super) tcp: Option<Private<TcpListener>>,
    /// Where other processes pass on requests, while it listens.
    pub(super) requests: Option<Arc<Private<UnixDatagram>>>,
    /// Its exchange, by the communication ID.
    pub(super) comm: Option<u32>,
    /// Of an iWARP device, the exchange under way, and the queue pair that has the connection.
    pub(super) exchange: Option<u64>,
    pub(super) stream_qp: Option<Qpn>,
    /// A peer asked for it.
    pub(super) is_passive: bool,
    /// The listener that it came from, until the program took its request.
    pub(super) listener: Option<u32>,
    /// Requests that the program may leave untaken, and those that it has.
    pub(super) backlog: u32,
    pub(super) pending: u32,
    pub(super) psn: Psn,
    pub(super) qkey: u32,
    pub(super) may_share_port: bool,
    pub(super) is_ipv6_only: bool,
    pub(super) traffic_class: u8,
    pub(super) ack_timeout: Option<u8>,
    /// Events that the program got of it.
    pub(super) events_reported: u32,
}

impl Id {
    pub(super) fn new(file: u64, uid: u64, space: PortSpace, qp_type: CmQpType, psn: Psn) -> Self {
        Self {
            file,
            uid,
            space,
            qp_type,
            state: State::Idle,
            source: None,
            destination: None,
            device: None,
            reservation: None,
            tcp: None,
            requests: None,
            comm: None,
            exchange: None,
            stream_qp: None,
            is_passive: false,
            listener: None,
            backlog: 0,
            pending: 0,
            psn,
            qkey: if space == PortSpace::Ipoib {
                IPOIB_QKEY
            } else {
                UDP_QKEY
            },
            may_share_port: false,
            is_ipv6_only: false,
            traffic_class: 0,
            ack_timeout: None,
            events_reported: 0,
        }
    }

    /// Whether its service is datagrams.
    pub(super) fn is_datagram(&self) -> bool {
        self.qp_type == CmQpType::Ud || matches!(self.space, PortSpace::Udp | PortSpace::Ipoib)
    }

    /// Whether it listens on a port of an address.
    pub(super) fn listens_on(&self, space: PortSpace, port: u16, address: IpAddr) -> bool {
        let Some(source) = self.source.filter(|_| self.state == State::Listening) else {
            return false;
        };
        let covers = match source.ip() {
            ip if ip == address => true,
            IpAddr::V4(ip) => ip.is_unspecified() && address.is_ipv4(),
            IpAddr::V6(ip) => ip.is_unspecified() && (address.is_ipv6() || !self.is_ipv6_only),
        };
        covers && self.space == space && source.port() == port
    }

    pub(super) fn address_of(&self, remote: Gid) -> Option<CmAddress> {
        let device = self.device.as_ref()?;
        Some(CmAddress {
            dest_gid: remote,
            source_gid_index: device.gid_index,
            traffic_class: self.traffic_class,
            hop_limit: CmAddress::HOP_LIMIT,
        })
    }
}

impl CmAddress {
    /// Hop limit of all addresses: what Linux uses where routers may be on the way.
    pub const HOP_LIMIT: u8 = 64;
}

/// A multicast group that an identifier joined.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) file: u64,
    pub(super) of: u32,
    pub(super) events_reported: u32,
}

/// What a program may ask of an identifier.
#[derive(Clone, Debug)]
pub struct CmInfo {
    /// Its own address.
    pub source: Option<SocketAddr>,
    /// Its peer's.
    pub destination: Option<SocketAddr>,
    /// Its device.
    pub device: Option<Arc<DeviceInfo>>,
    /// Whether there is a route to the peer.
    pub has_route: bool,
    /// The route's traffic class.
    pub traffic_class: u8,
}

/// What a queue pair has to be set to, apart from its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmQpAttributes {
    /// Before there is a peer: what it may do is nothing yet.
    Unconnected {
        /// Q_Key, for datagrams.
        qkey: Option<u32>,
    },
    /// Of an iWARP device: the connection does the rest.
    Stream {
        /// Whether it is set to a state at all.
        has_state: bool,
        /// Whether the peer may WRITE and READ.
        allow_access: bool,
    },
    /// To `INIT`, knowing what the peer may do.
    Init {
        /// Whether the peer may READ and use atomics.
        allow_read: bool,
    },
    /// To `RTR`.
    ReadyToReceive {
        /// Where the peer is.
        address: CmAddress,
        /// Path MTU.
        path_mtu: Mtu,
        /// The peer's queue pair.
        dest_qp: Qpn,
        /// First PSN to receive.
        rq_psn: Psn,
        /// READs and atomics to take, where the transport has them.
        max_dest_rd_atomic: Option<u8>,
    },
    /// To `RTS`.
    ReadyToSend {
        /// First PSN to send.
        sq_psn: Psn,
        /// READs and atomics to have outstanding, transport and RNR retries, where the transport
        /// has them.
        reliable: Option<ReliableSender>,
        /// Local ACK timeout, where the transport has one.
        timeout: Option<u8>,
    },
}

/// See [`CmQpAttributes::ReadyToSend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the verbs' own names")]
pub struct ReliableSender {
    pub max_rd_atomic: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
}
