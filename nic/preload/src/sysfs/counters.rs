//! The counters of a port: what the contexts count that this process has open
//! ([`urxe_device::counters_of`]).
use urxe_device::{Counters, DeviceInfo};

use super::node::Node;

/// A file, and the counters that it sums up.
pub(super) struct Counter {
    pub(super) name: &'static str,
    of: &'static [&'static str],
    /// Bytes of what it counts in, where it counts bytes.
    unit_bytes: u64,
}

const fn counter(name: &'static str, of: &'static [&'static str]) -> Counter {
    Counter {
        name,
        of,
        unit_bytes: 1,
    }
}

/// Of what never happens to a device that is made of sockets.
const fn never(name: &'static str) -> Counter {
    counter(name, &[])
}

/// Of data, in words of four bytes (IBTA 16.1.3.5).
const fn words(name: &'static str, of: &'static [&'static str]) -> Counter {
    Counter {
        name,
        of,
        unit_bytes: 4,
    }
}

/// Those of the specification (IBTA 16.1.3.5, `PortCounters`), as the kernel names them.
pub(super) const STANDARD: &[Counter] = &[
    never("VL15_dropped"),
    counter("excessive_buffer_overrun_errors", &["rx_buffer_drops"]),
    never("link_downed"),
    never("link_error_recovery"),
    never("local_link_integrity_errors"),
    never("port_rcv_constraint_errors"),
    words("port_rcv_data", &["rx_bytes"]),
    counter("port_rcv_errors", &["rx_icrc_encapsulated", "rx_malformed"]),
    counter("port_rcv_packets", &["rx_packets"]),
    never("port_rcv_remote_physical_errors"),
    never("port_rcv_switch_relay_errors"),
    never("port_xmit_constraint_errors"),
    words("port_xmit_data", &["tx_bytes"]),
    counter("port_xmit_discards", &["tx_dropped"]),
    counter("port_xmit_packets", &["tx_packets"]),
    counter("port_xmit_wait", &["tx_blocked"]),
    never("symbol_error"),
];

/// Those that Linux rxe has, by its names, and those that mlx5 has, by its own.
pub(super) const HARDWARE: &[Counter] = &[
    counter(
        "completer_retry_err",
        &[
            "implied_nak_seq_err",
            "local_ack_timeout_err",
            "packet_seq_err",
        ],
    ),
    counter("duplicate_request", &["duplicate_request"]),
    counter("implied_nak_seq_err", &["implied_nak_seq_err"]),
    // How long a value is kept, milliseconds: every read is of what is counted now.
    never("lifespan"),
    counter("local_ack_timeout_err", &["local_ack_timeout_err"]),
    counter("np_cnp_sent", &["np_cnp_sent"]),
    counter(
        "np_ecn_marked_roce_packets",
        &["np_ecn_marked_roce_packets"],
    ),
    counter("out_of_buffer", &["out_of_buffer"]),
    counter("out_of_seq_request", &["out_of_sequence"]),
    counter("out_of_sequence", &["out_of_sequence"]),
    counter("packet_seq_err", &["packet_seq_err"]),
    counter("rcvd_pkts", &["rx_packets"]),
    counter("rcvd_rnr_err", &["rnr_nak_retry_err"]),
    counter("rcvd_seq_err", &["packet_seq_err"]),
    counter("rnr_nak_retry_err", &["rnr_nak_retry_err"]),
    counter("rp_cnp_handled", &["rp_cnp_handled"]),
    counter("rp_cnp_ignored", &["rp_cnp_ignored"]),
    counter("rx_icrc_encapsulated", &["rx_icrc_encapsulated"]),
    counter("send_err", &["tx_dropped"]),
    counter("sent_pkts", &["tx_packets"]),
];

impl Counter {
    /// Its file, as of now.
    pub(super) fn read(&self, info: &DeviceInfo) -> Node {
        let counted = if self.of.is_empty() {
            Counters::new()
        } else {
            urxe_device::counters_of(&info.name)
        };
        Node::line(self.value(&counted).to_string())
    }

    fn value(&self, counted: &Counters) -> u64 {
        let of = self.of.iter();
        let sum: u64 = of.filter_map(|name| counted.get(*name)).sum();
        sum / self.unit_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_counted_in_words_and_errors_are_summed_up() {
        let counted = Counters::from([
            ("tx_bytes".to_owned(), 4099),
            ("rx_malformed".to_owned(), 2),
            ("rx_icrc_encapsulated".to_owned(), 3),
        ]);
        let value = |name| {
            let found = STANDARD.iter().find(|counter| counter.name == name);
            found.unwrap().value(&counted)
        };
        assert_eq!(value("port_xmit_data"), 1024);
        assert_eq!(value("port_rcv_errors"), 5);
        assert_eq!(value("port_rcv_data"), 0);
        assert_eq!(value("symbol_error"), 0);
    }
}
