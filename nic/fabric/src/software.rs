//! An adapter in software: what one processor does for the programs that it also runs.
//!
//! It fetches what came and sends, by turns, a batch at a time, as a progress engine on sockets
//! does. A batch takes a system call, a price for each packet (headers, state), and one for each
//! byte (copies, checksums). All packets of a batch leave, or are there, when its work is done.
//!
//! A batch is looked at once its last packet has come. Where that one is lost, it is once nothing
//! has come for as long as a program takes to see what the kernel has.

use crate::adapter::Started;
use crate::event::Event;
use crate::network::Network;
use crate::packet::{LAST, Packet};
use crate::scenario::SoftwareConfig;
use crate::units::{PS_PER_NS, Pace};

impl Network {
    /// A packet has reached the socket.
    pub(crate) fn handle_delivery(&mut self, host: u32, packet: u32) {
        let is_last = self.pool.get(packet).is(LAST);
        let now = self.now;
        let host_state = &mut self.hosts[host as usize];
        host_state.inbox.push_back(packet);
        host_state.came_at = now;
        if is_last {
            self.wake_engine(host);
        } else if !host_state.is_looked_for {
            host_state.is_looked_for = true;
            self.look_later(host);
        }
    }

    /// Looks again when nothing has come for so long.
    fn look_later(&mut self, host: u32) {
        let patience_ns = self.host_config().software.map_or(0, |it| it.latency_ns);
        let at = self.hosts[host as usize].came_at + patience_ns * PS_PER_NS;
        self.schedule(at, Event::Look { host });
    }

    /// A batch went on when this event was scheduled: fetches what is there if no more has come.
    pub(crate) fn look_for_more(&mut self, id: u32) {
        let now = self.now;
        let patience_ns = self.host_config().software.map_or(0, |it| it.latency_ns);
        let host = &mut self.hosts[id as usize];
        let goes_on = now < host.came_at + patience_ns * PS_PER_NS;
        host.is_looked_for = goes_on && !host.inbox.is_empty();
        if host.is_looked_for {
            self.look_later(id);
        } else if !host.inbox.is_empty() {
            self.wake_engine(id);
        }
    }

    /// Does the next batch, if the processor is free.
    pub(crate) fn run_software(&mut self, id: u32, config: &SoftwareConfig) {
        let host = &mut self.hosts[id as usize];
        let until = host.engine_free_at;
        if until > self.now {
            host.is_engine_woken = true;
            self.schedule(until, Event::Engine { host: id });
            return;
        }
        // By turns: acknowledgements must not wait until nothing comes any more.
        let has_fetched = core::mem::take(&mut host.has_fetched);
        if (!has_fetched && self.fetch_batch(id, config))
            || self.send_batch(id, config)
            || (has_fetched && self.fetch_batch(id, config))
        {
            self.wake_engine(id);
        }
    }

    fn fetch_batch(&mut self, id: u32, config: &SoftwareConfig) -> bool {
        let mut batch = Batch::new(config.receive_gbps, config);
        let mut packets = core::mem::take(&mut self.fetched);
        while let Some(packet) = self.hosts[id as usize].inbox.front().copied()
            && batch.takes(self.pool.get(packet))
        {
            self.hosts[id as usize].inbox.pop_front();
            packets.push(packet);
        }
        let (call_ns, packet_ps) = (self.host_config().receive_ns, self.host_config().packet_ps);
        let done_at = self.work_on(id, &batch, call_ns, packet_ps);
        for packet in packets.drain(..) {
            self.schedule(done_at, Event::Receive { host: id, packet });
        }
        self.fetched = packets;
        self.hosts[id as usize].has_fetched = batch.packets > 0;
        batch.packets > 0
    }

    /// A batch is of one queue pair.
    fn send_batch(&mut self, id: u32, config: &SoftwareConfig) -> bool {
        let mut batch = Batch::new(config.send_gbps, config);
        let mut packets = core::mem::take(&mut self.fetched);
        let Some(index) = self.hosts[id as usize].next_port() else {
            self.fetched = packets;
            return false;
        };
        while packets.is_empty()
            && let Some(channel) = self.hosts[id as usize].ports[index].ready.pop_front()
        {
            while batch.has_room()
                && let Some(Started { packet, body, .. }) = self.next_packet(channel)
            {
                batch.add(&packet);
                packets.push(self.pool.insert(packet, &body));
            }
            if self.connections[channel as usize].is_ready {
                self.hosts[id as usize].ports[index]
                    .ready
                    .push_back(channel);
            }
        }
        let call_ns = self.host_config().send_ns;
        let packet_ps = config.send_packet_ns * PS_PER_NS;
        let done_at = self.work_on(id, &batch, call_ns, packet_ps);
        let port = self.hosts[id as usize].ports[index].id;
        if let Some(last) = packets.last() {
            self.pool.get_mut(*last).set(LAST);
        }
        for packet in packets.drain(..) {
            self.pool.get_mut(packet).tail_at = done_at;
            self.schedule(done_at, Event::Enter { port, packet });
        }
        self.fetched = packets;
        batch.packets > 0
    }

    /// The processor works on a batch: until when.
    fn work_on(&mut self, id: u32, batch: &Batch, call_ns: u64, packet_ps: u64) -> u64 {
        let host = &mut self.hosts[id as usize];
        if batch.packets > 0 {
            let each_ps = u64::from(batch.packets) * packet_ps;
            host.engine_free_at =
                self.now + call_ns * PS_PER_NS + each_ps + batch.pace.of_bytes(batch.bytes);
        }
        host.engine_free_at
    }
}

/// What is together.
struct Batch {
    pace: Pace,
    bytes: u64,
    packets: u32,
    config: SoftwareConfig,
}

impl Batch {
    fn new(rate_gbps: f64, config: &SoftwareConfig) -> Self {
        Self {
            pace: Pace::of_gbps(rate_gbps),
            bytes: 0,
            packets: 0,
            config: *config,
        }
    }

    /// Whether another packet may join.
    const fn has_room(&self) -> bool {
        self.packets < self.config.batch_packets && self.bytes < self.config.batch_bytes as u64
    }

    fn add(&mut self, packet: &Packet) {
        self.packets += 1;
        self.bytes += u64::from(packet.payload_bytes);
    }

    fn takes(&mut self, packet: &Packet) -> bool {
        let takes = self.has_room();
        if takes {
            self.add(packet);
        }
        takes
    }
}
