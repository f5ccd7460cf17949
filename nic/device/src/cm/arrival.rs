//! Packets for QP 1 on their way to the agent.

use urxe_wire::Packet;

use super::agent::{Agent, Arrived};
use super::door::path;
use super::{gsi, inherited};
use crate::engine::origin::Origin;

/// A packet for QP 1 that an opened device got, with the engine's lock held.
#[cold]
pub(crate) fn receive(link: u32, origin: &Origin, datagram: &[u8], packet: &Packet<'_>) {
    let (local, source) = (origin.local, origin.source);
    let Some(mad) = gsi::mad(source, local, origin.ip_id, datagram, packet) else {
        return;
    };
    let Ok(agent) = agent() else {
        return;
    };
    agent.arrived(Arrived {
        path: path(link, local, source),
        port: local.port(),
        mad: *mad,
    });
}

/// The agent of this process, made at its first use.
///
/// # Errors
/// When the process has no descriptors or threads left.
pub(super) fn agent() -> std::io::Result<&'static Agent> {
    inherited::hold_over_forks();
    Agent::get()
}
