//! Seeing inside unmodified programs, and giving them a bad network: perftest and ibverbs-utils of
//! Debian in a network namespace of their own, under `urxe run`.
mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use support::*;

use serde_json::Value;

const STAT_SCRIPT: &str = r#"
        urxe stat >nobody
        start 18515 "" "" ib_write_bw -d urxe_lo -x 0 -D 1 --run_infinitely -q 2 -s 4096
        until_true "packets" shows '"rx_packets": [1-9][0-9][0-9]'
        urxe stat --json >stat.json
        urxe qp --json >qp.json
        urxe qp >qp
        urxe stat --all >stat
        urxe stat --prometheus --queue-pairs --out stat.prom
        [ "$(echo .*stat.prom*)" = '.*stat.prom*' ]
        urxe stat --json --watch=0.5 | head -n 2 >watch
        urxe ping 127.0.0.1 --json >ping.json
        urxe ping 127.0.0.1 >ping
        kill $client $server
        wait $client $server || true
        until_true "an end" sh -c 'urxe stat | grep -q "no process"'
    "#;

#[test]
fn stat_and_qp_show_both_ends_of_a_busy_program() {
    let folder = folder();
    let needs = &["ib_write_bw"];
    let Some(_) = script("urxe stat", needs, folder.path(), STAT_SCRIPT) else {
        return;
    };
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert!(read("nobody").contains("no process of yours"));

    let stat = json(folder.path(), "stat.json");
    assert_eq!(stat["schema"], 1);
    let processes = stat["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2, "{stat}");
    for process in processes {
        assert_eq!(process["comm"], "ib_write_bw");
        let device = &process["devices"][0];
        assert_eq!(device["device"], "urxe_lo");
        assert!(
            device["counters"]["rx_packets"].as_u64() > Some(0),
            "{stat}"
        );
        for name in [
            "duplicate_request",
            "rx_icrc_encapsulated",
            "rnr_nak_retry_err",
        ] {
            assert!(device["counters"][name].is_u64(), "no {name}: {stat}");
        }
        assert_eq!(device["qps"].as_array().unwrap().len(), 2);
    }
    let lines: Vec<Value> = read("watch")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sent = |stat: &Value| {
        let processes = stat["processes"].as_array().unwrap().iter();
        let counters = processes.map(|process| &process["devices"][0]["counters"]["tx_packets"]);
        counters.map(|value| value.as_u64().unwrap()).sum::<u64>()
    };
    assert!(lines.len() >= 2 && sent(&lines[0]) < sent(&lines[1]));

    let qps = json(folder.path(), "qp.json");
    let qps = qps["qps"].as_array().unwrap();
    assert_eq!(qps.len(), 4);
    for qp in qps {
        // The process that it names as its peer says the same.
        let peer = qps.iter().find(|peer| peer["lqpn"] == qp["rqpn"]);
        assert_eq!(peer.unwrap()["rqpn"], qp["lqpn"]);
        assert_ne!(peer.unwrap()["pid"], qp["pid"]);
        assert_eq!(
            (&qp["type"], &qp["ifname"]),
            (&"RC".into(), &"urxe_lo".into())
        );
    }
    assert_eq!(read("qp").matches("link urxe_lo/1 lqpn ").count(), 4);
    assert!(read("stat").contains("packet_seq_err "), "zeros with --all");
    check_metrics(&read("stat.prom"), &processes[0]);

    let ping = json(folder.path(), "ping.json");
    assert_eq!(
        (&ping["verdict"], &ping["answers"]),
        (&"urxe".into(), &5.into())
    );
    assert_eq!(ping["path_mtu_bytes"], 4096);
    assert!(read("ping").contains("path MTU: 4096"));
}

/// Every counter of a process is there, with a help of its own, for devices and for queue pairs.
fn check_metrics(metrics: &str, process: &Value) {
    let device = &process["devices"][0];
    for (counters, prefix) in [(device, "urxe_"), (&device["qps"][0], "urxe_qp_")] {
        for name in counters["counters"].as_object().unwrap().keys() {
            let name = format!("{prefix}{name}_total");
            let typed = format!("# TYPE {name} counter\n{name}{{pid=\"");
            assert!(metrics.contains(&typed), "no {name}: {metrics}");
        }
    }
    assert!(!metrics.contains("does not know"), "{metrics}");
    assert!(metrics.contains("urxe_processes 2\n"), "{metrics}");
}

/// Two namespaces, `$peer` beside the script's own, joined by a link; `eth0` at both ends.
const TWO_NODES: &str = r#"
    unshare --net sleep 600 &
    peer=$!
    trap 'kill $peer' EXIT
    until_true "a namespace" sh -c "[ $(readlink /proc/self/ns/net) != \"\$(readlink /proc/$peer/ns/net)\" ]"
    at_peer() { nsenter --target "$peer" --net "$@"; }
    ip link add eth0 type veth peer name eth0 netns "$peer"
    ip address add 192.0.2.1/24 dev eth0
    at_peer ip address add 192.0.2.2/24 dev eth0
    ip link set eth0 up
    at_peer ip link set eth0 up
    until_true "a link" sh -c 'ip -o link show eth0 | grep -q "state UP"'
    both() { # starts a program of perftest at both ends
        at_peer timeout --kill-after=1 120 urxe run -- "$@" -d urxe_eth0 -x 0 -D 2 >server 2>&1 &
        server=$!
        until_true "a server" at_peer sh -c 'ss -Hltn | grep -q ":18515 "'
        timeout --kill-after=1 120 urxe run -- "$@" -d urxe_eth0 -x 0 -D 2 192.0.2.2 >client 2>&1 &
        client=$!
    }
"#;

/// Whether the kernel lets frames be cut apart; says so if not.
fn has_frames() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>());
    if let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next())
        && (major, minor) < (6, 2)
    {
        eprintln!("skipped: frames need Linux 6.2, and this is {release}");
        return false;
    }
    true
}

/// Answered one by one, each READ would take a batch at least.
#[test]
fn reads_that_wait_together_are_answered_together() {
    let folder = folder();
    let text = TWO_NODES.to_owned()
        + r#"
        ip link set eth0 mtu 9000
        at_peer ip link set eth0 mtu 9000
        both ib_read_bw -s 16384
        until_true "packets" shows '"rx_packets": [1-9][0-9][0-9][0-9][0-9]'
        urxe stat --json >stat.json
        finish
    "#;
    let needs = &["ib_read_bw", "nsenter"];
    let Some(_) = script("urxe stat", needs, folder.path(), &text) else {
        return;
    };
    if !has_frames() {
        return;
    }
    let counters = &json(folder.path(), "stat.json")["processes"][0]["devices"][0]["counters"];
    let [reads, answers] =
        ["tx_packets", "rx_batches"].map(|name| counters[name].as_f64().unwrap());
    assert!(answers / reads < 0.8, "{answers} for {reads}");
}

#[test]
fn stat_tells_what_went_past_the_ip_layer() {
    let folder = folder();
    let text = TWO_NODES.to_owned()
        + r#"
        for case in "RC on" "RC off" "UC on"; do
            set -- $case
            export URXE_FRAMES=$2
            both ib_send_lat -c $1
            until_true "packets" shows '"rx_packets": [1-9][0-9][0-9]'
            urxe stat --json >$1-$2.json
            finish
        done
    "#;
    let needs = &["ib_send_lat", "nsenter"];
    let Some(_) = script("urxe stat", needs, folder.path(), &text) else {
        return;
    };
    if !has_frames() {
        return;
    }
    let frames = |name: &str| {
        let counters = &json(folder.path(), name)["processes"][0]["devices"][0]["counters"];
        ["tx_frames", "rx_frames"].map(|name| counters[name].as_u64().unwrap())
    };
    assert!(frames("RC-on.json").iter().all(|&count| count > 0));
    assert_eq!(frames("RC-off.json"), [0, 0]);
    // Packets that find the ring full are not sent again.
    assert_eq!(frames("UC-on.json"), [0, 0]);
}

/// What part of the batches that leave does so as frames, of a program of perftest with messages of
/// so many bytes.
const SHARE_OF_FRAMES: &str = r#"
    ip link set eth0 mtu 9000
    at_peer ip link set eth0 mtu 9000
    share() { # name, program and its options
        name=$1
        shift
        both "$@"
        until_true "packets" shows '"rx_packets": [1-9][0-9][0-9][0-9]'
        urxe stat --json >"$name.json"
        finish
    }
    share message ib_send_lat -s 65536
    share answer ib_read_lat -s 65536
    share long ib_send_lat -s 524288
    share stream ib_send_bw -s 65536
"#;

#[test]
fn only_a_lone_message_of_up_to_64_kib_goes_past_the_ip_layer() {
    let folder = folder();
    let text = TWO_NODES.to_owned() + SHARE_OF_FRAMES;
    let needs = &["ib_send_lat", "ib_send_bw", "ib_read_lat", "nsenter"];
    let Some(_) = script("urxe stat", needs, folder.path(), &text) else {
        return;
    };
    if !has_frames() {
        return;
    }
    let share = |name: &str, frames: &str, batches: &str| {
        let file = format!("{name}.json");
        let counters = &json(folder.path(), &file)["processes"][0]["devices"][0]["counters"];
        counters[frames].as_f64().unwrap() / counters[batches].as_f64().unwrap()
    };
    let sent = |name| share(name, "tx_frames", "tx_batches");
    // No sender is to take more than a few of the peer's 96 places at once.
    assert!(sent("long") < 0.2, "long: {}", sent("long"));
    // Of a ping-pong both ends do the same; of the stream one end sends acknowledgements alone.
    for name in ["message", "answer"] {
        assert!(sent(name) > 0.9, "{name}: {}", sent(name));
        let received = share(name, "rx_frames", "rx_batches");
        assert!(received > 0.9, "{name}: {received}");
    }
    // A sender that waits for a processor finds all acknowledged, and its next message is alone.
    let [one, other] = [sent("stream"), share("stream", "rx_frames", "rx_batches")];
    assert!(one.min(other) < 0.5, "stream: {one} and {other}");
}

#[test]
fn stat_sees_a_program_that_blocks_and_not_those_of_others() {
    let folder = folder();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    // Both ends wait in a completion channel, most of the time.
    let text = r#"
        start 18515 "" "--delay 20ms" ibv_rc_pingpong -e -d urxe_lo -g 0 -n 60
        until_true "a queue pair" shows '"state": "RTS"'
        urxe stat --json >stat.json
        [ "$(id -u)" != 0 ] || setpriv --reuid 65534 --clear-groups "$(command -v urxe)" stat >other 2>&1 || true
        finish
    "#;
    let needs = &["ibv_rc_pingpong", "setpriv"];
    let Some(_) = script("urxe stat", needs, folder.path(), text) else {
        return;
    };
    let stat = json(folder.path(), "stat.json");
    assert_eq!(stat["processes"].as_array().unwrap().len(), 2, "{stat}");
    if let Ok(other) = std::fs::read_to_string(folder.path().join("other")) {
        // Where the other user may not run what is being tested, there is nothing to see, either.
        assert!(
            other.contains("no process of yours") || other.contains("ermission denied"),
            "{other}"
        );
    }
}

#[test]
fn a_stopped_process_is_named_and_does_not_hold_up_the_others() {
    let folder = folder();
    let text = r#"
        start 18515 "" "" ib_write_bw -d urxe_lo -x 0 -D 2 -s 4096
        until_true "packets" shows '"state": "RTS"'
        pid=$(urxe stat --json | sed -n 's/^ *"pid": \([0-9]*\),/\1/p' | head -1)
        kill -STOP "$pid"
        # Threads that wait for a processor do not know it yet.
        stopped() { [ -z "$(grep -L '^State:.T' /proc/"$pid"/task/*/status)" ]; }
        until_true "a stopped process" stopped
        urxe stat --json >stat.json 2>errors
        kill -CONT "$pid"
        echo "$pid" >pid
        wait $client $server || true
    "#;
    let needs = &["ib_write_bw"];
    let Some(_) = script("urxe stat", needs, folder.path(), text) else {
        return;
    };
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    let stat = json(folder.path(), "stat.json");
    assert_eq!(stat["processes"].as_array().unwrap().len(), 1, "{stat}");
    let expected = format!("urxe: process {}: does not answer", read("pid").trim());
    assert!(read("errors").starts_with(&expected), "{}", read("errors"));
}

#[test]
fn ping_says_that_nothing_is_there() {
    let folder = folder();
    let text = r#"
        status=0; urxe ping 127.0.0.1 >refused || status=$?; [ $status = 1 ]
        status=0; urxe ping ::1 --json >refused6.json || status=$?; [ $status = 1 ]
        ip link add eth0 type veth peer name eth1
        ip address add 198.51.100.1/24 dev eth0
        ip link set eth0 up; ip link set eth1 up
        # A neighbour that is believed to be there, and says nothing.
        ip neighbour add 198.51.100.2 lladdr 02:00:00:00:00:02 dev eth0
        status=0; urxe ping 198.51.100.2 --count 2 --timeout 50 >silent || status=$?; [ $status = 3 ]
        if echo '0 2147483647' 2>/dev/null >/proc/sys/net/ipv4/ping_group_range; then
            status=0; urxe ping 198.51.100.2 --count 1 --timeout 50 >down || status=$?; [ $status = 3 ]
        fi
        # Another process has the port to which other stacks answer.
        python3 -c "$HOLDER" & holder=$!
        until_true "a holder" sh -c 'ss -Hlun | grep -q 198.51.100.1:4791'
        status=0; urxe ping 198.51.100.2 --count 1 --timeout 50 >deaf || status=$?; [ $status = 3 ]
        kill $holder
    "#;
    const HOLDER: &str = "import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); \
                          s.bind(('198.51.100.1', 4791)); time.sleep(20)";
    let text = &format!("HOLDER=\"{HOLDER}\"\n{text}");
    let Some(_) = script("urxe ping", &["python3"], folder.path(), text) else {
        return;
    };
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file));
    assert!(
        read("refused")
            .unwrap()
            .contains("nothing listens on this UDP port")
    );
    assert_eq!(json(folder.path(), "refused6.json")["verdict"], "refused");
    assert!(read("silent").unwrap().contains("UDP port 4791: no answer"));
    assert!(read("deaf").unwrap().contains("could not be asked"));
    if let Ok(down) = read("down") {
        assert!(down.contains("does not answer ICMP echo either"), "{down}");
    }
}

/// A stack that is not urxe: it drops all but a SIDR_REQ (attribute 0x17 of class 7). It answers as
/// Linux does where no program has the service: with a SIDR_REP (0x18) of status 1 to UDP port
/// 4791.
const OTHER_STACK: &str = r#"
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("127.0.0.2", 4791))
while True:
    packet, (host, port) = s.recvfrom(9000)
    packet = bytearray(packet)
    mad = 12 + 8
    if packet[0] != 0x64 or packet[mad + 1] != 7 or packet[mad + 17] != 0x17:
        continue
    packet[mad + 17] = 0x18
    packet[mad + 28] = 1
    s.sendto(packet, (host, 4791))
"#;

#[test]
fn ping_finds_another_stack_by_its_connection_manager() {
    let folder = folder();
    std::fs::write(folder.path().join("other.py"), OTHER_STACK).unwrap();
    let text = r#"
        python3 other.py & other=$!
        until_true "the other stack" sh -c 'ss -Hlun | grep -q 127.0.0.2:4791'
        urxe ping 127.0.0.2 --timeout 200 --json >ping.json
        urxe ping 127.0.0.2 --timeout 200 >ping
        kill $other
    "#;
    let Some(_) = script("urxe ping", &["python3"], folder.path(), text) else {
        return;
    };
    let ping = json(folder.path(), "ping.json");
    assert_eq!(
        (&ping["verdict"], &ping["answers"]),
        (&"roce".into(), &5.into())
    );
    assert_eq!(ping["path_mtu_bytes"], Value::Null);
    let text = std::fs::read_to_string(folder.path().join("ping")).unwrap();
    assert!(
        text.contains("connection manager of a RoCEv2 stack"),
        "{text}"
    );
}

#[test]
fn nothing_is_on_stderr_but_what_a_program_does_not_get() {
    let folder = folder();
    let text = r#"
        urxe run -- ibv_devinfo -v -d urxe_lo >/dev/null 2>quiet
        URXE_LOG=debug urxe run -- ibv_rc_pingpong -d urxe_lo -g 0 no-such-host.invalid >/dev/null 2>debug || true
        status=0; URXE_IMPAIR=loss=5 urxe run -- ibv_devinfo -d urxe_lo >/dev/null 2>wrong || status=$?
        [ $status != 0 ]
    "#;
    let needs = &["ibv_devinfo", "ibv_rc_pingpong"];
    let Some(_) = script("URXE_LOG", needs, folder.path(), text) else {
        return;
    };
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert_eq!(read("quiet"), "");
    let debug = read("debug");
    assert!(
        debug.contains("debug: ") && debug.contains("Reset to Init"),
        "{debug}"
    );
    let wrong = read("wrong");
    let part = "error: cannot open urxe_lo: URXE_IMPAIR: loss: '5' has no percent sign";
    assert!(wrong.contains(part), "{wrong}");
}

#[test]
fn help_fits_a_narrow_terminal() {
    for command in ["run", "stat", "qp", "ping", "devices"] {
        for help in ["-h", "--help"] {
            let output = Command::new(env!("CARGO_BIN_EXE_urxe"))
                .args([command, help])
                .env("COLUMNS", "60")
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            // What stands on its own in an example cannot be broken.
            let long = text
                .lines()
                .find(|line| line.chars().count() > 60 && !line.starts_with("Example"));
            assert_eq!(long, None, "urxe {command} {help}");
        }
    }
    let completions = Command::new(env!("CARGO_BIN_EXE_urxe"))
        .args(["completions", "zsh"])
        .output()
        .unwrap();
    let text = String::from_utf8(completions.stdout).unwrap();
    for part in ["--pcap", "--loss", "stat", "ping", "--watch"] {
        assert!(text.contains(part), "no {part}");
    }
}
