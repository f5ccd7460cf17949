//! Queue pairs, as a program holds them.

use std::sync::{Arc, MutexGuard};

use urxe_proto::{
    AttrMask, Attributes, Capacity, PostError, QpState, QueuePair, RecvRequest, SendRequest,
};
use urxe_udp::Destination;
use urxe_wire::icrc::Flow;
use urxe_wire::{Qpn, Transport};

use crate::clock::now;
use crate::cq::Cq;
use crate::engine::{AckMode, Engine};
use crate::error::Error;
use crate::list::socket_address;
use crate::memory::Pd;
use crate::nic::Nic;
use crate::port::udp_port;
use crate::table::{LOCAL_BITS, Path, Slot};

/// What a queue pair is made with.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Its protection domain.
    pub pd: Pd,
    /// Where sends complete.
    pub send_cq: Arc<Cq>,
    /// Where receives complete.
    pub recv_cq: Arc<Cq>,
    /// Its transport service.
    pub transport: Transport,
    /// How much it holds.
    pub capacity: Capacity,
}

/// A queue pair. Destroyed by [`Self::destroy`], or when dropped.
#[derive(Debug)]
pub struct Qp {
    nic: Arc<Nic>,
    index: u16,
    number: Qpn,
    init: QpInit,
}

impl Nic {
    /// Makes a queue pair, in the state `Reset`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a capacity above the limits, [`Error::Unsupported`] for a transport that
    /// this device does not have, [`Error::Exhausted`] when all numbers or ports are taken.
    pub fn create_qp(self: &Arc<Self>, init: &QpInit) -> Result<Qp, Error> {
        self.check_init(init)?;
        self.start()?;
        let mut engine = self.engine();
        engine.memory.use_pd(init.pd)?;
        let slot = engine.sockets.as_ref().map_or(0, |sockets| sockets.slot);
        let local = engine.qps.fresh_local()?;
        let number = Qpn::new(u32::from(slot) << LOCAL_BITS | local);
        log::debug!(
            "{}: QP {} ({:?}) made",
            self.info().name,
            number.get(),
            init.transport
        );
        let index = engine.qps.insert(Box::new(Slot {
            qp: QueuePair::new(number, init.pd.id(), init.transport, init.capacity),
            send_cq: Arc::clone(&init.send_cq),
            recv_cq: Arc::clone(&init.recv_cq),
            path: None,
            is_ready: false,
            is_sender: false,
            armed: None,
        }));
        init.send_cq.add_user();
        init.recv_cq.add_user();
        Ok(Qp {
            nic: Arc::clone(self),
            index,
            number,
            init: init.clone(),
        })
    }

    fn check_init(&self, init: &QpInit) -> Result<(), Error> {
        if init.transport != Transport::Rc {
            return Err(Error::Unsupported("queue pairs other than RC"));
        }
        let (limits, capacity) = (self.limits(), &init.capacity);
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
    fn path(&self, engine: &Engine, attributes: &Attributes) -> Result<Path, Error> {
        let port = usize::from(attributes.source_gid_index);
        let count = self.gids().len();
        let local = engine
            .ports()
            .get(port)
            .ok_or_else(|| {
                Error::Invalid(format!(
                    "GID index {port}; this device has 0 to {}",
                    count - 1
                ))
            })?
            .socket
            .as_ref()
            .ok_or_else(|| Error::Invalid(format!("the address of GID index {port} is gone")))?
            .local_address();
        let peer = socket_address(
            attributes.dest_gid,
            self.info().ifindex,
            udp_port(attributes.dest_qp),
        );
        let destination = Destination::new(peer);
        let flow = Flow::new(local, destination.address()).ok_or_else(|| {
            Error::Invalid(format!(
                "{} cannot be reached from {}",
                peer.ip(),
                local.ip()
            ))
        })?;
        Ok(Path {
            port,
            destination,
            flow,
            tos: attributes.traffic_class,
            inbound: None,
        })
    }
}

impl Qp {
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
        let mut engine = self.nic.engine();
        let path = if mask.contains(AttrMask::ADDRESS_VECTOR) {
            let mut merged = wanted.clone();
            if !mask.contains(AttrMask::DEST_QPN) {
                merged.dest_qp = self.slot(&mut engine)?.qp.attributes().dest_qp;
            }
            Some(self.nic.path(&engine, &merged)?)
        } else {
            None
        };
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
            slot.send_cq.forget_qp(self.number);
            slot.recv_cq.forget_qp(self.number);
        }
        if is_reset || path.is_some() {
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
        Ok(self.slot(&mut self.nic.engine())?.qp.query())
    }

    /// Its state.
    ///
    /// # Errors
    /// [`Error::Gone`] after it was destroyed.
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.slot(&mut self.nic.engine())?.qp.state())
    }

    /// Begins a list of send requests. They go out when the poster is dropped.
    #[must_use]
    pub fn poster(&self) -> SendPoster<'_> {
        SendPoster {
            qp: self,
            engine: self.nic.engine(),
        }
    }

    /// Queues a receive request.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let mut engine = self.nic.engine();
        let events = Arc::clone(&engine.events);
        let slot = self.slot(&mut engine)?;
        slot.qp.post_recv(request)?;
        if slot.qp.state() == QpState::Error {
            slot.deliver(&events);
        }
        Ok(())
    }

    /// Ends it: what it owes its peer is sent, its completions are forgotten.
    pub fn destroy(&self) {
        let mut engine = self.nic.engine();
        if self.slot(&mut engine).is_err() {
            return;
        }
        log::debug!("QP {} destroyed", self.number.get());
        engine.mark_ready(self.index);
        engine.transmit(now(), AckMode::Flush);
        engine.discard_outgoing();
        let _ = self.set_path(&mut engine, None);
        engine.remove(self.index);
        engine.memory.release_pd(self.init.pd.id());
        engine.events.forget_qp(self.number);
        for cq in [&self.init.send_cq, &self.init.recv_cq] {
            cq.forget_qp(self.number);
            cq.remove_user();
        }
    }

    /// The queue pair in the engine. Its index may have been given to another one since.
    fn slot<'a>(&self, engine: &'a mut Engine) -> Result<&'a mut Slot, Error> {
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
        let events = Arc::clone(&engine.events);
        if let Ok(slot) = self.slot(engine) {
            slot.deliver(&events);
        }
        self.nic.after(engine, now);
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// Takes send requests for one queue pair; holds the engine meanwhile. What was posted goes out when
/// it is dropped.
#[derive(Debug)]
pub struct SendPoster<'a> {
    qp: &'a Qp,
    engine: MutexGuard<'a, Engine>,
}

impl SendPoster<'_> {
    /// Queues a send request.
    ///
    /// # Errors
    /// Why it was not taken; earlier ones stand.
    pub fn post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        match self.qp.slot(&mut self.engine) {
            Ok(slot) => slot.qp.post_send(request),
            Err(_) => Err(PostError::State(QpState::Reset)),
        }
    }
}

impl Drop for SendPoster<'_> {
    fn drop(&mut self) {
        self.qp.settle(&mut self.engine);
    }
}
