//! Shared receive queues and XRC domains.

use std::sync::Arc;

use urxe_proto::{PostError, RecvRequest, SharedReceiveQueue};
use urxe_wire::Srqn;

use crate::engine::srq::domain::Xrcd;
use crate::engine::srq::table::{Entry, GONE};
use crate::memory::Pd;
use crate::nic::Nic;
use crate::objects::cq::Cq;
use crate::process::error::Error;

/// What a shared receive queue is made with.
#[derive(Clone, Debug)]
pub struct SrqInit {
    /// Its protection domain.
    pub pd: Pd,
    /// Requests that it holds at most.
    pub max_requests: u32,
    /// Scatter/gather elements of a request at most.
    pub max_sges: u32,
    /// Fewer requests than this raise
    /// [`SrqEvent::LimitReached`](urxe_proto::SrqEvent::LimitReached), once; 0 for none.
    pub limit: u32,
    /// What makes it one for XRC.
    pub xrc: Option<XrcSrqInit>,
}

/// What an XRC shared receive queue is made with, besides.
#[derive(Clone, Debug)]
pub struct XrcSrqInit {
    /// Its domain.
    pub xrcd: Xrcd,
    /// Where its receives complete.
    pub cq: Arc<Cq>,
}

/// What can be changed of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Requests that it holds at most.
    pub max_requests: u32,
    /// Scatter/gather elements of a request at most.
    pub max_sges: u32,
    /// The limit that is armed; 0 after it was reached.
    pub limit: u32,
}

/// A shared receive queue. Destroyed by [`Self::destroy`], or when dropped.
#[derive(Debug)]
pub struct Srq {
    nic: Arc<Nic>,
    number: Srqn,
}

impl Nic {
    /// Makes an XRC domain.
    #[must_use]
    pub fn alloc_xrcd(&self) -> Xrcd {
        let mut engine = self.engine();
        engine.srqs.next_domain += 1;
        let xrcd = Xrcd(engine.srqs.next_domain);
        engine.srqs.domains.insert(xrcd, 0);
        xrcd
    }

    /// Ends an XRC domain.
    ///
    /// # Errors
    /// [`Error::Busy`] while shared receive queues or queue pairs belong to it.
    pub fn dealloc_xrcd(&self, xrcd: Xrcd) -> Result<(), Error> {
        let mut engine = self.engine();
        match engine.srqs.domains.get(&xrcd) {
            None => Err(Error::Gone("the XRC domain")),
            Some(0) => {
                engine.srqs.domains.remove(&xrcd);
                Ok(())
            }
            Some(_) => Err(Error::Busy("the XRC domain")),
        }
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes above the limits.
    pub fn create_srq(self: &Arc<Self>, init: &SrqInit) -> Result<Arc<Srq>, Error> {
        self.check_srq(init.max_requests, init.max_sges, init.limit)?;
        let mut engine = self.engine();
        let number = engine.srqs.fresh_number()?;
        engine.memory.use_pd(init.pd)?;
        if let Some(xrc) = &init.xrc {
            if let Err(error) = engine.srqs.use_domain(xrc.xrcd) {
                engine.memory.release_pd(init.pd.id());
                return Err(error);
            }
            xrc.cq.completions().add_user();
        }
        let mut queue = SharedReceiveQueue::new(init.pd.id(), init.max_requests, init.max_sges);
        queue.set_limit(init.limit);
        let entry = Entry {
            queue,
            xrc: init
                .xrc
                .as_ref()
                .map(|xrc| (xrc.xrcd, Arc::clone(xrc.cq.completions()))),
            users: 0,
        };
        engine.srqs.entries.insert(number, entry);
        Ok(Arc::new(Srq {
            nic: Arc::clone(self),
            number,
        }))
    }

    fn check_srq(&self, max_requests: u32, max_sges: u32, limit: u32) -> Result<(), Error> {
        let limits = self.limits();
        for (what, wanted, max) in [
            ("requests", max_requests, limits.max_srq_wr),
            ("scatter/gather elements", max_sges, limits.max_sge),
            ("requests as the limit", limit, max_requests),
        ] {
            if wanted > max {
                return Err(Error::Invalid(format!(
                    "{wanted} {what}; this shared receive queue may have at most {max}"
                )));
            }
        }
        if max_requests == 0 {
            return Err(Error::Invalid(
                "a shared receive queue of no requests".into(),
            ));
        }
        Ok(())
    }
}

impl Srq {
    /// Its number: what XRC packets name, and events.
    #[must_use]
    pub const fn number(&self) -> Srqn {
        self.number
    }

    fn with<T>(&self, run: impl FnOnce(&mut Entry) -> Result<T, Error>) -> Result<T, Error> {
        run(self
            .nic
            .engine()
            .srqs
            .entries
            .get_mut(&self.number)
            .ok_or(GONE)?)
    }

    /// Changes how many requests it holds at most, and arms the limit.
    ///
    /// # Errors
    /// [`Error::Invalid`]; nothing is changed then.
    pub fn modify(&self, max_requests: Option<u32>, limit: Option<u32>) -> Result<(), Error> {
        let before = self.query()?;
        let wanted = max_requests.unwrap_or(before.max_requests);
        let armed = limit.unwrap_or(before.limit);
        self.nic.check_srq(wanted, before.max_sges, armed)?;
        self.with(|entry| {
            if entry.queue.len() > wanted as usize {
                return Err(Error::Invalid(format!(
                    "{wanted} requests; {} are waiting",
                    entry.queue.len()
                )));
            }
            // The smaller limit first: it must fit both before and after.
            entry.queue.set_limit(0);
            entry.queue.resize(wanted);
            entry.queue.set_limit(armed);
            Ok(())
        })
    }

    /// What can be changed of it, as it is.
    ///
    /// # Errors
    /// [`Error::Gone`] after it was destroyed.
    pub fn query(&self) -> Result<SrqAttributes, Error> {
        self.with(|entry| {
            Ok(SrqAttributes {
                max_requests: entry.queue.capacity(),
                max_sges: entry.queue.max_sges(),
                limit: entry.queue.limit(),
            })
        })
    }

    /// Queues a receive request.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn post(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        let mut engine = self.nic.engine();
        let entry = engine.srqs.entries.get_mut(&self.number).ok_or(GONE)?;
        let posted: Result<(), PostError> = entry.queue.post(request);
        posted?;
        self.nic.resume_streams(&mut engine);
        Ok(())
    }

    /// Ends it. Its requests are forgotten.
    ///
    /// # Errors
    /// [`Error::Busy`] while queue pairs have it.
    pub fn destroy(&self) -> Result<(), Error> {
        let mut engine = self.nic.engine();
        if engine.srqs.entries.get(&self.number).ok_or(GONE)?.users > 0 {
            return Err(Error::Busy("the shared receive queue"));
        }
        if let Some(entry) = engine.srqs.entries.remove(&self.number) {
            engine.memory.release_pd(entry.queue.pd());
            if let Some((xrcd, completions)) = entry.xrc {
                engine.srqs.release_domain(xrcd);
                completions.remove_user();
            }
        }
        engine.events.forget_srq(self.number);
        Ok(())
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        let _ = self.destroy();
    }
}
