//! `rocelab-virtual`: reads a scenario (JSON) from standard input, simulates it, and writes what
//! came of it (JSON) to standard output. `docs/simulator.md` has the keys. Progress, if asked for,
//! goes to standard error, a line each: the part of simulated time that is over.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use urxe_fabric::{Network, Scenario};

/// Events between two looks at the clock.
const EVENTS_AT_ONCE: u64 = 100_000;
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Simulates a scenario in virtual time.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Record the cable that the scenario's `tap` names to this file, for Wireshark.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Say twice a second how far it is.
    #[arg(long)]
    progress: bool,
    /// Say at the end how fast it was, and how much memory it took.
    #[arg(long)]
    speed: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the scenario from standard input")?;
    let scenario: Scenario =
        serde_json::from_str(&text).context("this is not a scenario (docs/simulator.md)")?;
    if arguments.pcap.is_some() != scenario.tap.is_some() {
        bail!("--pcap and the scenario's tap go together: a file, and which cable to record");
    }
    let started = Instant::now();
    let mut network = Network::new(scenario).context("this scenario cannot be simulated")?;
    let made_s = started.elapsed().as_secs_f64();
    run(&mut network, arguments.progress);
    let outcome = network.outcome();
    if let Some(path) = arguments.pcap {
        write_pcap(&mut network, &path)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.speed {
        let ran_s = started.elapsed().as_secs_f64() - made_s;
        eprintln!(
            "{:.2} million packet hops per second ({:.2} s to make the network, {ran_s:.2} s to run it), peak memory {} MiB",
            outcome.packet_hops as f64 / ran_s / 1e6,
            made_s,
            peak_memory_bytes().map_or_else(|| "?".into(), |bytes| (bytes >> 20).to_string()),
        );
    }
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut out, &outcome)?;
    writeln!(out)?;
    Ok(())
}

fn run(network: &mut Network, tells: bool) {
    let mut told = Instant::now();
    while network.run(EVENTS_AT_ONCE) {
        if tells && told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("{} of {} ns", network.now_ns(), network.end_ns());
        }
    }
}

fn write_pcap(network: &mut Network, path: &PathBuf) -> Result<()> {
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(BufWriter::new(File::create(path)?), header)?;
    for frame in network.take_frames() {
        let len = u32::try_from(frame.bytes.len())?;
        let packet = PcapPacket::new(Duration::from_nanos(frame.at_ns), len, &frame.bytes);
        writer.write_packet(&packet)?;
    }
    Ok(())
}

/// The most memory that this process ever had, as the kernel counts it.
fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes << 10)
}
