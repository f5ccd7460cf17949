//! What communication management and the program share: devices, and the end of the process.

use std::sync::Arc;

use super::agent::Agent;
use crate::attach::list::DeviceInfo;
use crate::nic::Nic;

/// The device `info`, if communication management has it open and no program uses it.
pub(crate) fn claim(info: &DeviceInfo) -> Option<Arc<Nic>> {
    Agent::existing()?.with(|inner| inner.door(info.ifindex)?.claim(info))
}

/// A program is done with a device: whether communication management goes on with it.
pub(crate) fn keeps(nic: &Nic) -> bool {
    Agent::existing().is_some_and(|agent| {
        agent.with(|inner| {
            let door = inner.door(nic.info().ifindex);
            door.is_some_and(|door| door.take_back(nic))
        })
    })
}

/// Tells peers that the connections of a process that ends are over.
pub(crate) fn at_exit() {
    if let Some(agent) = Agent::existing() {
        agent.try_with(|inner| {
            // Their devices end the connections, and wait for no thread that has one.
            inner.ids.values_mut().for_each(|id| id.stream_qp = None);
            let ids: Vec<u32> = inner.ids.keys().copied().collect();
            for id in ids {
                inner.remove_id(id);
            }
        });
    }
}
