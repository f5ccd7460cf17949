//! Multicast groups that datagram queue pairs are attached to.

use std::sync::Arc;

use urxe_udp::{Options, Socket};
use urxe_wire::{Gid, Qpn, ROCE_UDP_PORT};

use crate::attach::gid_entry::socket_address;
use crate::engine::multicast::group::Group;
use crate::nic::Nic;
use crate::process::error::Error;

impl Nic {
    /// Attaches a datagram queue pair to a group.
    pub(crate) fn attach(&self, qp: Qpn, gid: Gid) -> Result<(), Error> {
        if !gid.is_multicast() {
            return Err(Error::Invalid(format!(
                "{} is not a multicast address",
                gid.to_ip()
            )));
        }
        let mut engine = self.engine();
        if let Some(group) = engine.groups.iter_mut().find(|group| group.gid == gid) {
            if !group.members.contains(&qp) {
                if group.members.len() >= self.limits().max_mcast_qp_attach {
                    return Err(Error::Exhausted("places in the multicast group"));
                }
                group.members.push(qp);
            }
            return Ok(());
        }
        if engine.groups.len() >= self.limits().max_mcast_grp {
            return Err(Error::Exhausted("multicast groups"));
        }
        let ifindex = self.info().ifindex;
        let address = socket_address(gid, ifindex, ROCE_UDP_PORT);
        let bind = |options: &Options| Socket::bind_multicast(address, ifindex, options);
        let socket = self.taps().bind(&Options::default(), bind)?;
        engine.groups.push(Group {
            gid,
            socket: Arc::new(socket),
            members: vec![qp],
        });
        drop(engine);
        self.sockets_changed();
        Ok(())
    }

    /// Detaches a queue pair from a group.
    pub(crate) fn detach(&self, qp: Qpn, gid: Gid) -> Result<(), Error> {
        let mut engine = self.engine();
        let group = engine.groups.iter_mut().find(|group| group.gid == gid);
        let member = group.and_then(|group| {
            let at = group.members.iter().position(|member| *member == qp)?;
            Some((group, at))
        });
        let Some((group, at)) = member else {
            return Err(Error::Invalid(format!(
                "queue pair {qp} is not attached to {}",
                gid.to_ip()
            )));
        };
        group.members.swap_remove(at);
        engine.groups.retain(|group| !group.members.is_empty());
        Ok(())
    }
}
