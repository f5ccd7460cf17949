//! Which attributes of a queue pair are meant.

bitflags::bitflags! {
    /// Which attributes a `modify` sets. Bit values are those of `enum ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AttrMask: u32 {
        /// The next state.
        const STATE = 1 << 0;
        /// The state that the caller assumes.
        const CURRENT_STATE = 1 << 1;
        /// Notify when the send queue has drained.
        const SQD_NOTIFY = 1 << 2;
        /// What the peer may do.
        const ACCESS_FLAGS = 1 << 3;
        /// Partition key index.
        const PKEY_INDEX = 1 << 4;
        /// Port number.
        const PORT = 1 << 5;
        /// Q_Key (UD).
        const QKEY = 1 << 6;
        /// Address of the peer.
        const ADDRESS_VECTOR = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// Local ACK timeout.
        const TIMEOUT = 1 << 9;
        /// Transport retries.
        const RETRY_COUNT = 1 << 10;
        /// RNR retries.
        const RNR_RETRY = 1 << 11;
        /// First PSN expected.
        const RQ_PSN = 1 << 12;
        /// READs and atomics outstanding as the requester.
        const MAX_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALT_PATH = 1 << 14;
        /// RNR NAK timer.
        const MIN_RNR_TIMER = 1 << 15;
        /// First PSN sent.
        const SQ_PSN = 1 << 16;
        /// READs and atomics accepted as the responder.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Path migration state.
        const PATH_MIG_STATE = 1 << 18;
        /// Queue capacities.
        const CAPABILITIES = 1 << 19;
        /// Queue pair of the peer.
        const DEST_QPN = 1 << 20;
        /// Rate limit.
        const RATE_LIMIT = 1 << 25;
    }
}
