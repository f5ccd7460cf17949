//! Shell scripts in network namespaces of their own: how the tests run unmodified programs.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use super::{library, shown};

/// Runs in a network namespace of its own. Pieces of the script: `$PRELOAD` before a program gives
/// it our devices, `pair SERVER -- CLIENT` runs two of them.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [&'static str],
    /// Where the server is, from the client's side.
    pub(crate) two_namespaces: bool,
    pub(crate) text: String,
}

/// Sets up one namespace (loopback), or two that are joined by a veth pair, and defines `pair`.
const PRELUDE: &str = r#"
set -eu
ip link set lo up
if [ "$TWO" = 1 ]; then
    unshare --net sleep 600 &
    peer=$!
    trap 'kill $peer' EXIT
    while [ "$(readlink /proc/$peer/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    ip link add eth0 type veth peer name eth0 netns "$peer"
    at_peer() { nsenter --target "$peer" --net "$@"; }
    ip address add 192.0.2.1/24 dev eth0
    at_peer ip address add 192.0.2.2/24 dev eth0
    ip link set eth0 up
    at_peer ip link set eth0 up
    # The kernel says "running" up to a second after it carries packets.
    for side in '' at_peer; do
        until $side ip -o link show eth0 | grep -q 'state UP'; do sleep 0.05; done
    done
    device=urxe_eth0 address=192.0.2.2
else
    at_peer() { "$@"; }
    device=urxe_lo address=127.0.0.1
fi
preloaded() { timeout --kill-after=1 120 env LD_PRELOAD="$LIBRARY" "$@"; }
listens() { at_peer ss -Hltn | grep -q ":$1 "; }
pair() { # pair PORT PROGRAM OPTIONS...: a server at the peer, and a client that connects to it
    port=$1; shift
    at_peer timeout --kill-after=1 120 env LD_PRELOAD="$LIBRARY" "$@" >"$OUT/server" 2>&1 &
    server=$!
    until listens "$port"; do
        kill -0 $server 2>/dev/null || { cat "$OUT/server"; echo "the server ended: $*"; exit 1; }
        sleep 0.02
    done
    preloaded "$@" "$address" >"$OUT/client" 2>&1 || {
        cat "$OUT/server" "$OUT/client"; echo "the client failed: $*"; exit 1
    }
    wait $server || { cat "$OUT/server" "$OUT/client"; echo "the server failed: $*"; exit 1; }
    cat "$OUT/client"
}
"#;

impl Script {
    /// The output, or `None` if this machine cannot run it (which is said).
    pub(crate) fn run(&self) -> Option<Output> {
        let found = |program: &&&str| find(program).is_none();
        if let Some(missing) = self
            .needs
            .iter()
            .chain(&["ip", "ss", "unshare"])
            .find(found)
        {
            eprintln!(
                "skipped: {} needs {missing}, which is not installed",
                self.name
            );
            return None;
        }
        let Some(namespaces) = namespaces() else {
            eprintln!(
                "skipped: {} needs network namespaces, which are not permitted",
                self.name
            );
            return None;
        };
        // Both ends of a pair spin: two pairs at once on two processors only wait for each other.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let out = tempfile::tempdir().unwrap();
        let output = Command::new("unshare")
            .args(namespaces)
            .args(["bash", "-c", &format!("{PRELUDE}\n{}", self.text)])
            .env("LIBRARY", library())
            .env("OUT", out.path())
            .env("TWO", if self.two_namespaces { "1" } else { "0" })
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", self.name, shown(&output));
        Some(output)
    }
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// The options of unshare that this user may use: root needs no user namespace.
pub(crate) fn namespaces() -> Option<&'static [&'static str]> {
    const CHOICES: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    CHOICES.into_iter().find(|options| {
        let output = Command::new("unshare").args(*options).arg("true").output();
        output.is_ok_and(|output| output.status.success())
    })
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
