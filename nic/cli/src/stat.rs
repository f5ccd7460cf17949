//! `urxe stat`: the counters of the processes that use urxe devices.
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use urxe_device::{Counters, DeviceStat, ProcessStat, QpStat, STAT_SCHEMA};

use crate::processes;

mod prometheus;

/// Options of `urxe stat`.
#[derive(clap::Args)]
pub(crate) struct Stat {
    /// Print JSON; with --watch, one line each time
    #[arg(long)]
    json: bool,
    /// Print again every so many seconds, with what changed per second
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = seconds
    )]
    watch: Option<Duration>,
    /// Print counters that are zero, too
    #[arg(long)]
    all: bool,
    /// Print the text format of Prometheus, e.g. for node_exporter's textfile collector
    #[arg(long, conflicts_with_all = ["json", "watch", "all"])]
    prometheus: bool,
    /// Write to FILE, which is replaced as a whole; name it *.prom for node_exporter
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    out: Option<PathBuf>,
    /// With --prometheus: the counters of each queue pair, too
    #[arg(long, requires = "prometheus")]
    queue_pairs: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    processes: &'a [ProcessStat],
}

/// A counter's place: process, device, queue pair (none is the device itself), name.
type Place = (u32, String, Option<u32>, String);

/// The counters of the time before, to tell what changed since.
#[derive(Default)]
struct Before {
    values: HashMap<Place, u64>,
    at: Option<Instant>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| format!("'{text}' is not a number of seconds"))?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err(format!("'{text}' is not between 0.1 and 86400 seconds"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Prints the counters, once or until it is ended.
pub(crate) fn print(options: &Stat) -> Result<()> {
    if options.prometheus {
        let text = prometheus::text(&processes::all()?, options.queue_pairs);
        if let Some(file) = &options.out {
            return prometheus::replace(file, &text);
        }
        return Ok(std::io::stdout().write_all(text.as_bytes())?);
    }
    let Some(interval) = options.watch else {
        return print_once(options, &mut Before::default());
    };
    let mut before = Before::default();
    loop {
        if !options.json && std::io::stdout().is_terminal() {
            // Home, and erase what is below (ECMA-48).
            print!("\x1b[H\x1b[J");
        }
        print_once(options, &mut before)?;
        std::io::stdout().flush()?;
        std::thread::sleep(interval);
    }
}

fn print_once(options: &Stat, before: &mut Before) -> Result<()> {
    let processes = processes::all()?;
    let mut out = std::io::stdout().lock();
    if options.json {
        let document = Document {
            schema: STAT_SCHEMA,
            processes: &processes,
        };
        let text = if options.watch.is_some() {
            serde_json::to_string(&document)?
        } else {
            serde_json::to_string_pretty(&document)?
        };
        writeln!(out, "{text}")?;
    } else if processes.is_empty() {
        writeln!(
            out,
            "no process of yours uses a urxe device in this network namespace"
        )?;
    } else {
        let now = Instant::now();
        let elapsed = before.at.map(|at| now.duration_since(at));
        write!(out, "{}", text(&processes, options.all, before, elapsed))?;
        before.at = Some(now);
    }
    Ok(())
}

/// A paragraph per process and device: its counters, then those of each queue pair.
fn text(
    processes: &[ProcessStat],
    all: bool,
    before: &mut Before,
    elapsed: Option<Duration>,
) -> String {
    let mut lines = Lines {
        out: String::new(),
        all,
        elapsed,
        before: std::mem::take(&mut before.values),
        now: HashMap::new(),
    };
    for process in processes {
        for device in &process.devices {
            lines.device(process, device);
        }
    }
    before.values = lines.now;
    lines.out
}

struct Lines {
    out: String,
    all: bool,
    elapsed: Option<Duration>,
    before: HashMap<Place, u64>,
    now: HashMap<Place, u64>,
}

impl Lines {
    fn device(&mut self, process: &ProcessStat, device: &DeviceStat) {
        let port = device
            .udp_port
            .map_or(String::new(), |port| format!(", UDP port {port}"));
        let own_user = rustix::process::geteuid().as_raw();
        let user = process.uid.filter(|user| *user != own_user);
        let user = user.map_or(String::new(), |user| format!(" of user {user}"));
        self.line(&format!(
            "{} (process {}{user}): {}{port}",
            process.comm, process.pid, device.device
        ));
        let place = (process.pid, device.device.as_str());
        self.counters(place, None, &device.counters);
        for qp in &device.qps {
            self.line(&format!("  {}", headline(qp)));
            self.counters(place, Some(qp.lqpn), &qp.counters);
        }
    }

    fn counters(&mut self, (pid, device): (u32, &str), qp: Option<u32>, counters: &Counters) {
        let indent = if qp.is_some() { 4 } else { 2 };
        let all = self.all;
        for (name, value) in counters.iter().filter(|(_, value)| all || **value > 0) {
            let place = (pid, device.to_owned(), qp, name.clone());
            let width = 32 - indent;
            let mut line = format!("{:indent$}{name:width$} {value:>14}", "");
            if let (Some(elapsed), Some(before)) = (self.elapsed, self.before.get(&place)) {
                let rate = value.saturating_sub(*before) as f64 / elapsed.as_secs_f64();
                if rate > 0.0 {
                    write!(line, " {rate:>+12.0}/s").expect("a string takes text");
                }
            }
            self.line(&line);
            self.now.insert(place, *value);
        }
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }
}

/// What a queue pair is, in a line.
fn headline(qp: &QpStat) -> String {
    let mut line = format!("QP {} {} {}", qp.lqpn, qp.r#type, qp.state);
    if let (Some(number), Some(address)) = (qp.rqpn, &qp.remote_address) {
        write!(line, " to QP {number} at {address}").expect("a string takes text");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(rx_packets: u64) -> ProcessStat {
        let counters: Counters = [
            ("rx_packets".to_owned(), rx_packets),
            ("none".to_owned(), 0),
        ]
        .into();
        ProcessStat {
            pid: 12,
            comm: "prog".into(),
            uid: None,
            devices: vec![DeviceStat {
                device: "urxe_eth0".into(),
                udp_port: Some(4791),
                counters: counters.clone(),
                qps: vec![QpStat {
                    lqpn: 17,
                    rqpn: Some(18),
                    r#type: "RC".into(),
                    state: "RTS".into(),
                    remote_address: Some("192.0.2.2".into()),
                    counters,
                    ..QpStat::default()
                }],
                ..DeviceStat::default()
            }],
            ..ProcessStat::default()
        }
    }

    #[test]
    fn zeros_are_left_out_and_changes_shown() {
        let mut before = Before::default();
        let first = text(&[process(5)], false, &mut before, None);
        assert_eq!(
            first,
            "prog (process 12): urxe_eth0, UDP port 4791\n\
             \x20 rx_packets                                  5\n\
             \x20 QP 17 RC RTS to QP 18 at 192.0.2.2\n\
             \x20   rx_packets                                5\n"
        );
        let second = Duration::from_secs(2);
        let later = text(&[process(25)], true, &mut before, Some(second));
        assert!(later.contains(" 25          +10/s\n"), "{later}");
        assert_eq!(later.matches("none").count(), 2, "{later}");
    }

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "NaN", "x", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
