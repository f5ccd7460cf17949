//! Queue pair attributes, as `ibv_modify_qp` and `ibv_query_qp` know them.

use core::fmt;

use urxe_wire::{Gid, Mtu, Pkey, Psn, Qpn};

use crate::attr_mask::AttrMask;
use crate::memory::Placement;
use crate::state::QpState;

/// Every attribute of a queue pair. Which are set is told by an [`AttrMask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Current (query) or next (modify) state.
    pub state: QpState,
    /// Current state: with [`AttrMask::CURRENT_STATE`] in a modify, what the caller takes it to be.
    pub current_state: QpState,
    /// Whether the peer may RDMA WRITE.
    pub allow_remote_write: bool,
    /// Whether the peer may RDMA READ.
    pub allow_remote_read: bool,
    /// Whether the peer may use atomics.
    pub allow_remote_atomic: bool,
    /// Which guarantees the peer may ask for with FLUSH.
    pub allow_flush: Placement,
    /// Partition key index; RoCE has one partition, index 0.
    pub pkey_index: u16,
    /// Partition key in the packets.
    pub pkey: Pkey,
    /// Port number, 1.
    pub port: u8,
    /// Q_Key (UD).
    pub qkey: u32,
    /// Destination GID of the address vector.
    pub dest_gid: Gid,
    /// Source GID index of the address vector.
    pub source_gid_index: u8,
    /// Traffic class of the address vector, the IP ToS byte.
    pub traffic_class: u8,
    /// Hop limit of the address vector, the IP TTL.
    pub hop_limit: u8,
    /// Flow label of the address vector.
    pub flow_label: u32,
    /// Service level of the address vector.
    pub service_level: u8,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Queue pair number of the peer.
    pub dest_qp: Qpn,
    /// First PSN expected.
    pub rq_psn: Psn,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// READs and atomics outstanding as the requester.
    pub max_rd_atomic: u8,
    /// READs and atomics accepted as the responder.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code (0..=31).
    pub min_rnr_timer: u8,
    /// Local ACK timeout exponent (0..=31); 0 waits for ever.
    pub timeout: u8,
    /// Transport retries (0..=7).
    pub retry_count: u8,
    /// RNR retries (0..=7); 7 retries for ever.
    pub rnr_retry: u8,
    /// Whether to raise an event when the send queue has drained.
    pub sqd_notify: bool,
    /// Whether the send queue, in the state `SendQueueDrain`, has requests that it has not
    /// finished. Only queried.
    pub is_draining: bool,
}

impl Attributes {
    /// The attributes of a queue pair that was just created.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: QpState::Reset,
            current_state: QpState::Reset,
            allow_remote_write: false,
            allow_remote_read: false,
            allow_remote_atomic: false,
            allow_flush: Placement::empty(),
            pkey_index: 0,
            pkey: Pkey::DEFAULT,
            port: 1,
            qkey: 0,
            dest_gid: Gid::default(),
            source_gid_index: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            service_level: 0,
            path_mtu: Mtu::B1024,
            dest_qp: Qpn::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            sqd_notify: false,
            is_draining: false,
        }
    }

    /// Takes from `other` the attributes that `mask` names (all but the state).
    pub fn merge(&mut self, other: &Self, mask: AttrMask) {
        use AttrMask as A;
        if mask.contains(AttrMask::ACCESS_FLAGS) {
            self.allow_remote_write = other.allow_remote_write;
            self.allow_remote_read = other.allow_remote_read;
            self.allow_remote_atomic = other.allow_remote_atomic;
            self.allow_flush = other.allow_flush;
        }
        if mask.contains(AttrMask::ADDRESS_VECTOR) {
            self.dest_gid = other.dest_gid;
            self.source_gid_index = other.source_gid_index;
            self.traffic_class = other.traffic_class;
            self.hop_limit = other.hop_limit;
            self.flow_label = other.flow_label;
            self.service_level = other.service_level;
        }
        take(&mut self.path_mtu, other.path_mtu, mask, A::PATH_MTU);
        take(&mut self.dest_qp, other.dest_qp, mask, A::DEST_QPN);
        take(&mut self.qkey, other.qkey, mask, A::QKEY);
        take(&mut self.pkey_index, other.pkey_index, mask, A::PKEY_INDEX);
        take(&mut self.rq_psn, other.rq_psn, mask, A::RQ_PSN);
        take(&mut self.sq_psn, other.sq_psn, mask, A::SQ_PSN);
        take(&mut self.sqd_notify, other.sqd_notify, mask, A::SQD_NOTIFY);
        for (own, new, bit) in [
            (&mut self.port, other.port, A::PORT),
            (
                &mut self.max_rd_atomic,
                other.max_rd_atomic,
                A::MAX_RD_ATOMIC,
            ),
            (
                &mut self.max_dest_rd_atomic,
                other.max_dest_rd_atomic,
                A::MAX_DEST_RD_ATOMIC,
            ),
            (
                &mut self.min_rnr_timer,
                other.min_rnr_timer,
                A::MIN_RNR_TIMER,
            ),
            (&mut self.timeout, other.timeout, A::TIMEOUT),
            (&mut self.retry_count, other.retry_count, A::RETRY_COUNT),
            (&mut self.rnr_retry, other.rnr_retry, A::RNR_RETRY),
        ] {
            take(own, new, mask, bit);
        }
    }

    /// Names the first attribute that `mask` sets to a value out of range.
    pub(crate) fn out_of_range(&self, mask: AttrMask) -> Option<AttrMask> {
        let wrong = [
            (AttrMask::PKEY_INDEX, self.pkey_index != 0),
            (AttrMask::PORT, self.port != 1),
            (AttrMask::TIMEOUT, self.timeout > 31),
            (AttrMask::RETRY_COUNT, self.retry_count > 7),
            (AttrMask::RNR_RETRY, self.rnr_retry > 7),
            (AttrMask::MIN_RNR_TIMER, self.min_rnr_timer > 31),
        ];
        wrong
            .into_iter()
            .find(|(bit, bad)| mask.contains(*bit) && *bad)
            .map(|(bit, _)| bit)
    }
}

/// Takes a new value if the mask names it.
fn take<T>(own: &mut T, new: T, mask: AttrMask, bit: AttrMask) {
    if mask.contains(bit) {
        *own = new;
    }
}

impl Default for Attributes {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a `modify` was refused. The queue pair is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// The specification has no such transition.
    Transition {
        /// State of the queue pair.
        from: QpState,
        /// State asked for.
        to: QpState,
    },
    /// The caller's assumed state is not the state.
    CurrentState {
        /// State of the queue pair.
        actual: QpState,
    },
    /// Attributes that the transition requires are not set.
    Missing(AttrMask),
    /// Attributes are set that the transition does not take.
    NotAllowed(AttrMask),
    /// An attribute's value is out of range.
    OutOfRange(AttrMask),
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transition { from, to } => write!(f, "no transition from {from:?} to {to:?}"),
            Self::CurrentState { actual } => write!(f, "the queue pair is in state {actual:?}"),
            Self::Missing(mask) => write!(f, "the transition also needs {mask:?}"),
            Self::NotAllowed(mask) => write!(f, "the transition does not take {mask:?}"),
            Self::OutOfRange(mask) => write!(f, "the value of {mask:?} is out of range"),
        }
    }
}

impl core::error::Error for ModifyError {}
