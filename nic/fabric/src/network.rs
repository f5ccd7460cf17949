//! The clock, and everything that it moves.
//!
//! Events are few for what happens: a port that finds its wire free sends without one, and only a
//! port with more to send asks to be woken. A packet arrives at a switch when as much of it is
//! there as the switch waits for, and has gone through its pipeline. So the time of arrival already
//! holds the latency of the switch.

use alloc::vec::Vec;

use oorandom::Rand64;
use urxe_wire::Mtu;

use crate::cables::Sent;
use crate::capture::{Capture, Frame};
use crate::connection::Connection;
use crate::event::{ARRIVE, Ahead, ENGINE, ENTER, Event, FREE, Packed, RECEIVE};
use crate::flows::Flows;
use crate::host::Host;
use crate::packet::Pool;
use crate::port::{Port, PortDetails};
use crate::process::Process;
use crate::queue::EventQueue;
use crate::scenario::{HashFields, HostConfig, Incident, Scenario};
use crate::series::Series;
use crate::stream::ByteStream;
use crate::switch::SharedBuffer;
use crate::telemetry::Telemetry;
use crate::topology::Routes;
use crate::totals::Totals;
use crate::units::PS_PER_NS;

/// A switch.
#[derive(Debug)]
pub(crate) struct Switch {
    pub(crate) ports: Vec<u32>,
    pub(crate) buffer: SharedBuffer,
    pub(crate) salt: u64,
    /// Packets that came, by which ways are taken in turns.
    pub(crate) turn: u32,
}

/// A simulation. Make it with [`Self::new`], let time pass with [`Self::run`], and ask for
/// [`Self::outcome`].
#[derive(Debug)]
pub struct Network {
    pub(crate) scenario: Scenario,
    pub(crate) mtu: Mtu,
    /// Whether switches pause the senders of RDMA's data.
    pub(crate) has_pfc: bool,
    /// What they choose ways by.
    pub(crate) hash: HashFields,
    pub(crate) now: u64,
    pub(crate) end: u64,
    pub(crate) events: EventQueue<Packed>,
    pub(crate) pool: Pool,
    pub(crate) ports: Vec<Port>,
    /// By port.
    pub(crate) details: Vec<PortDetails>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) switches: Vec<Switch>,
    /// Of every host, as many as it has ports: the switch at a port, and the port there.
    pub(crate) leaves: Vec<(u32, u32)>,
    pub(crate) routes: Routes,
    pub(crate) connections: Vec<Connection>,
    pub(crate) streams: Vec<ByteStream>,
    pub(crate) processes: Vec<Process>,
    pub(crate) flows: Flows,
    /// Programs, or flows, that have to end before the run is over; 0 if time alone ends it.
    pub(crate) busy: u32,
    pub(crate) is_over: bool,
    /// Packets of a batch; empty between two, and kept for its capacity.
    pub(crate) fetched: Vec<u32>,
    /// As `fetched`, of what is looked at ahead.
    pub(crate) ahead: Ahead,
    /// Whether the network is so large that it gains by that.
    pub(crate) looks_ahead: bool,
    /// Whether nothing has changed since then by which packets choose ways.
    pub(crate) are_ways_known: bool,
    pub(crate) random: Rand64,
    pub(crate) totals: Totals,
    pub(crate) series: Series,
    pub(crate) capture: Option<Capture>,
    /// What packets carry for congestion control, if that needs it.
    pub(crate) telemetry: Option<Telemetry>,
    /// What had been sent when the last flow started.
    pub(crate) sent: Option<Sent>,
    /// When counting began, if it has.
    pub(crate) counts_from: Option<u64>,
}

impl Network {
    /// Simulated time, nanoseconds.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now / PS_PER_NS
    }

    /// When it ends at the latest, nanoseconds.
    #[must_use]
    pub const fn end_ns(&self) -> u64 {
        self.end / PS_PER_NS
    }

    pub(crate) const fn host_config(&self) -> &HostConfig {
        &self.scenario.host
    }

    /// Takes the packets that were recorded since the last time, in the order of time.
    pub fn take_frames(&mut self) -> Vec<Frame> {
        self.capture.as_mut().map_or_else(Vec::new, Capture::take)
    }

    /// A packet passes a port.
    pub(crate) fn record(&mut self, port: u32, packet: u32, at: u64) {
        if let Some(capture) = &mut self.capture {
            capture.record(port, self.pool.get(packet), &self.pool.body(packet), at);
        }
    }

    /// How long a port was paused up to now.
    pub(crate) fn paused_total_ps(&self, port: u32) -> u64 {
        let details = &self.details[port as usize];
        self.ports[port as usize].paused_total_ps(details, self.now)
    }

    /// Inlined, so that an event is a word from the beginning.
    #[inline(always)]
    pub(crate) fn schedule(&mut self, at: u64, event: Event) {
        self.events.schedule(at, Packed::new(event));
    }

    /// Lets up to `events` things happen. False once it is over: nothing is left to happen, all
    /// programs have ended, or time is up.
    pub fn run(&mut self, events: u64) -> bool {
        for _ in 0..events {
            if self.is_over {
                return false;
            }
            if self.events.is_at_end_of_window() && self.events.next_window() && self.looks_ahead {
                self.look_ahead();
            }
            let next = self.events.pop();
            let Some((at, event)) = next else {
                self.is_over = true;
                return false;
            };
            if at > self.end {
                self.now = self.end;
                self.is_over = true;
                return false;
            }
            self.now = at;
            self.totals.events += 1;
            match event.kind() {
                ARRIVE => self.handle_arrival(event.place(), event.packet()),
                FREE => self.handle_free(event.place()),
                ENTER => self.handle_entry(event.place(), event.packet()),
                ENGINE => self.run_engine(event.place()),
                RECEIVE => self.handle_received(event.place(), event.packet()),
                _ => self.handle(event.event()),
            }
        }
        !self.is_over
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrive { port, packet } => self.handle_arrival(port, packet),
            Event::Free { port } => self.handle_free(port),
            Event::Enter { port, packet } => self.handle_entry(port, packet),
            Event::Engine { host } => self.run_engine(host),
            Event::Receive { host, packet } => self.handle_received(host, packet),
            Event::Deliver { host, packet } => self.handle_delivery(host, packet),
            Event::Look { host } => self.look_for_more(host),
            Event::Timer { connection } => self.handle_timer(connection),
            Event::Post { channel } => self.ring_doorbell(channel),
            Event::Write { stream } => self.go_on_writing(stream),
            Event::Start { process } => self.start(process),
            Event::Flow => self.next_flow(),
            Event::Message { index } => self.start_flow(index),
            Event::Pause { port, priority, on } => {
                let now = self.now;
                let details = &mut self.details[port as usize];
                self.ports[port as usize].set_paused(details, now, priority, on);
                self.pump(port);
            }
            Event::Credit { port, bytes } => self.handle_credit(port, bytes),
            Event::Incident { index, begins } => self.handle_incident(index, begins),
            Event::Reroute => self.reroute(),
            Event::Sample => self.sample(),
            Event::Count => self.begin_to_count(),
            Event::Watch => self.watch(),
        }
    }

    fn begin_to_count(&mut self) {
        self.counts_from = Some(self.now);
        for host in &mut self.hosts {
            host.received_before = host.received_bytes;
        }
    }

    pub(crate) fn incident(&self, index: u32) -> Option<Incident> {
        self.scenario.incidents.get(index as usize).copied()
    }
}
