//! `urxe run --sysfs`: the devices in `/sys` for a program that is linked with its own libc, into
//! which nothing can be preloaded. Programs written in Go see `/sys` as it does.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const DEVICE: &str = "/sys/class/infiniband/urxe_lo/";
const FUNCTION: &str = "/sys/class/infiniband/urxe_lo/device/";
const VERBS: &str = "/sys/class/infiniband_verbs";

/// Compiles the program that lists; `None` (which is said) if this machine cannot link it so.
fn lister(folder: &Path, options: &[&str]) -> Option<PathBuf> {
    let program = folder.join(format!("tree{}", options.concat()));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"])
        .args(options)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/tree.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is needed (Debian: apt-get install gcc)");
    if !options.is_empty() && !output.status.success() {
        eprintln!("skipped: sysfs needs a static libc (Debian: libc6-dev)");
        return None;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(program)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("liburxe.so")
}

fn urxe(options: &[&str], program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urxe"));
    command.env_remove("LD_PRELOAD");
    command.arg("run").arg("--library").arg(library());
    command.args(options).arg("--").arg(program).args(arguments);
    command
}

fn output(command: &mut Command) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status}\n{}", text(&stderr));
    assert_eq!(text(&stderr), "");
    text(&stdout)
}

fn left_behind(folder: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn a_program_without_our_library_sees_what_others_see() {
    let folder = tempfile::tempdir().unwrap();
    let Some(alone) = lister(folder.path(), &["-static"]) else {
        return;
    };
    let usual = lister(folder.path(), &[]).unwrap();
    let places = [DEVICE, FUNCTION, VERBS];
    let seen = output(&mut urxe(&[], &usual, &places));
    assert!(
        seen.contains("node_guid") && seen.contains("/vendor 0xf0ce\\n"),
        "{seen}"
    );
    let stage = tempfile::tempdir().unwrap();
    let with = |program| output(urxe(&["--sysfs"], program, &places).env("TMPDIR", stage.path()));
    assert_eq!(with(&alone), seen);
    assert_eq!(with(&usual), seen);
    // Without the option it sees nothing, and neither does anything else now.
    let without = urxe(&[], &alone, &places[..1]).output().unwrap();
    assert!(!without.status.success(), "{}", text(&without.stdout));
    assert!(!Path::new(DEVICE).exists());
    assert_eq!(left_behind(stage.path()), [] as [&str; 0]);
}

#[test]
fn what_the_kernel_shows_is_still_there_and_everything_once() {
    let sh = Path::new("/bin/sh");
    let kernels = |options| {
        let script = "ls /sys/class /sys/devices; cat /sys/class/net/lo/ifindex; ls /sys/bus/pci/devices | sort | uniq -d";
        output(&mut urxe(options, sh, &["-c", script]))
    };
    assert_eq!(kernels(&["--sysfs"]), kernels(&[]));
    let written =
        "! touch /sys/class/new 2>/dev/null && ! touch /sys/class/infiniband/new 2>/dev/null";
    output(&mut urxe(&["--sysfs"], sh, &["-c", written]));
}

#[test]
fn an_ordinary_user_has_it_too_and_stays_itself() {
    // SAFETY: cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return; // The other tests are of an ordinary user then.
    }
    let other = |command: &Command| {
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        other.arg(command.get_program()).args(command.get_args());
        other
    };
    let urxe = urxe(
        &["--sysfs"],
        Path::new("/bin/sh"),
        &["-c", "id -u; ls /sys/class/infiniband"],
    );
    let mut reaches = Command::new(env!("CARGO_BIN_EXE_urxe"));
    reaches.arg("--version");
    if !other(&reaches)
        .output()
        .is_ok_and(|output| output.status.success())
    {
        eprintln!("skipped: an ordinary user needs to reach the programs under test");
        return;
    }
    let seen = output(&mut other(&urxe));
    assert!(
        seen.starts_with("65534\n") && seen.contains("urxe_lo\n"),
        "{seen}"
    );
}
