//! `urxe stat --prometheus`: counters in Prometheus's text format, version 0.0.4, as
//! node_exporter's textfile collector reads it.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use urxe_device::{Counters, ProcessStat};

/// What the counters count, as docs/urxe.md has it.
const HELP: [(&str, &str); 46] = [
    ("bad_qkey", "Datagrams with a wrong Q_Key."),
    ("duplicate_request", "Requests that were executed before."),
    (
        "early_retransmissions",
        "Retransmissions after a silence shorter than the timeout.",
    ),
    (
        "ignored_responses",
        "Responses to nothing that is outstanding.",
    ),
    (
        "impaired_corrupted",
        "Packets corrupted by the bad network that was asked for.",
    ),
    (
        "impaired_delayed",
        "Packets delayed by the bad network that was asked for.",
    ),
    (
        "impaired_duplicated",
        "Packets duplicated by the bad network that was asked for.",
    ),
    (
        "impaired_lost",
        "Packets lost by the bad network that was asked for.",
    ),
    (
        "impaired_reordered",
        "Packets reordered by the bad network that was asked for.",
    ),
    (
        "implied_nak_seq_err",
        "Losses that a response to a later request implied.",
    ),
    (
        "local_ack_timeout_err",
        "Transport timeouts, each of which used up a retry.",
    ),
    ("np_cnp_sent", "Congestion notifications sent."),
    (
        "np_ecn_marked_roce_packets",
        "Packets received that a switch marked: congestion experienced.",
    ),
    (
        "out_of_buffer",
        "Messages for which no receive request was there.",
    ),
    ("out_of_sequence", "Requests that came ahead of their turn."),
    ("packet_seq_err", "Losses that a NAK reported."),
    (
        "qp_dropped",
        "Packets dropped: of another transport or partition, or in a state without receiving.",
    ),
    ("rnr_nak_retry_err", "NAKs received: receiver not ready."),
    (
        "rp_cnp_handled",
        "Congestion notifications that slowed a queue pair down.",
    ),
    (
        "rp_cnp_ignored",
        "Congestion notifications received while congestion control is off.",
    ),
    ("rx_batches", "System calls or frames that brought packets."),
    (
        "rx_buffer_drops",
        "Packets that the kernel dropped because the receive buffer was full.",
    ),
    ("rx_bytes", "Bytes of UDP payload received."),
    (
        "rx_copied_bytes",
        "iWARP: bytes of payload copied to their place from a buffer.",
    ),
    ("rx_errors", "Receives that failed."),
    (
        "rx_fpdu_crc_errors",
        "iWARP: messages of MPA with a wrong CRC.",
    ),
    ("rx_fpdus", "iWARP: messages of MPA received."),
    ("rx_frames", "Frames among what was received."),
    ("rx_icrc_encapsulated", "Packets with a wrong ICRC."),
    (
        "rx_ignored_bytes",
        "iWARP: bytes that came after the connection had failed.",
    ),
    ("rx_malformed", "Packets that are not RoCEv2."),
    ("rx_packets", "Packets received."),
    (
        "rx_placed_bytes",
        "iWARP: bytes of payload read from TCP to their place, without a second copy.",
    ),
    ("rx_terminates", "iWARP: TERMINATE messages received."),
    ("rx_unknown_qp", "Packets for no queue pair."),
    (
        "rx_without_receive",
        "iWARP: messages for which no receive request was there.",
    ),
    (
        "rx_wrong_source",
        "Packets that do not come from the queue pair's peer.",
    ),
    ("too_long", "Datagrams longer than the receive request."),
    ("tx_batches", "System calls or frames that carried packets."),
    ("tx_blocked", "Times that the send buffer was full."),
    ("tx_bytes", "Bytes of UDP payload sent."),
    ("tx_dropped", "Packets that the kernel refused."),
    ("tx_fpdus", "iWARP: messages of MPA sent."),
    ("tx_frames", "Frames among what was sent."),
    ("tx_packets", "Packets sent."),
    ("tx_terminates", "iWARP: TERMINATE messages sent."),
];

/// The labels of a series, in the order in which they are written. Series are sorted by process.
type Labels = (u32, Vec<(&'static str, String)>);

/// A metric: its type, what it is, and its series.
struct Metric {
    r#type: &'static str,
    help: String,
    series: BTreeMap<Labels, u64>,
}

/// Metrics by name.
#[derive(Default)]
struct Metrics(BTreeMap<String, Metric>);

impl Metrics {
    /// Adds to a series. What has the same labels is added up: contexts of one device, and
    /// processes of containers that have the same numbers. The format does not allow a series
    /// twice.
    fn add(&mut self, name: &str, r#type: &'static str, help: &str, labels: Labels, value: u64) {
        let metric = self.0.entry(name.to_owned()).or_insert_with(|| Metric {
            r#type,
            help: help.to_owned(),
            series: BTreeMap::new(),
        });
        let sum = metric.series.entry(labels).or_default();
        *sum = sum.saturating_add(value);
    }

    fn counters(&mut self, prefix: &str, of: &str, labels: &Labels, counters: &Counters) {
        for (name, value) in counters.iter().filter(|(name, _)| is_name(name)) {
            let help = HELP.iter().find(|(known, _)| known == name);
            let help = help.map_or("A counter that this version of urxe does not know.", |it| {
                it.1
            });
            let name = format!("urxe_{prefix}{name}_total");
            self.add(
                &name,
                "counter",
                &format!("{of}: {help}"),
                labels.clone(),
                *value,
            );
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (name, metric) in &self.0 {
            let help = metric.help.replace('\\', r"\\").replace('\n', r"\n");
            let r#type = metric.r#type;
            write!(out, "# HELP {name} {help}\n# TYPE {name} {type}\n").expect("it takes text");
            for ((_, labels), value) in &metric.series {
                let labels: Vec<_> = labels.iter().map(label).collect();
                let labels = labels.join(",");
                let labels = if labels.is_empty() {
                    labels
                } else {
                    format!("{{{labels}}}")
                };
                writeln!(out, "{name}{labels} {value}").expect("a string takes text");
            }
        }
        out
    }
}

/// Whether a counter of another process can be part of a metric's name.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

fn label((name, value): &(&'static str, String)) -> String {
    let value = value
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n");
    format!("{name}=\"{value}\"")
}

/// All metrics: those of devices, and with `queue_pairs` those of each queue pair, which have names
/// of their own, so that a sum over a metric counts nothing twice.
pub(super) fn text(processes: &[ProcessStat], queue_pairs: bool) -> String {
    let mut metrics = Metrics::default();
    let help = "Processes that told their counters.";
    metrics.add(
        "urxe_processes",
        "gauge",
        help,
        (0, Vec::new()),
        processes.len() as u64,
    );
    for process in processes {
        for device in &process.devices {
            let labels = vec![
                ("pid", process.pid.to_string()),
                ("comm", process.comm.clone()),
                ("device", device.device.clone()),
            ];
            let of_device = (process.pid, labels.clone());
            metrics.counters("", "Of a device", &of_device, &device.counters);
            for qp in &device.qps {
                let mut state = labels.clone();
                state.extend([("type", qp.r#type.clone()), ("state", qp.state.clone())]);
                let help = "Queue pairs by transport and state.";
                metrics.add("urxe_queue_pairs", "gauge", help, (process.pid, state), 1);
                if queue_pairs {
                    let mut labels = labels.clone();
                    labels.push(("qp", qp.lqpn.to_string()));
                    let of_qp = (process.pid, labels);
                    metrics.counters("qp_", "Of a queue pair", &of_qp, &qp.counters);
                }
            }
        }
    }
    metrics.text()
}

/// Writes the file so that a reader finds the old text or the new one, and never a part.
pub(super) fn replace(file: &Path, text: &str) -> Result<()> {
    let name = file.file_name().context("--out names no file")?;
    // The collector passes over names that do not end in .prom.
    let new = file.with_file_name(format!(
        ".{}.{}.new",
        name.to_string_lossy(),
        std::process::id()
    ));
    let written = std::fs::File::create(&new)
        .and_then(|mut new| new.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&new, file));
    if written.is_err() {
        // It may never have been there.
        let _ = std::fs::remove_file(&new);
    }
    written.with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use urxe_device::{DeviceStat, QpStat};

    fn process(pid: u32, comm: &str, rx_packets: u64) -> ProcessStat {
        let counters: Counters = [
            ("rx_packets".to_owned(), rx_packets),
            ("of tomorrow\n".to_owned(), 1),
        ]
        .into();
        let qp = |lqpn, state: &str| QpStat {
            lqpn,
            r#type: "RC".into(),
            state: state.into(),
            counters: counters.clone(),
            ..QpStat::default()
        };
        ProcessStat {
            pid,
            comm: comm.into(),
            devices: vec![DeviceStat {
                device: "urxe_eth0".into(),
                counters: counters.clone(),
                qps: vec![qp(17, "RTS"), qp(18, "RTS"), qp(19, "ERR")],
                ..DeviceStat::default()
            }],
            ..ProcessStat::default()
        }
    }

    #[test]
    fn metrics_have_help_type_and_series_in_a_stable_order() {
        let processes = [process(100, "b", 7), process(9, "a", 5)];
        let expected = "\
# HELP urxe_processes Processes that told their counters.
# TYPE urxe_processes gauge
urxe_processes 2
# HELP urxe_queue_pairs Queue pairs by transport and state.
# TYPE urxe_queue_pairs gauge
urxe_queue_pairs{pid=\"9\",comm=\"a\",device=\"urxe_eth0\",type=\"RC\",state=\"ERR\"} 1
urxe_queue_pairs{pid=\"9\",comm=\"a\",device=\"urxe_eth0\",type=\"RC\",state=\"RTS\"} 2
urxe_queue_pairs{pid=\"100\",comm=\"b\",device=\"urxe_eth0\",type=\"RC\",state=\"ERR\"} 1
urxe_queue_pairs{pid=\"100\",comm=\"b\",device=\"urxe_eth0\",type=\"RC\",state=\"RTS\"} 2
# HELP urxe_rx_packets_total Of a device: Packets received.
# TYPE urxe_rx_packets_total counter
urxe_rx_packets_total{pid=\"9\",comm=\"a\",device=\"urxe_eth0\"} 5
urxe_rx_packets_total{pid=\"100\",comm=\"b\",device=\"urxe_eth0\"} 7
";
        assert_eq!(text(&processes, false), expected);
        let reversed = [process(9, "a", 5), process(100, "b", 7)];
        assert_eq!(text(&reversed, false), expected);
        let with_qps = text(&processes, true);
        let series =
            "urxe_qp_rx_packets_total{pid=\"9\",comm=\"a\",device=\"urxe_eth0\",qp=\"17\"} 5\n";
        assert!(with_qps.contains(series), "{with_qps}");
    }

    #[test]
    fn without_processes_the_number_of_them_is_told() {
        assert!(text(&[], true).ends_with("\nurxe_processes 0\n"));
    }

    #[test]
    fn labels_are_escaped() {
        let all = text(&[process(1, "a\\b\"c\nd", 5)], false);
        assert!(all.contains("comm=\"a\\\\b\\\"c\\nd\","), "{all}");
        assert!(
            !all.contains("tomorrow"),
            "a name that cannot be one: {all}"
        );
    }

    #[test]
    fn contexts_of_one_device_are_one_series() {
        let mut twice = process(1, "a", u64::MAX);
        twice.devices.push(twice.devices[0].clone());
        twice.devices.push(process(1, "a", 5).devices.remove(0));
        let all = text(&[twice], true);
        let series: Vec<_> = all.lines().filter(|line| !line.starts_with('#')).collect();
        let mut names: Vec<_> = series
            .iter()
            .map(|line| line.rsplit_once(' ').unwrap().0)
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), series.len(), "{all}");
        assert!(all.contains(&format!("device=\"urxe_eth0\"}} {}\n", u64::MAX)));
    }

    #[test]
    fn a_file_is_replaced_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("urxe.prom");
        for text in ["a 1\n", "a 2\n"] {
            replace(&file, text).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        // A folder cannot be replaced by a file.
        let taken = folder.path().join("folder");
        std::fs::create_dir(&taken).unwrap();
        let error = replace(&taken, "").unwrap_err();
        assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
