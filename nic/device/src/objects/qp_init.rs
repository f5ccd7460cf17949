//! What a queue pair is made with, and whether that goes together.

use std::sync::Arc;

use urxe_proto::{Capacity, QpType};

use crate::engine::srq::domain::Xrcd;
use crate::engine::table::Receives;
use crate::memory::Pd;
use crate::objects::cq::Cq;
use crate::objects::srq::Srq;
use crate::process::error::Error;

/// What a queue pair is made with.
#[derive(Clone, Debug)]
pub struct QpInit {
    /// Its type.
    pub qp_type: QpType,
    /// Its protection domain. An XRC target has none.
    pub pd: Option<Pd>,
    /// Where sends complete. An XRC target has none.
    pub send_cq: Option<Arc<Cq>>,
    /// Where receives complete. XRC initiators and targets have none.
    pub recv_cq: Option<Arc<Cq>>,
    /// Where receives come from, if not from its own queue (RC, UC and UD).
    pub srq: Option<Arc<Srq>>,
    /// The domain of an XRC target.
    pub xrcd: Option<Xrcd>,
    /// How much it holds.
    pub capacity: Capacity,
}

impl QpInit {
    /// The same, with room for no receives where they come from elsewhere, whatever was asked for.
    pub(super) fn with_own_receives(&self) -> Self {
        let mut init = self.clone();
        if self.srq.is_some() || !self.qp_type.receives() {
            init.capacity.recv_requests = 0;
            init.capacity.recv_sges = 0;
        }
        init
    }

    pub(super) fn receives(&self) -> Receives {
        match (&self.srq, self.xrcd) {
            (Some(srq), _) => Receives::Shared(srq.number()),
            (None, Some(xrcd)) => Receives::Named(xrcd),
            (None, None) => Receives::Own,
        }
    }
}

/// Whether the objects are those that the type of queue pair needs.
pub(super) fn check_objects(init: &QpInit) -> Result<(), Error> {
    let qp_type = init.qp_type;
    let is_target = qp_type == QpType::XrcTarget;
    let wrong = [
        ("a protection domain", init.pd.is_some(), !is_target),
        ("a CQ for sends", init.send_cq.is_some(), qp_type.sends()),
        (
            "a CQ for receives",
            init.recv_cq.is_some(),
            qp_type.receives(),
        ),
        ("an XRC domain", init.xrcd.is_some(), is_target),
    ]
    .into_iter()
    .find(|(_, has, needs)| has != needs);
    if let Some((what, _, needs)) = wrong {
        let verb = if needs { "needs" } else { "cannot have" };
        return Err(Error::Invalid(format!(
            "a queue pair of type {qp_type:?} {verb} {what}"
        )));
    }
    if init.srq.is_some() && !qp_type.receives() {
        return Err(Error::Invalid(format!(
            "a queue pair of type {qp_type:?} cannot have a shared receive queue of its own"
        )));
    }
    Ok(())
}
