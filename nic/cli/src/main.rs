//! `urxe`: gives unmodified RDMA programs a RoCEv2 device over plain UDP sockets.
mod devices;
mod library;
mod man;
mod ping;
mod processes;
mod program;
mod qp;
mod reach;
mod run;
mod stat;
mod sysfs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use urxe_device::{Delay, DeviceKind, Share};

/// Run unmodified RDMA programs over plain UDP sockets: no RDMA hardware, no kernel module, no
/// root.
#[derive(Parser)]
#[command(name = "urxe", version = env!("URXE_VERSION"), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program with urxe devices beside the RDMA devices that the machine has
    #[command(after_help = "Example: urxe run -- ib_send_lat -d urxe_eth0 -x 0 192.0.2.1")]
    Run(Run),
    /// List the devices that programs under `urxe run` see
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the counters of running programs
    ///
    /// Of every process of yours (of all users' for root) that has urxe queue pairs, in this
    /// network namespace. It does not stop or slow them.
    Stat(stat::Stat),
    /// Show the queue pairs of running programs, as `rdma resource show qp` does
    Qp {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Find out whether RoCEv2 gets through to a host
    #[command(after_help = PING_HELP)]
    Ping(ping::Ping),
    /// Copy the devices in /sys, with liburxe.so preloaded
    #[command(name = sysfs::COMMAND, hide = true)]
    CopySysfs {
        /// An empty folder
        to: PathBuf,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, for packages
    #[command(name = man::COMMAND, hide = true)]
    Man {
        /// The folder to write them to; without it, urxe(1) is printed
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// What `urxe ping` can know, and what not.
const PING_HELP: &str = "\
What it tells:
  urxe answers: the first urxe program with queue pairs at that address does (port 4791). Then round trip \
and path MTU are measured with RoCEv2 packets.
  the connection manager answers: another RoCEv2 stack is there (Linux rxe, a NIC).
  no: the host or a router said that there is nothing (ICMP).
  no answer: a RoCEv2 stack without a connection manager, a firewall, or no host at all.

Exit status: 0 RoCEv2 is there, 1 no, 3 no answer.";

/// Options of `urxe run`.
#[derive(clap::Args)]
struct Run {
    /// Write what goes over the wire to FILE, for Wireshark
    ///
    /// FILE is begun anew (pcapng). All processes of the program write to it; with %p in its name,
    /// each writes a file of its own, with its process ID in the name.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,

    /// Say on stderr what the device does: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", env = "URXE_LOG")]
    log: Option<String>,
    /// Mount the devices in /sys, for programs that read it without libc: all those written in Go
    ///
    /// In a mount namespace of the program's own: copies of what is there when it starts, with
    /// counters of 0. For other users than root in a user namespace.
    #[arg(long)]
    sysfs: bool,
    /// What the devices speak: roce, or iwarp, which is RDMA over TCP connections
    ///
    /// iWARP devices have reliable connections, which RDMA-CM sets up: rdma_cm programs, and those
    /// of perftest with -R. Both ends have to speak the same.
    #[arg(
        long,
        value_name = "TRANSPORT",
        env = urxe_device::TRANSPORT_VARIABLE,
        default_value = "roce",
        hide_default_value = true
    )]
    transport: DeviceKind,
    /// Give the devices GIDs of RoCE v1, too
    ///
    /// Its packets are Ethernet frames without IP and UDP, which no router passes on. The process
    /// needs CAP_NET_RAW for them (root has it). A program chooses it by the index of a GID, which
    /// is that of RoCE v2 plus 32: -x 32 of perftest, -g 32 of the pingpong programs,
    /// UCX_IB_GID_INDEX=32 of UCX. RDMA-CM goes on to use RoCE v2.
    #[arg(long)]
    roce_v1: bool,
    /// Start the program without a word, even if liburxe.so cannot get into it
    #[arg(long)]
    anyway: bool,
    /// The liburxe.so to load, instead of the one installed with this command
    #[arg(long, value_name = "FILE", env = library::VARIABLE)]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM [ARGS]"
    )]
    command: Vec<std::ffi::OsString>,
    #[command(flatten)]
    network: BadNetwork,
}

/// A bad network, on purpose.
#[derive(clap::Args)]
#[command(next_help_heading = "Bad network (packets that the program sends)")]
struct BadNetwork {
    /// Lose packets, e.g. 1%
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t,
        hide_default_value = true
    )]
    loss: Share,
    /// Send packets twice, e.g. 0.1%
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t,
        hide_default_value = true
    )]
    duplicate: Share,
    /// Let 1 to 3 later packets overtake, e.g. 0.5%
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t,
        hide_default_value = true
    )]
    reorder: Share,
    /// Flip 1 to 8 bits, e.g. 0.1%
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t,
        hide_default_value = true
    )]
    corrupt: Share,
    /// Delay all packets, e.g. 100us, 1.5ms, 2s
    #[arg(long, value_name = "TIME", default_value_t, hide_default_value = true)]
    delay: Delay,
    /// Which packets: the same seed strikes the same ones
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    // As other commands do, end quietly when the reader of a pipe has seen enough. Rust ignores the
    // signal. SAFETY: the default action of a signal, set before there is another thread.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let outcome = match Cli::parse().command {
        Command::Ping(options) => match ping::run(&options) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Run(options) => run::run(&options),
        Command::Devices { json } => devices::print(json),
        Command::Stat(options) => stat::print(&options),
        Command::Qp { json } => qp::print(json),
        Command::CopySysfs { to } => sysfs::copy_all(&to),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "urxe", &mut std::io::stdout());
            Ok(())
        }
        Command::Man { out } => man::write(Cli::command(), out.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("urxe: {error:#}");
            let status = error
                .downcast_ref::<program::NotRun>()
                .map_or(1, program::NotRun::exit_status);
            ExitCode::from(status)
        }
    }
}
