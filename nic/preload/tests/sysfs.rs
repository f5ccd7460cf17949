//! What a device shows in `/sys`, to programs of all kinds, and beside what Linux rxe shows there.
mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::script::{Script, find, stdout};
use common::{preloaded, shown};

/// Something in a device's folder, as nic/conformance/rxe/tree.py lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Thing {
    kind: String,
    permissions: String,
    content: String,
}

/// What was listed, by path. The last of several numbers is called "last", for tables differ in
/// length.
fn things(text: &str) -> BTreeMap<String, Thing> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let thing = |line: &str| {
        let mut parts = line.splitn(4, ' ').map(str::to_owned);
        let kind = parts.next().unwrap();
        let permissions = parts.next().expect("permissions");
        let path = parts.next().expect("a path");
        let content = parts.next().unwrap_or_default();
        let path = match path.rsplit_once('/') {
            Some((folder, number)) if number.parse().is_ok_and(|number: u32| number > 1) => {
                format!("{folder}/last")
            }
            _ => path,
        };
        let thing = Thing {
            kind,
            permissions,
            content,
        };
        (path, thing)
    };
    lines.map(thing).collect()
}

/// The form of a text: words, decimal and hexadecimal numbers, and all else as it is.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = rest
            .find(|c| !is_word(c))
            .unwrap_or(rest.len())
            .max(first.len_utf8());
        let (word, behind) = rest.split_at(length);
        let is_group = word.len() == 4 && word.chars().all(|c| c.is_ascii_hexdigit());
        let name = match word {
            _ if !is_word(first) => word,
            _ if word.chars().all(|c| c.is_ascii_digit()) && word.len() != 4 => "9",
            _ if word.starts_with("0x") => "0x",
            _ if is_group => "f",
            _ => "w",
        };
        shape.push_str(name);
        rest = behind;
    }
    // A fraction is a number.
    shape.replace("9.9", "9")
}

/// What rxe has on purpose and urxe does not, by the beginning of its path.
const ONLY_RXE: &[(&str, &str)] = &[
    ("infiniband/power", "the device has no power states"),
    ("infiniband_verbs/power", "the device has no power states"),
    (
        "infiniband/ports/1/cm_",
        "messages of RDMA-CM are not counted",
    ),
    ("infiniband/ports/1/hw_counters/ack_deferred", "not counted"),
    ("infiniband/ports/1/hw_counters/link_downed", "not counted"),
    ("infiniband/ports/1/hw_counters/rdma_recvs", "not counted"),
    ("infiniband/ports/1/hw_counters/rdma_sends", "not counted"),
    (
        "infiniband/ports/1/hw_counters/retry_exceeded_err",
        "not counted",
    ),
    (
        "infiniband/ports/1/hw_counters/retry_rnr_exceeded_err",
        "not counted",
    ),
    (
        "infiniband/ports/1/hw_counters/send_rnr_err",
        "counted with other reasons, in out_of_buffer",
    ),
];
/// What urxe has on purpose and rxe does not.
const ONLY_URXE: &[(&str, &str)] = &[
    (
        "infiniband/device",
        "a PCI function, as adapters have it, and programs want it",
    ),
    ("infiniband_verbs/device", "the same"),
    (
        "infiniband/ports/1/counters",
        "adapters have these; rxe answers no performance management",
    ),
    (
        "infiniband/ports/1/hw_counters/implied_nak_seq_err",
        "a counter of mlx5",
    ),
    (
        "infiniband/ports/1/hw_counters/local_ack_timeout_err",
        "a counter of mlx5",
    ),
    ("infiniband/ports/1/hw_counters/np_", "counters of mlx5"),
    (
        "infiniband/ports/1/hw_counters/out_of_buffer",
        "a counter of mlx5",
    ),
    (
        "infiniband/ports/1/hw_counters/out_of_sequence",
        "a counter of mlx5",
    ),
    (
        "infiniband/ports/1/hw_counters/packet_seq_err",
        "a counter of mlx5",
    ),
    (
        "infiniband/ports/1/hw_counters/rnr_nak_retry_err",
        "a counter of mlx5",
    ),
    ("infiniband/ports/1/hw_counters/rp_", "counters of mlx5"),
    (
        "infiniband/ports/1/hw_counters/rx_icrc_encapsulated",
        "a counter of mlx5",
    ),
];
/// What both have and show in another way, on purpose.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "infiniband",
        "rxe is a virtual device, urxe belongs to a PCI function",
    ),
    ("infiniband_verbs", "the same"),
    ("infiniband/subsystem", "one folder deeper"),
    ("infiniband_verbs/subsystem", "one folder deeper"),
    ("infiniband/fw_ver", "rxe has no version"),
    ("infiniband/node_desc", "cannot be set"),
    ("infiniband/uevent", "no event can be made"),
    ("infiniband_verbs/uevent", "no event can be made"),
    (
        "infiniband/ports/1/hw_counters/lifespan",
        "nothing is kept that could be old",
    ),
];

/// The reason that stands in a table for a path.
fn reason(table: &[(&str, &'static str)], path: &str, is_whole: bool) -> Option<&'static str> {
    let found = table
        .iter()
        .find(|(begin, _)| path == *begin || !is_whole && path.starts_with(begin));
    found.map(|(_, reason)| *reason)
}

#[test]
fn the_tree_is_that_of_rxe_but_for_what_differs_on_purpose() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let recorded = std::fs::read_to_string(folder.join("tests/data/rxe_sysfs.txt")).unwrap();
    let rxe = things(&recorded);
    if find("python3").is_none() {
        eprintln!("skipped: listing a tree needs python3");
        return;
    }
    let output = preloaded("python3")
        .arg(folder.join("../conformance/rxe/tree.py"))
        .arg("urxe_lo")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let urxe = things(&stdout(&output));
    let mut wrong = Vec::new();
    for (path, thing) in &rxe {
        let Some(ours) = urxe.get(path) else {
            if reason(ONLY_RXE, path, false).is_none() {
                wrong.push(format!("urxe has no {path}"));
            }
            continue;
        };
        let is_same = ours.kind == thing.kind
            && ours.permissions == thing.permissions
            && shape(&ours.content) == shape(&thing.content);
        if is_same == reason(DIFFERENT, path, true).is_some() {
            wrong.push(format!("{path}: rxe has {thing:?}, urxe {ours:?}"));
        }
    }
    for path in urxe.keys() {
        if !rxe.contains_key(path) && reason(ONLY_URXE, path, false).is_none() {
            wrong.push(format!("rxe has no {path}"));
        }
    }
    // The tables say nothing that is not so.
    for (begin, _) in ONLY_RXE {
        let is_there =
            |tree: &BTreeMap<String, Thing>| tree.keys().any(|path| path.starts_with(begin));
        if !is_there(&rxe) || is_there(&urxe) {
            wrong.push(format!("not only rxe has {begin}"));
        }
    }
    for (begin, _) in ONLY_URXE {
        if !urxe.keys().any(|path| path.starts_with(begin)) {
            wrong.push(format!("urxe has no {begin}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn shapes_are_those_of_words_and_numbers() {
    assert_eq!(shape("\"4: ACTIVE\\n\""), "\"9: w\\w\"");
    assert_eq!(shape("25 Gb/sec (1X EDR)"), "9 w/w (w w)");
    assert_eq!(shape("2.5 Gb/sec"), "9 w/w");
    assert_eq!(shape("fe80:0000"), "f:f");
    assert_eq!(shape("0x0001"), "0x");
}

/// What programs print that look at the device in ways of their own, with and without a `/sys` of
/// the kernel's.
const LOOKS: &str = r#"
    class=/sys/class/infiniband
    function=/sys/devices/pcif0ce:00/f0ce:00:01.0
    device=$function/infiniband/urxe_lo
    look() { echo "$1 $(eval "$2" 2>&1)"; }
    look ls "ls -d $class/urxe_lo/node_guid"
    look long "ls -lR $class/urxe_lo/ | grep -c link_layer"
    look shell "echo $class/*_lo/node_type"
    look readlink "readlink -f $class/urxe_lo/../.."
    look realpath "realpath $class/urxe_lo/device/net/lo"
    look stat "stat -c %F $class/urxe_lo"
    look find "find $device -name rate"
    look follow "find $class/urxe_lo/ -name 'port_xmit_data'"
    look cat "cat $class/urxe_lo/ports/1/link_layer"
    look there "cd $class/urxe_lo/ports && cat 1/state && pwd -P"
    look here "cd $class/urxe_lo && ls ports"
    look grep "grep -rl Ethernet $device 2>/dev/null"
    look copy "cp -r $device/ports/1/pkeys $OUT/copy && cat $OUT/copy/0"
    look dev "ls /dev/infiniband | grep -c uverbs100001"
    look du "du -s $device/ports | wc -l"
    look write "sh -c 'echo 1 >$device/node_desc' 2>&1 | grep -c 'Permission denied'"
"#;

const SEEN: &[(&str, &str)] = &[
    ("ls", "/sys/class/infiniband/urxe_lo/node_guid"),
    ("long", "1"),
    ("shell", "/sys/class/infiniband/urxe_lo/node_type"),
    ("readlink", "/sys/devices/pcif0ce:00/f0ce:00:01.0"),
    ("realpath", "/sys/devices/pcif0ce:00/f0ce:00:01.0/net/lo"),
    ("stat", "symbolic link"),
    (
        "find",
        "/sys/devices/pcif0ce:00/f0ce:00:01.0/infiniband/urxe_lo/ports/1/rate",
    ),
    (
        "follow",
        "/sys/class/infiniband/urxe_lo/ports/1/counters/port_xmit_data",
    ),
    ("cat", "Ethernet"),
    (
        "there",
        "4: ACTIVE\n/sys/devices/pcif0ce:00/f0ce:00:01.0/infiniband/urxe_lo/ports",
    ),
    ("here", "1"),
    (
        "grep",
        "/sys/devices/pcif0ce:00/f0ce:00:01.0/infiniband/urxe_lo/ports/1/link_layer",
    ),
    ("copy", "0xffff"),
    ("dev", "1"),
    ("du", "1"),
    ("write", "1"),
];

/// Runs a script of bash under urxe, in which `look NAME COMMAND` prints what a command prints.
fn looks(name: &'static str, before: &str, script: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("looks");
    std::fs::write(&file, script).unwrap();
    let script = Script {
        name,
        needs: &["find", "bash"],
        two_namespaces: false,
        text: format!("{before} preloaded bash {}", file.display()),
    };
    script.run().map(|output| stdout(&output))
}

fn check_looks(seen: &str) {
    for (name, text) in SEEN {
        assert!(
            seen.contains(&format!("{name} {text}\n")),
            "{name}: no {text:?} in\n{seen}"
        );
    }
}

#[test]
fn programs_see_the_device_however_they_look() {
    if let Some(seen) = looks("looking at /sys", "", LOOKS) {
        check_looks(&seen);
    }
}

#[test]
fn programs_see_the_device_where_sys_is_not_mounted() {
    let text = "export -f preloaded
         unshare --mount bash -c 'mount -t tmpfs none /sys; ls /sys | wc -l; preloaded bash \"$0\"' {}";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("looks");
    std::fs::write(&file, LOOKS).unwrap();
    let script = Script {
        name: "looking without /sys",
        needs: &["find", "bash", "mount"],
        two_namespaces: false,
        text: text.replace("{}", &file.display().to_string()),
    };
    let Some(output) = script.run() else { return };
    let seen = stdout(&output);
    assert!(seen.starts_with("0\n"), "{seen}");
    check_looks(&seen);
}

/// Python's ways to look, each of which names the same.
const PYTHON: &str = r#"
import glob, os, pathlib
device = pathlib.Path("/sys/class/infiniband/urxe_lo")
real = device.resolve()
assert os.path.realpath(device) == str(real), real
assert str(device.joinpath("..", "..").resolve()) == str(real.parents[1])
assert device.is_symlink() and device.is_dir() and device.exists()
assert [entry.name for entry in os.scandir(device / "device/net")] == ["lo"]
assert os.listdir(device / "ports") == ["1"]
assert glob.glob("/sys/class/infini*/urxe_lo/ports/*/rate") == [f"{device}/ports/1/rate"]
assert list(device.glob("ports/*/rate")) == [device / "ports/1/rate"]
found = {os.path.relpath(os.path.join(folder, name), real) for folder, _, names in os.walk(real) for name in names}
assert found == {str(path.relative_to(real)) for path in real.rglob("*") if not path.is_dir() or path.is_symlink()} - {"device", "subsystem"} | (found & {"device", "subsystem"}), found
assert len(found) > 200
assert (device / "node_type").read_text() == "1: CA\n"
with os.scandir(device) as entries:
    assert {entry.name for entry in entries if entry.is_file()} >= {"node_guid", "node_type"}
folder = os.open(device, os.O_RDONLY | os.O_DIRECTORY)
assert os.fstat(folder).st_ino == os.stat(device).st_ino
assert os.stat("ports/1", dir_fd=folder).st_ino == (device / "ports/1").stat().st_ino
assert sorted(os.listdir(folder)) == sorted(os.listdir(device))
for folder, _, names, descriptor in os.fwalk(real):
    for name in names:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
os.chdir(device)
assert os.getcwd() == str(real) and pathlib.Path.cwd() == real
assert pathlib.Path("ports/1/link_layer").read_text() == "Ethernet\n"
import subprocess
assert subprocess.run(["cat", "link_layer"], cwd="ports/1", capture_output=True, text=True, check=True).stdout == "Ethernet\n"
assert os.getcwd() == str(real)
try:
    open(device / "node_desc", "w")
except PermissionError:
    print("all the same")
"#;

#[test]
fn python_sees_the_same_in_all_its_ways() {
    if find("python3").is_none() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let output = preloaded("python3").args(["-c", PYTHON]).output().unwrap();
    assert_eq!(stdout(&output), "all the same\n", "{}", shown(&output));
}

#[test]
fn cpp_sees_the_same_through_std_filesystem() {
    if find("c++").is_none() {
        eprintln!("skipped: there is no C++ compiler");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = folder.path().join("filesystem");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/filesystem.cc");
    let output = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let output = preloaded(&program).output().unwrap();
    assert_eq!(stdout(&output), "all the same\n", "{}", shown(&output));
}
