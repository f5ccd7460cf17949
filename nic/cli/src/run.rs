//! `urxe run`: becomes the program, with liburxe.so preloaded.
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use urxe_device::{
    DeviceKind, IMPAIR_VARIABLE, Impairment, PCAP_VARIABLE, ROCE_V1_VARIABLE, TRANSPORT_VARIABLE,
};

use crate::program::{self, NotRun};
use crate::{BadNetwork, Run, library, reach, sysfs};

/// How long a piece of a message is that UCX sends, its header included: nine packets of the
/// largest path MTU, so that a message of 32 KiB is one piece. Its own 8,256 bytes are two and a
/// short one, which ends a batch: a system call and an acknowledgement for each piece
/// (docs/mpi.md).
const UCX_PIECE: (&str, &str) = ("UCX_RC_VERBS_SEG_SIZE", "36864");

/// How many such pieces UCX has room for. Its own 4,095 would be 150 MB a process.
const UCX_ROOM: (&str, &str) = ("UCX_RC_VERBS_RX_QUEUE_LEN", "1024");

/// What keeps UCX from forgetting packets, on a network that loses some (docs/mpi.md). When UCX
/// stops polling for its own datagrams, it also stops the timer that would repeat them. If some are
/// not acknowledged by then, the connection is never made. It costs latency, so only such networks
/// have it.
const UCX_REPEATS: (&str, &str) = ("UCX_ADAPTIVE_PROGRESS", "n");

/// Replaces this process by the program; returns only if that fails.
pub(crate) fn run(options: &Run) -> Result<()> {
    if options.roce_v1 {
        urxe_device::check_roce_v1().context("--roce-v1")?;
    }
    if options.transport == DeviceKind::Iwarp {
        check_iwarp(options)?;
    }
    let library = library::find(options.library.as_deref())?;
    let (name, arguments) = options
        .command
        .split_first()
        .expect("clap requires a program");
    let program = program::find(name, std::env::var_os("PATH").as_deref())?;
    if !options.anyway {
        reach::check(&program, arguments, &library, options.sysfs)?;
    }
    let mut command = Command::new(&program);
    command
        .arg0(name)
        .args(arguments)
        .env("LD_PRELOAD", preload(&library));
    let impairment = Impairment::from(&options.network);
    if uses_rc_of_ucx(std::env::var_os("UCX_TLS")) {
        // Where the user says how long pieces are, there are as many as UCX thinks right.
        if set_unless_set(&mut command, UCX_PIECE) {
            set_unless_set(&mut command, UCX_ROOM);
        }
        if impairment.loses_packets() {
            set_unless_set(&mut command, UCX_REPEATS);
        }
    }
    if let Some(level) = &options.log {
        command.env("URXE_LOG", level);
    }
    if let Some(file) = &options.pcap {
        command.env(PCAP_VARIABLE, begin_capture(file)?);
    }
    if !impairment.is_none() {
        command.env(IMPAIR_VARIABLE, impairment.to_string());
    }
    let mut kind = Vec::new();
    if options.roce_v1 {
        kind.push((ROCE_V1_VARIABLE, "on"));
    }
    if options.transport == DeviceKind::Iwarp {
        kind.push((TRANSPORT_VARIABLE, "iwarp"));
    }
    command.envs(kind.iter().copied());
    if options.sysfs {
        sysfs::mount(&library, &kind)?;
    }
    let error = command.exec();
    Err(NotRun::NotExecutable(format!("cannot run {}: {error}", program.display())).into())
}

/// Refuses what is done to packets, which are the kernel's where the transport is TCP.
fn check_iwarp(options: &Run) -> Result<()> {
    ensure!(
        !options.roce_v1,
        "--roce-v1 gives RoCE devices another kind of packets; with --transport iwarp there are none"
    );
    ensure!(
        options.pcap.is_none() && Impairment::from(&options.network).is_none(),
        "with --transport iwarp, packets are the kernel's (TCP), and the options for captures and bad networks \
         do not reach them. Use tcpdump(8) for captures, and tc-netem(8) for a bad network"
    );
    Ok(())
}

impl From<&BadNetwork> for Impairment {
    fn from(network: &BadNetwork) -> Self {
        Self {
            loss: network.loss,
            duplicate: network.duplicate,
            reorder: network.reorder,
            corrupt: network.corrupt,
            delay: network.delay,
            seed: network.seed,
        }
    }
}

/// Whether it was set now.
fn set_unless_set(command: &mut Command, (variable, value): (&str, &str)) -> bool {
    let is_free = std::env::var_os(variable).is_none();
    if is_free {
        command.env(variable, value);
    }
    is_free
}

/// Whether UCX, restricted to these transports, uses RC; it warns of variables that no part of it
/// reads.
fn uses_rc_of_ucx(transports: Option<OsString>) -> bool {
    transports.is_none_or(|list| {
        let list = list.to_string_lossy();
        list.starts_with('^')
            || list
                .split(',')
                .any(|name| matches!(name, "all" | "ib" | "rc" | "rc_v" | "rc_verbs"))
    })
}

/// Empties the capture file, to which the program's processes will append; its absolute path. A
/// name with `%p` in it stands for as many files as there will be processes, none of which is there
/// yet.
fn begin_capture(file: &Path) -> Result<PathBuf> {
    let file = std::path::absolute(file)
        .with_context(|| format!("cannot make {} an absolute path", file.display()))?;
    if !file.to_string_lossy().contains("%p") {
        std::fs::File::create(&file)
            .with_context(|| format!("cannot write the capture {}", file.display()))?;
    }
    Ok(file)
}

/// LD_PRELOAD with the library first, before what is there already.
fn preload(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucx_is_told_only_what_it_reads() {
        let reads = |list: &str| uses_rc_of_ucx(Some(list.into()));
        assert!(uses_rc_of_ucx(None));
        assert!(reads("rc_v,self,sm") && reads("self,all") && reads("^tcp"));
        assert!(!reads("tcp,self,sm") && !reads("ud_verbs"));
    }
}
