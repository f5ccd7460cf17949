//! What the device at the other end of a connection does beyond the specification.

bitflags::bitflags! {
    /// What both ends of a reliable connection (RC) do beyond what the specification asks of them.
    /// The caller recognises the peer's device; with one that is not known there are none, and the
    /// queue pair keeps to IBTA 9.7.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PeerAbilities: u8 {
        /// What arrives behind a gap is kept, and a NAK says what: so only what is missing is sent
        /// again. A READ is answered anew from any packet on, and its answers are placed in any
        /// order.
        const SELECTIVE_REPEAT = 1 << 0;
        /// What is sent again is answered again, and at once: so the answer tells a round trip.
        const ANSWERS_REPETITIONS = 1 << 1;
        /// A request that does not ask for an acknowledgement has one within
        /// [`crate::ACK_HOLD_NS`].
        const UNASKED_ACKNOWLEDGEMENTS = 1 << 2;
        /// An acknowledgement travels in the header of a request.
        const ACKNOWLEDGEMENTS_IN_REQUESTS = 1 << 3;
        /// Packets of one length cost less than packets of several, in the READ responses that the
        /// peer sends and in the requests that it takes in: so messages are divided where that
        /// makes lengths equal.
        const GAINS_BY_EQUAL_LENGTHS = 1 << 4;
    }
}

impl PeerAbilities {
    /// Those of urxe.
    pub const URXE: Self = Self::all();
}
