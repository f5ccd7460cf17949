//! Queue pairs, as a program holds them.

use std::sync::Arc;

use urxe_proto::{
    AddressVector, AttrMask, Attributes, Capacity, Instant, PdId, PeerAbilities, QpConfig, QpState,
    QpType, QueuePair, RecvRequest,
};
use urxe_wire::{Gid, Qpn};

use crate::delivery::completions::Completions;
use crate::engine::path::Path;
use crate::engine::port::LOCAL_BITS;
use crate::engine::table::{Receives, Slot};
use crate::engine::{AckMode, Engine};
use crate::memory::Pd;
use crate::nic::Nic;
use crate::objects::cq::Cq;
use crate::objects::qp_init::{QpInit, check_objects};
use crate::process::clock::now;
use crate::process::error::Error;
use crate::process::guard;

/// A queue pair. Destroyed by [`Self::destroy`], or when dropped.
#[derive(Debug)]
pub struct Qp {
    pub(super) nic: Arc<Nic>,
    pub(super) index: u16,
    pub(super) number: Qpn,
    pub(super) init: QpInit,
}

pub(super) fn completions_of(cq: Option<&Arc<Cq>>) -> Option<Arc<Completions>> {
    cq.map(|cq| Arc::clone(cq.completions()))
}

impl Nic {
    /// Makes a queue pair, in the state `Reset`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity above the limits or objects that do not go with the type,
    /// [`Error::Exhausted`] when all numbers or ports are taken.
    pub fn create_qp(self: &Arc<Self>, init: &QpInit) -> Result<Qp, Error> {
        check_objects(init)?;
        if self.is_iwarp() && init.qp_type != QpType::Rc {
            return Err(Error::Unsupported(
                "queue pairs of other types than RC: it is an iWARP device",
            ));
        }
        let init = &init.with_own_receives();
        self.check_capacity(&init.capacity)?;
        self.start()?;
        if self.is_iwarp() {
            return self.create_stream_qp(init);
        }
        let mut engine = self.engine();
        let slot = engine.sockets.as_ref().map_or(0, |sockets| sockets.slot);
        let local = engine.qps.fresh_local()?;
        let number = Qpn::new(u32::from(slot) << LOCAL_BITS | local);
        log::debug!(
            "{}: QP {} ({:?}) made",
            self.info().name,
            number.get(),
            init.qp_type
        );
        engine.use_objects(init)?;
        let is_ud = init.qp_type == QpType::Ud;
        let mut qp = QueuePair::new(self.qp_config(number, init));
        qp.set_notified_control(self.taps().reaction.clone());
        let index = engine.qps.insert(Box::new(Slot {
            qp,
            send_cq: completions_of(init.send_cq.as_ref()),
            recv_cq: completions_of(init.recv_cq.as_ref()),
            receives: init.receives(),
            path: None,
            datagrams: is_ud.then(Box::default),
            is_ready: false,
            is_sender: false,
            armed: None,
        }));
        if is_ud {
            engine.count_datagram_user(1);
        }
        Ok(Qp::new(self, index, number, init))
    }

    pub(super) fn qp_config(&self, number: Qpn, init: &QpInit) -> QpConfig {
        QpConfig {
            number,
            pd: init.pd.map_or(NO_PD, Pd::id),
            qp_type: init.qp_type,
            capacity: init.capacity,
            shares_receives: init.receives() != Receives::Own,
            port_mtu: self.port().active_mtu,
        }
    }

    fn check_capacity(&self, capacity: &Capacity) -> Result<(), Error> {
        let limits = self.limits();
        let checks = [
            ("send requests", capacity.send_requests, limits.max_qp_wr),
            ("receive requests", capacity.recv_requests, limits.max_qp_wr),
            (
                "scatter/gather elements of a send",
                capacity.send_sges,
                limits.max_sge,
            ),
            (
                "scatter/gather elements of a receive",
                capacity.recv_sges,
                limits.max_sge,
            ),
            (
                "bytes of inline data",
                capacity.inline_bytes,
                limits.max_inline_bytes,
            ),
        ];
        match checks.iter().find(|(_, wanted, max)| wanted > max) {
            Some((what, wanted, max)) => Err(Error::Invalid(format!(
                "{wanted} {what}; a queue pair has at most {max}"
            ))),
            None => Ok(()),
        }
    }

    /// Where a queue pair with these attributes sends to and hears from.
    fn path(engine: &Engine, attributes: &Attributes) -> Result<Path, Error> {
        let sockets = engine.sockets.as_ref().ok_or(Error::Gone("the sockets"))?;
        let address = AddressVector {
            dest_gid: attributes.dest_gid,
            source_gid_index: attributes.source_gid_index,
            traffic_class: attributes.traffic_class,
            hop_limit: attributes.hop_limit,
            flow_label: attributes.flow_label,
            service_level: attributes.service_level,
        };
        Path::new(sockets, &address, attributes.dest_qp)
    }
}

/// The protection domain of a queue pair that has none: no region is in it.
const NO_PD: PdId = PdId(0);

impl Engine {
    /// Counts a queue pair with the objects that it uses.
    pub(super) fn use_objects(&mut self, init: &QpInit) -> Result<(), Error> {
        if let Some(pd) = init.pd {
            self.memory.use_pd(pd)?;
        }
        let used = match init.receives() {
            Receives::Own => Ok(()),
            Receives::Shared(number) => self.srqs.use_queue(number),
            Receives::Named(xrcd) => self.srqs.use_domain(xrcd),
        };
        if let (Err(_), Some(pd)) = (&used, init.pd) {
            self.memory.release_pd(pd.id());
        }
        used
    }

    pub(super) fn release_objects(&mut self, init: &QpInit) {
        if let Some(pd) = init.pd {
            self.memory.release_pd(pd.id());
        }
        match init.receives() {
            Receives::Own => {}
            Receives::Shared(number) => self.srqs.release_queue(number),
            Receives::Named(xrcd) => self.srqs.release_domain(xrcd),
        }
    }

    /// A datagram queue pair, which hears on all addresses, comes (1) or goes (-1).
    fn count_datagram_user(&mut self, change: i32) {
        if let Some(sockets) = &mut self.sockets {
            sockets.count_datagram_user(change);
        }
    }
}

impl Qp {
    /// The queue pair that was made so.
    pub(super) fn new(nic: &Arc<Nic>, index: u16, number: Qpn, init: &QpInit) -> Self {
        let qp = Self {
            nic: Arc::clone(nic),
            index,
            number,
            init: init.clone(),
        };
        qp.queues().for_each(|cq| cq.completions().add_user());
        qp
    }

    /// The completion queues of its sends and of its receives.
    fn queues(&self) -> impl Iterator<Item = &Cq> {
        let queues = [&self.init.send_cq, &self.init.recv_cq];
        queues.into_iter().flatten().map(Arc::as_ref)
    }

    pub(super) fn forget_completions(&self) {
        self.queues()
            .for_each(|cq| cq.completions().forget_qp(self.number));
    }

    pub(super) fn leave_completions(&self) {
        self.forget_completions();
        self.queues().for_each(|cq| cq.completions().remove_user());
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> Qpn {
        self.number
    }

    /// What it was made with.
    #[must_use]
    pub const fn init(&self) -> &QpInit {
        &self.init
    }

    /// Changes state and attributes, those that `mask` names.
    ///
    /// # Errors
    /// Why it was refused; nothing is changed then.
    pub fn modify(&self, wanted: &Attributes, mask: AttrMask) -> Result<(), Error> {
        if mask.contains(AttrMask::PATH_MTU) && wanted.path_mtu > self.nic.port().active_mtu {
            return Err(Error::Invalid(format!(
                "path MTU {}; the interface takes at most {}",
                wanted.path_mtu.bytes(),
                self.nic.port().active_mtu.bytes()
            )));
        }
        self.check_rd_atomic(wanted, mask)?;
        guard::install();
        if self.nic.is_iwarp() {
            return self.modify_stream(wanted, mask);
        }
        if mask.contains(AttrMask::ADDRESS_VECTOR) {
            let to = wanted.dest_gid.to_ip();
            self.nic.resolve(wanted.source_gid_index.into(), to)?;
        }
        let mut engine = self.nic.engine();
        let path = if mask.contains(AttrMask::ADDRESS_VECTOR) {
            let mut merged = wanted.clone();
            if !mask.contains(AttrMask::DEST_QPN) {
                merged.dest_qp = self.slot(&mut engine)?.qp.attributes().dest_qp;
            }
            Some(Nic::path(&engine, &merged)?)
        } else {
            None
        };
        let ends = matches!(wanted.state, QpState::Error | QpState::Reset);
        if mask.contains(AttrMask::STATE) && ends && self.slot(&mut engine).is_ok() {
            // What was executed has to be acknowledged as long as the queue pair can: a program
            // that ends a connection has seen the peer's last message, and the peer must learn that
            // it has.
            engine.mark_ready(self.index);
            engine.transmit(now(), AckMode::All);
            engine.bid_farewell(self.index, now());
        }
        let slot = self.slot(&mut engine)?;
        let before = slot.qp.state();
        slot.qp.modify(wanted, mask)?;
        log::debug!(
            "QP {}: {before:?} to {:?}",
            self.number.get(),
            slot.qp.state()
        );
        let is_reset = slot.qp.state() == QpState::Reset;
        if is_reset {
            self.forget_completions();
        }
        if is_reset || path.is_some() {
            // What the peer is, at another address perhaps, is to be found out.
            slot.qp.set_peer_abilities(PeerAbilities::empty());
            self.set_path(&mut engine, path)?;
        }
        self.settle(&mut engine);
        Ok(())
    }

    fn check_rd_atomic(&self, wanted: &Attributes, mask: AttrMask) -> Result<(), Error> {
        let max = self.nic.limits().max_rd_atomic;
        let values = [
            (AttrMask::MAX_RD_ATOMIC, wanted.max_rd_atomic),
            (AttrMask::MAX_DEST_RD_ATOMIC, wanted.max_dest_rd_atomic),
        ];
        match values
            .iter()
            .find(|(bit, value)| mask.contains(*bit) && *value > max)
        {
            Some((_, value)) => Err(Error::Invalid(format!(
                "{value} READs and atomics outstanding; the device has at most {max}"
            ))),
            None => Ok(()),
        }
    }

    fn set_path(&self, engine: &mut Engine, path: Option<Path>) -> Result<(), Error> {
        let before = std::mem::replace(&mut self.slot(engine)?.path, path.clone());
        if let Some(sockets) = &mut engine.sockets {
            if let Some(before) = before {
                sockets.ports[before.port].users -= 1;
            }
            if let Some(path) = path {
                sockets.ports[path.port].users += 1;
            }
        }
        Ok(())
    }

    /// Its attributes.
    ///
    /// # Errors
    /// [`Error::Gone`] after it was destroyed.
    pub fn query(&self) -> Result<Attributes, Error> {
        if self.nic.is_iwarp() {
            return self.query_stream();
        }
        Ok(self.slot(&mut self.nic.engine())?.qp.query())
    }

    /// Its state.
    ///
    /// # Errors
    /// [`Error::Gone`] after it was destroyed.
    pub fn state(&self) -> Result<QpState, Error> {
        if self.nic.is_iwarp() {
            return Ok(self.query_stream()?.state);
        }
        Ok(self.slot(&mut self.nic.engine())?.qp.state())
    }

    /// Queues a receive request.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        if self.nic.is_iwarp() {
            return self.post_stream_recv(request);
        }
        let mut engine = self.nic.engine();
        let slot = self.slot(&mut engine)?;
        slot.qp.post_recv(request)?;
        if slot.qp.state() == QpState::Error {
            let Engine { qps, events, .. } = &mut *engine;
            if let Some(slot) = qps.get_mut(self.index) {
                slot.deliver(events);
            }
        }
        Ok(())
    }

    /// Attaches it to a multicast group, whose datagrams with its Q_Key it then receives, too.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no datagram queue pair or `gid` no group; what the operating
    /// system says.
    pub fn attach_multicast(&self, gid: Gid) -> Result<(), Error> {
        self.check_datagrams()?;
        self.nic.attach(self.number, gid)
    }

    /// Detaches it from a multicast group.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not attached.
    pub fn detach_multicast(&self, gid: Gid) -> Result<(), Error> {
        self.check_datagrams()?;
        self.nic.detach(self.number, gid)
    }

    /// Whether it is attached to a multicast group.
    #[must_use]
    pub fn is_in_group(&self) -> bool {
        self.init.qp_type == QpType::Ud && self.nic.engine().is_in_group(self.number)
    }

    fn check_datagrams(&self) -> Result<(), Error> {
        if self.nic.is_iwarp() {
            Err(Error::Unsupported(
                "multicast groups: it is an iWARP device",
            ))
        } else if self.init.qp_type == QpType::Ud {
            Ok(())
        } else {
            Err(Error::Invalid(
                "only datagram queue pairs (UD) can be in multicast groups".into(),
            ))
        }
    }

    /// Ends it: what it owes its peer is sent, its completions are forgotten.
    pub fn destroy(&self) {
        if self.nic.is_iwarp() {
            return self.destroy_stream();
        }
        let mut engine = self.nic.engine();
        if self.slot(&mut engine).is_err() {
            return;
        }
        log::debug!("QP {} destroyed", self.number.get());
        engine.mark_ready(self.index);
        engine.transmit(now(), AckMode::All);
        engine.bid_farewell(self.index, now());
        if matches!(self.init.qp_type, QpType::Uc | QpType::Ud) {
            engine.drain();
        }
        engine.forget_outgoing_memory();
        let _ = self.set_path(&mut engine, None);
        engine.remove(self.index);
        engine.memory.forget_qp(self.number);
        if self.init.qp_type == QpType::Ud {
            engine.count_datagram_user(-1);
            engine.detach_from_all(self.number);
        }
        engine.release_objects(&self.init);
        engine.events.forget_qp(self.number);
        self.leave_completions();
    }

    /// The queue pair in the engine. Its index may have been given to another one since.
    pub(super) fn slot<'a>(&self, engine: &'a mut Engine) -> Result<&'a mut Slot, Error> {
        engine
            .qps
            .get_mut(self.index)
            .filter(|slot| slot.qp.number() == self.number)
            .ok_or(Error::Gone("the queue pair"))
    }

    /// Sends what a command made possible, and delivers what it completed.
    fn settle(&self, engine: &mut Engine) {
        let now = now();
        engine.mark_ready(self.index);
        engine.transmit(now, AckMode::Flush);
        self.finish(engine, now);
    }

    pub(super) fn finish(&self, engine: &mut Engine, now: Instant) {
        let Engine { qps, events, .. } = engine;
        if let Some(slot) = qps.get_mut(self.index) {
            slot.deliver(events);
        }
        self.nic.note_deadline(engine, now);
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.destroy();
    }
}
