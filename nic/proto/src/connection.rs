//! What stays the same for all packets of a connection.

use urxe_wire::{Bth, Header, Opcode, Operation, Pkey, Psn, Qpn, Transport};

use crate::memory::{PdId, Via};
use crate::peer::PeerAbilities;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    pub(crate) qp: Qpn,
    pub(crate) pd: PdId,
    pub(crate) peer: Qpn,
    pub(crate) pkey: Pkey,
    pub(crate) mtu_bytes: u32,
    /// Of a datagram queue pair.
    pub(crate) qkey: u32,
    pub(crate) peer_abilities: PeerAbilities,
    /// See [`crate::Egress`].
    pub(crate) batch_packets: u32,
}

impl Connection {
    /// The queue pair, as memory knows it.
    pub(crate) const fn via(&self) -> Via {
        Via {
            pd: self.pd,
            qp: self.qp,
        }
    }

    /// Whether both ends do all of this.
    #[inline]
    pub(crate) const fn has(&self, abilities: PeerAbilities) -> bool {
        self.peer_abilities.contains(abilities)
    }

    /// A header to the peer with nothing but its base transport header.
    pub(crate) fn header(&self, operation: Operation, psn: Psn) -> Header {
        let opcode = Opcode::new(self.transport, operation);
        let mut bth = Bth::new(opcode, self.peer, psn);
        bth.migrated = true;
        bth.pkey = self.pkey;
        Header::new(bth)
    }
}
