//! The TCP sockets of communication management: listeners, and connections that are being set up.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;

use urxe_proto::Instant;
use urxe_udp::{Interest, Private, Waiter};

use super::exchange::Exchange;

/// Connections that have not asked for anything yet, at most; then the oldest one ends. They have
/// ten seconds to.
const SILENT_MAX: usize = 512;
/// A listener whose connections cannot be taken in, because there are no descriptors left, is asked
/// again after so long. Its socket would tell of them all the time.
const REST_NS: u64 = 100_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Exchanges {
    pub(super) waiter: Waiter,
    last: u64,
    /// With the identifier that listens.
    pub(super) listeners: HashMap<u64, (u32, Private<TcpListener>)>,
    /// Listeners that are not watched until then.
    resting: Vec<(Instant, u64)>,
    all: HashMap<u64, (Exchange, Interest)>,
    /// Those that peers have begun and not asked for anything on, the oldest first.
    silent: Vec<u64>,
}

impl Exchanges {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            waiter: Waiter::new()?,
            last: 0,
            listeners: HashMap::new(),
            resting: Vec::new(),
            all: HashMap::new(),
            silent: Vec::new(),
        })
    }

    fn fresh_key(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Watches a listener for an identifier.
    pub(super) fn add_listener(
        &mut self,
        id: u32,
        listener: Private<TcpListener>,
    ) -> io::Result<()> {
        let key = self.fresh_key();
        self.waiter.add(&*listener, key, Interest::READ)?;
        self.listeners.insert(key, (id, listener));
        Ok(())
    }

    /// Does not watch a listener for a while.
    pub(super) fn rest(&mut self, key: u64, now: Instant) {
        if let Some((_, listener)) = self.listeners.get(&key) {
            let _ = self.waiter.remove(&**listener);
            self.resting.push((now.after(REST_NS), key));
        }
    }

    /// Watches the listeners again that have rested.
    fn wake(&mut self, now: Instant) {
        for (at, key) in std::mem::take(&mut self.resting) {
            let Some((_, listener)) = self.listeners.get(&key) else {
                continue;
            };
            if at > now {
                self.resting.push((at, key));
            } else if self.waiter.add(&**listener, key, Interest::READ).is_err() {
                self.resting.push((now.after(REST_NS), key));
            }
        }
    }

    /// Watches an exchange.
    pub(super) fn add(&mut self, exchange: Exchange, is_silent: bool) -> io::Result<u64> {
        let key = self.fresh_key();
        let interest = exchange.interest();
        self.waiter.add(&exchange, key, interest)?;
        self.all.insert(key, (exchange, interest));
        if is_silent {
            if self.silent.len() >= SILENT_MAX {
                let oldest = self.silent[0];
                self.remove(oldest);
            }
            self.silent.push(key);
        }
        Ok(key)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut Exchange> {
        self.all.get_mut(&key).map(|(exchange, _)| exchange)
    }

    /// Its peer has asked for something.
    pub(super) fn note_heard(&mut self, key: u64) {
        self.silent.retain(|other| *other != key);
    }

    /// Waits for what it wants now; its socket is another one than before if `is_new`.
    pub(super) fn watch(&mut self, key: u64, is_new: bool) {
        if let Some((exchange, interest)) = self.all.get_mut(&key) {
            let wanted = exchange.interest();
            // An unconnected socket has something, always.
            let watched = if exchange.is_refused() {
                let _ = self.waiter.remove(exchange);
                Ok(())
            } else if is_new {
                self.waiter.add(exchange, key, wanted)
            } else if wanted != *interest {
                self.waiter.modify(exchange, key, wanted)
            } else {
                Ok(())
            };
            if watched.is_ok() {
                *interest = wanted;
            }
        }
    }

    /// Ends the watch over it. Its socket may have another descriptor, so that closing this one
    /// would not.
    pub(super) fn remove(&mut self, key: u64) -> Option<Exchange> {
        self.note_heard(key);
        let (exchange, _) = self.all.remove(&key)?;
        let _ = self.waiter.remove(&exchange);
        Some(exchange)
    }

    /// Ends all that belongs to an identifier.
    pub(super) fn forget(&mut self, id: u32) {
        self.listeners.retain(|_, (listening, _)| *listening != id);
        let keys = self
            .all
            .iter()
            .filter(|(_, (exchange, _))| exchange.id == id);
        for key in keys.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    /// The sockets that have something, and the exchanges whose time has come.
    pub(super) fn due(&mut self, now: Instant) -> Vec<u64> {
        self.wake(now);
        let mut keys: Vec<u64> = match self.waiter.wait(Some(0)) {
            Ok(events) => events.iter().map(urxe_udp::Event::token).collect(),
            Err(_) => Vec::new(),
        };
        let timed = self
            .all
            .iter()
            .filter(|(_, (exchange, _))| exchange.deadline().is_some_and(|at| at <= now));
        keys.extend(timed.map(|(key, _)| *key));
        keys
    }

    /// When one is to be looked at, whatever comes.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let all = self.all.values();
        let all = all.filter_map(|(exchange, _)| exchange.deadline());
        all.chain(self.resting.iter().map(|(at, _)| *at)).min()
    }
}
