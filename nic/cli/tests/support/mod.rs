//! Scripts of `urxe` and programs under it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// What every script begins with: two ends of a program over loopback, and waiting for things to
/// happen.
pub(crate) const PRELUDE: &str = r#"
set -eu
cd "$OUT"
ip link set lo up
until_true() { # until_true WHAT COMMAND...: waits for a minute
    what=$1; shift
    for _ in $(seq 1200); do "$@" && return 0; sleep 0.05; done
    echo "never happened: $what"; exit 1
}
listens() { ss -Hltn | grep -q ":$1 "; }
start() { # start PORT SERVER-OPTIONS CLIENT-OPTIONS PROGRAM...: both ends, in the background
    port=$1 server_options=$2 client_options=$3; shift 3
    timeout --kill-after=1 120 urxe run $server_options -- "$@" >server 2>&1 &
    server=$!
    until_true "a server" listens "$port"
    timeout --kill-after=1 120 urxe run $client_options -- "$@" 127.0.0.1 >client 2>&1 &
    client=$!
}
finish() { # both ends succeed
    wait $client || { cat server client; echo "the client failed"; exit 1; }
    wait $server || { cat server client; echo "the server failed"; exit 1; }
}
shows() { urxe stat --json | grep -q "$1"; }
"#;

/// Scripts spin on all processors: one at a time.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library under test: cargo puts it where it puts this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("liburxe.so");
    assert!(
        library.is_file(),
        "cargo did not build {}",
        library.display()
    );
    library
}

/// `PATH` with the command under test in front.
pub(crate) fn path() -> std::ffi::OsString {
    let folder = Path::new(env!("CARGO_BIN_EXE_urxe")).parent().unwrap();
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let rest = std::env::split_paths(&rest).chain(["/usr/sbin".into(), "/sbin".into()]);
    std::env::join_paths(std::iter::once(folder.to_owned()).chain(rest)).unwrap()
}

/// The options of unshare that this user may use: root needs no user namespace.
pub(crate) fn namespace() -> Option<&'static [&'static str]> {
    const CHOICES: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    CHOICES.into_iter().find(|options| {
        let output = Command::new("unshare").args(*options).arg("true").output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Runs a script in a namespace and in `folder`. Its output, or `None` if this machine cannot run
/// it (which is said).
pub(crate) fn script(name: &str, needs: &[&str], folder: &Path, text: &str) -> Option<Output> {
    let path = path();
    let found =
        |program: &&str| std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let mut programs = needs.iter().chain(&["bash", "ip", "ss", "unshare"]);
    if let Some(missing) = programs.find(|program| !found(program)) {
        eprintln!("skipped: {name} needs {missing}, which is not installed");
        return None;
    }
    let Some(options) = namespace() else {
        eprintln!("skipped: {name} needs network namespaces, which are not permitted");
        return None;
    };
    let _turn = turn();
    let output = Command::new("unshare")
        .args(options)
        .args(["bash", "-c", &format!("{PRELUDE}\n{text}")])
        .env("PATH", &path)
        .env("URXE_LIBRARY", library())
        .env("OUT", folder)
        .env_remove("URXE_LOG")
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", shown(&output));
    Some(output)
}

pub(crate) fn shown(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "{}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    )
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn json(folder: &Path, file: &str) -> Value {
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}: {text}"))
}
