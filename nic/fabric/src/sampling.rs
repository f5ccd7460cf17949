//! Notes queues and rates, from time to time.

use alloc::vec::Vec;

use crate::event::Event;
use crate::host::Host;
use crate::network::Network;
use crate::process::Role;
use crate::series::Point;
use crate::units::{PS_PER_NS, gbps};

/// Streams whose rates are noted.
const STREAMS_NOTED: usize = 16;

impl Network {
    /// Notes how things are, and plans the next time.
    pub(crate) fn sample(&mut self) {
        let Some(series_ns) = self.scenario.series_ns else {
            return;
        };
        let span = self.now - self.series.last_at;
        let received_bytes: u64 = self.hosts.iter().map(|host| host.received_bytes).sum();
        let host_ports = || self.hosts.iter().flat_map(Host::port_ids);
        let paused_ps = host_ports()
            .map(|port| self.paused_total_ps(port))
            .sum::<u64>();
        let ports = host_ports().count().max(1) as f64;
        let streams = self
            .processes
            .iter()
            .filter_map(|process| match process.role {
                Role::Sink(_) => Some(process.received_bytes),
                _ => None,
            });
        let stream_bytes: Vec<u64> = streams.take(STREAMS_NOTED + 1).collect();
        let is_few = stream_bytes.len() <= STREAMS_NOTED;
        let since = |index: usize, bytes: u64| {
            let before = self.series.stream_bytes.get(index).copied().unwrap_or(0);
            gbps(bytes - before, span)
        };
        let stream_gbps = stream_bytes.iter().enumerate().filter(|_| is_few);
        let switch_queues = self.switches.iter().flat_map(|switch| &switch.ports);
        let point = Point {
            at_ns: self.now / PS_PER_NS,
            queue_bytes: switch_queues
                .map(|port| self.ports[*port as usize].queue_bytes())
                .max()
                .unwrap_or(0),
            buffer_bytes: self
                .switches
                .iter()
                .map(|switch| switch.buffer.used)
                .max()
                .unwrap_or(0),
            paused_part: (paused_ps - self.series.paused_ps) as f64 / ports / span.max(1) as f64,
            notifications: self.totals.notifications - self.series.notifications,
            throughput_gbps: gbps(received_bytes - self.series.received_bytes, span),
            stream_gbps: stream_gbps
                .map(|(index, bytes)| since(index, *bytes))
                .collect(),
        };
        let series = &mut self.series;
        series.points.push(point);
        series.last_at = self.now;
        series.received_bytes = received_bytes;
        series.stream_bytes = stream_bytes;
        series.notifications = self.totals.notifications;
        series.paused_ps = paused_ps;
        self.schedule(self.now + series_ns * PS_PER_NS, Event::Sample);
    }
}
