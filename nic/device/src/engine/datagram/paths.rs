//! The paths of a datagram queue pair.

use std::net::{IpAddr, SocketAddr};

use rustc_hash::FxHashSet;
use urxe_proto::AddressVector;
use urxe_wire::icrc::Flow;
use urxe_wire::{Qpn, ROCE_UDP_PORT};

use crate::engine::origin::Origin;
use crate::engine::path::Path;
use crate::engine::port::{Ports, udp_port};
use crate::process::error::Error;

/// Strangers remembered, at most.
const STRANGERS_MAX: usize = 4096;

/// The addresses that a datagram queue pair last had to do with, lest the same is worked out for
/// every packet.
#[derive(Debug, Default)]
pub(crate) struct DatagramPaths {
    outbound: Option<(AddressVector, Qpn, Path)>,
    inbound: Option<(SocketAddr, SocketAddr, Flow)>,
    /// Queue pairs that listen on port 4791, whatever their numbers tell: hardware and Linux rxe.
    strangers: FxHashSet<(IpAddr, Qpn)>,
}

impl DatagramPaths {
    pub(super) fn outbound(
        &mut self,
        sockets: &Ports,
        address: &AddressVector,
        qp: Qpn,
    ) -> Result<&Path, Error> {
        let is_known = self
            .outbound
            .as_ref()
            .is_some_and(|(known, known_qp, _)| known == address && *known_qp == qp);
        if !is_known {
            let path = if self.strangers.contains(&(address.dest_gid.to_ip(), qp)) {
                Path::to_port(sockets, address, ROCE_UDP_PORT)
            } else {
                Path::new(sockets, address, qp)
            }?;
            // Nothing slows datagrams down, so they must not say that they heed marks (RFC 3168,
            // 5), unless the program says so, which may: a switch that is full drops them, and the
            // sender finds out as on any other network.
            let path = path.with_tos(address.traffic_class);
            self.outbound = Some((*address, qp, path));
        }
        match &self.outbound {
            Some((.., path)) => Ok(path),
            None => Err(Error::Gone("the path")),
        }
    }

    /// Whether the ICRC of a datagram is right.
    pub(super) fn verify(&mut self, origin: &Origin, datagram: &[u8]) -> bool {
        let (source, local) = (origin.source, origin.local);
        let is_known = matches!(&self.inbound, Some((s, l, _)) if (*s, *l) == (source, local));
        if !is_known {
            self.inbound = origin.flow().map(|flow| (source, local, flow));
        }
        match &self.inbound {
            Some((.., flow)) => flow.verify(datagram, origin.ip_id).is_good(),
            None => false,
        }
    }

    /// Learns from a datagram of `qp` on which port it listens: our own kind sends from there.
    pub(super) fn learn(&mut self, source: SocketAddr, qp: Qpn) {
        let stranger = (source.ip(), qp);
        if source.port() == udp_port(qp) {
            if !self.strangers.is_empty() {
                self.strangers.remove(&stranger);
            }
        } else if self.strangers.len() < STRANGERS_MAX && self.strangers.insert(stranger) {
            self.outbound = None;
        }
    }
}
