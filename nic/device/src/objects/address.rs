//! Addresses of datagrams.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use urxe_proto::AddressVector;
use urxe_udp::Unreachable;

use crate::attach::gid_entry::GidType;
use crate::nic::Nic;
use crate::process::error::Error;

/// How long a host on the link has to say its link address: the kernel asks three times, a second
/// apart (`mcast_solicit` and `retrans_time_ms` of net.ipv4.neigh).
const RESOLUTION_PATIENCE: Duration = Duration::from_secs(3);

impl Nic {
    /// Whether datagrams can be sent to an address (`ibv_create_ah`).
    ///
    /// # Errors
    /// [`Error::Invalid`] says why not.
    pub fn check_address(&self, address: &AddressVector) -> Result<(), Error> {
        let index = usize::from(address.source_gid_index);
        let gids = self.gids();
        let source = gids.get(index).filter(|entry| entry.is_used());
        let source = source.ok_or_else(|| {
            let count = gids.len();
            Error::Invalid(format!(
                "GID index {index}; this device has {count}, from 0"
            ))
        })?;
        let (from, to) = (source.gid.to_ip(), address.dest_gid.to_ip());
        if source.kind == GidType::RoceV1 {
            return self.resolve(index, to);
        }
        if from.is_ipv4() == to.is_ipv4() && !address.dest_gid.is_zero() {
            Ok(())
        } else {
            Err(Error::Invalid(format!(
                "{to} cannot be reached from {from}"
            )))
        }
    }

    /// Finds out where frames to an address go, if GID `index` is one of RoCE v1; RoCEv2's
    /// datagrams find their way themselves. May wait for the host there to answer.
    pub(crate) fn resolve(&self, index: usize, to: IpAddr) -> Result<(), Error> {
        if self.gids().get(index).map(|entry| entry.kind) != Some(GidType::RoceV1) {
            return Ok(());
        }
        if to.is_multicast() {
            return Err(no_groups(to, index));
        }
        let socket = {
            let engine = self.engine();
            let port = engine.ports().get(index);
            port.and_then(|port| port.socket.clone())
        };
        let Some(socket) = socket else {
            // Before the first queue pair. What is sent then asks again.
            return Ok(());
        };
        socket
            .resolve(to, RESOLUTION_PATIENCE)
            .map_err(|why| unreachable(to, index, &self.info().netdev, why))
    }
}

/// Why there is no address handle for a group. It is said once in a process: a program that tries
/// one group after another would say the same of each.
fn no_groups(to: IpAddr, index: usize) -> Error {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    let message = format!(
        "{to} is a multicast group, and GID index {index} is one of RoCE v1, which urxe has no \
         multicast for; use a GID of RoCE v2"
    );
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        log::error!("{message}");
    }
    Error::Invalid(message)
}

fn unreachable(to: IpAddr, index: usize, netdev: &str, why: Unreachable) -> Error {
    let message = match why {
        Unreachable::OffLink => format!(
            "{to} is on no network of {netdev}, and GID index {index} is one of RoCE v1, whose packets no \
             router passes on; use a GID of RoCE v2, or an address on the same link"
        ),
        Unreachable::NoAnswer => format!(
            "no host on {netdev} answers for {to} (ARP, or IPv6's neighbour discovery), so RoCE v1 \
             packets of GID index {index} cannot go there; check the address and the link"
        ),
    };
    log::error!("{message}");
    Error::Unreachable(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_do() {
        let to = IpAddr::from([192, 0, 2, 9]);
        for (why, expected) in [
            (Unreachable::OffLink, "use a GID of RoCE v2"),
            (Unreachable::NoAnswer, "check the address and the link"),
        ] {
            let message = unreachable(to, 3, "eth0", why).to_string();
            for part in ["192.0.2.9", "eth0", "GID index 3", expected] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}
