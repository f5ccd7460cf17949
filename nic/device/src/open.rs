//! Opening and closing a device, which the program and communication management share.

use std::io;
use std::sync::Arc;

use crate::attach::list::DeviceInfo;
use crate::cm;
use crate::delivery::events::{AsyncEvent, EventWait};
use crate::engine::port::{Kind, Ports};
use crate::forks;
use crate::nic::Nic;
use crate::nic::background;
use crate::process::blocking;
use crate::process::error::Error;
use crate::stat_server;

impl Nic {
    /// Opens a device, as the process's environment asks for ([`crate::Wiring::from_environment`]).
    /// If communication management has it open already, and no program uses it, it is that one: a
    /// peer then finds both on one port.
    ///
    /// # Errors
    /// As [`Self::open_wired`], or [`Error::Invalid`] for an environment that cannot be understood.
    pub fn open(info: &DeviceInfo) -> Result<Arc<Self>, Error> {
        match cm::sharing::claim(info) {
            Some(nic) => Ok(nic),
            None => Self::open_unshared(info),
        }
    }

    /// Ends the background thread, after what is owed to peers was sent; unless communication
    /// management goes on with the device.
    pub fn close(&self) {
        self.take_leave();
        if !cm::sharing::keeps(self) {
            self.progress().stop();
        }
    }

    /// Binds the sockets and starts the background thread, once.
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), Error> {
        forks::hold_all();
        self.follow_link();
        if self.is_iwarp() {
            self.start_streams(cm::stream_ended)?;
        } else {
            let mut engine = self.engine();
            if engine.sockets.is_none() {
                let ports = Ports::open(&self.gids(), Kind::of(self.info()), self.taps())?;
                log::info!(
                    "{}: UDP port {}",
                    self.info().name,
                    urxe_wire::ROCE_UDP_PORT + ports.slot
                );
                self.note_sockets(&ports);
                engine.sockets = Some(ports);
                engine.management = Some(cm::receive);
            }
        }
        stat_server::serve().unwrap_or_else(|error| {
            log::warn!("`urxe stat` will not see this process: {error}");
        });
        Ok(self.start_thread()?)
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let weak = Arc::downgrade(self);
        self.progress().start(move || background::run(&weak))
    }

    /// The next asynchronous event; waits for it unless [`Self::event_fd`] is non-blocking.
    ///
    /// # Errors
    /// EAGAIN or EINTR.
    pub fn next_event(self: &Arc<Self>) -> io::Result<AsyncEvent> {
        blocking::finish(self.begin_event_wait()?)
    }

    /// The same in steps.
    ///
    /// # Errors
    /// When the process has no threads left.
    pub fn begin_event_wait(self: &Arc<Self>) -> io::Result<EventWait> {
        // The thread looks after the interface, whose changes are events.
        self.start_thread()?;
        Ok(EventWait(Arc::clone(self.events())))
    }
}
