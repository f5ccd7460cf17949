//! RDMA-CM by Debian's unmodified programs: librdmacm's examples, perftest with `-R`, and ordinary
//! socket programs over rsockets. Between two network namespaces where the script does not say
//! otherwise.
mod common;

use std::path::PathBuf;

use common::script::{Script, stdout};
use common::shown;

/// Pieces of the scripts, on top of those of [`Script`].
const CM: &str = r#"
serve() { # serve SPACE/PORT PROGRAM OPTIONS...: a server at the peer that listens
    local port=$1; shift
    served=$1
    there timeout --kill-after=1 120 env LD_PRELOAD="$LIBRARY" "$@" >"$OUT/server" 2>&1 &
    server=$!
    listening "$port"
}
there() { # to be run in the background: what it becomes has the number that the shell knows
    if [ "$TWO" = 1 ]; then exec nsenter --target "$peer" --net "$@"; else exec "$@"; fi
}
listening() { # waits until a program at the peer listens on SPACE/PORT
    until at_peer grep -q "@urxe-cm/listen/$1/" /proc/net/unix; do
        kill -0 $server 2>/dev/null || { cat "$OUT/server"; echo "the server ended"; exit 1; }
        sleep 0.02
    done
}
excused() { # excused PROGRAM OUTPUT: rping, at both ends, may end badly when all is done: it closes its event channel while
    # a thread of its own is about to read from it, and whichever is first wins
    [ "$1" = rping ] && grep -qx "rdma_get_cm_event: Bad file descriptor" "$2"
}
client() { # a client that succeeds, and then the server's end
    preloaded "$@" >"$OUT/client" 2>&1 || excused "$1" "$OUT/client" || {
        cat "$OUT/server" "$OUT/client"; echo "the client failed: $*"; exit 1
    }
    cat "$OUT/client"
}
ping() { client rping -c "$@" -C 3 -v; }
ended() {
    wait $server || excused "$served" "$OUT/server" || {
        cat "$OUT/server" "$OUT/client"; echo "the server failed"; exit 1
    }
    cat "$OUT/server"
}
TCP=0106 UDP=0111
"#;

fn script(
    name: &'static str,
    needs: &'static [&'static str],
    two_namespaces: bool,
    text: &str,
) -> Option<String> {
    let script = Script {
        name,
        needs,
        two_namespaces,
        text: format!("{CM}\n{text}"),
    };
    script.run().map(|output| {
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("urxe"),
            "{}",
            shown(&output)
        );
        stdout(&output)
    })
}

/// Compiles a C program that uses librdmacm.
fn compile(name: &str) -> PathBuf {
    common::compile(name, name, &["-Wl,--no-as-needed", "-lrdmacm"])
}

#[test]
fn rping_over_both_families_and_loopback() {
    let between = r"
        at_peer ip address add 2001:db8::2/64 dev eth0 nodad
        ip address add 2001:db8::1/64 dev eth0 nodad
        serve $TCP/7174 rping -s -a 0.0.0.0 -C 3
        ping -a $address; ended
        serve $TCP/7174 rping -s -a $address -C 3 -S 10000
        ping -a $address -S 10000; ended
        serve $TCP/7174 rping -s -a :: -C 3
        ping -a 2001:db8::2; ended
        serve $TCP/7174 rping -s -a :: -C 3
        ping -a $address; ended
    ";
    if let Some(text) = script("rping", &["rping"], true, between) {
        assert_eq!(text.matches("ping data: rdma-ping-2").count(), 4, "{text}");
    }
    let here = r"
        serve $TCP/7174 rping -s -a ::1 -C 3
        ping -a ::1; ended
        serve $TCP/7174 rping -s -C 3
        ping -a 127.0.0.1; ended
    ";
    if let Some(text) = script("rping", &["rping"], false, here) {
        assert_eq!(text.matches("ping data: rdma-ping-2").count(), 2, "{text}");
    }
}

#[test]
fn librdmacms_examples_over_connections() {
    let text = r#"
        serve $TCP/7471 ucmatose -c 5 -C 10
        client ucmatose -s $address -c 5 -C 10; ended
        serve $TCP/7471 ucmatose -m
        client ucmatose -s $address -m -t 0x20; ended
        serve $TCP/7471 rdma_server
        client rdma_client -s $address; ended
        serve $TCP/7471 rdma_xserver -c r
        client rdma_xclient -s $address -c r; ended
        serve 013f/7471 rdma_xserver -c x
        client rdma_xclient -s $address -c x; ended
    "#;
    let needs = &["ucmatose", "rdma_server", "rdma_xserver"];
    if let Some(text) = script("librdmacm's examples", needs, true, text) {
        assert_eq!(text.matches("return status 0").count(), 4, "{text}");
        assert_eq!(text.matches("end 0").count(), 6, "{text}");
    }
}

#[test]
fn librdmacms_examples_over_datagrams_and_multicast() {
    let text = r#"
        serve $UDP/7174 udaddy -c 3 -C 5
        client udaddy -s $address -c 3 -C 5; ended
        # The receiver has joined when the kernel knows the group, here 239.1.2.3.
        ip route add 239.0.0.0/8 dev eth0
        at_peer ip route add 239.0.0.0/8 dev eth0
        there timeout --kill-after=1 120 env LD_PRELOAD="$LIBRARY" \
            mckey -m 239.1.2.3 -b $address -C 5 >"$OUT/server" 2>&1 &
        server=$!
        until at_peer grep -q 030201EF /proc/net/igmp; do sleep 0.02; done
        sleep 0.2
        client mckey -m 239.1.2.3 -b 192.0.2.1 -s -C 5; ended
    "#;
    let needs = &["udaddy", "mckey"];
    if let Some(text) = script("udaddy and mckey", needs, true, text) {
        assert_eq!(text.matches("return status 0").count(), 4, "{text}");
    }
}

#[test]
fn rsockets() {
    let text = r#"
        for test in b n; do
            serve $TCP/7471 rstream -T $test -S 4096 -I 10 -C 10
            client rstream -s $address -T $test -S 4096 -I 10 -C 10; ended
        done
        serve $TCP/7471 riostream -S 4096 -I 10 -C 10
        client riostream -s $address -S 4096 -I 10 -C 10; ended
        head -c 3000001 /dev/urandom >"$OUT/source"
        serve $TCP/7427 rcopy
        client rcopy "$OUT/source" "$address:$OUT/copy"
        kill $server
        cmp "$OUT/source" "$OUT/copy" && echo copied
    "#;
    let needs = &["rstream", "riostream", "rcopy"];
    if let Some(text) = script("rsockets", needs, true, text) {
        assert_eq!(text.matches("custom").count(), 6, "{text}");
        assert!(text.contains("copied"), "{text}");
    }
}

/// A program that knows nothing of RDMA, with both libraries preloaded, in either order.
#[test]
fn a_sockets_program_over_rsockets() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
    if !std::path::Path::new(LIBRARY).is_file() {
        eprintln!("skipped: a program over rsockets needs {LIBRARY}, which is not installed");
        return;
    }
    let program = common::compile("echo", "echo", &[]);
    let text = format!(
        r#"
        for order in "$LIBRARY:{LIBRARY}" "{LIBRARY}:$LIBRARY"; do
            timeout 120 env LD_PRELOAD="$order" {program} 127.0.0.1 7777 >"$OUT/server" 2>&1 &
            server=$!
            listening $TCP/7777
            # Not a socket of the kernel's.
            ! ss -Htln | grep 7777
            timeout 120 env LD_PRELOAD="$order" {program} 127.0.0.1 7777 connect
            wait $server
        done"#,
        program = program.display()
    );
    if let Some(text) = script("a program over rsockets", &["ss"], false, &text) {
        assert_eq!(text.matches("echoed 200000 bytes").count(), 2, "{text}");
    }
}

/// What a tutorial's program does: its two ends are advanced by completions alone, in the order
/// that hardware gives.
#[test]
fn completion_state_machines_write_and_read_each_others_memory() {
    let program = compile("exchange");
    let text = format!(
        r"
        for how in write read; do
            serve $TCP/7471 {program} $address 7471 $how
            client {program} $address 7471 $how connect; ended
        done",
        program = program.display()
    );
    for two_namespaces in [true, false] {
        if let Some(text) = script("an exchange", &[], two_namespaces, &text) {
            assert_eq!(text.matches("exchanged 40 times").count(), 4, "{text}");
        }
    }
}

#[test]
fn perftest_with_connection_manager() {
    let text = r#"
        each() {
            serve $TCP/18515 "$@"
            client "$@" $address; ended >/dev/null
        }
        each ib_send_lat -R -d $device -F -n 50
        each ib_write_bw -R -d $device -F -n 50
        each ib_read_lat -R -d $device -F -n 50
        each ib_send_bw -R -d $device -F -n 50 -q 4
        each ib_send_bw -R -d $device -F -n 50 -T 8
    "#;
    let needs = &["ib_send_lat", "ib_write_bw", "ib_read_lat", "ib_send_bw"];
    if let Some(text) = script("perftest -R", needs, true, text) {
        assert_eq!(text.matches("#bytes").count(), 5, "{text}");
    }
}

/// Two processes listen on one address. All datagrams of management come to the port that the first
/// holds; when it is killed, the other takes the port over.
#[test]
fn several_processes_listen_and_the_first_may_die() {
    let text = r#"
        listen() {
            there env LD_PRELOAD="$LIBRARY" rping -s -a 0.0.0.0 -P -p $1 >"$OUT/server" 2>&1 &
            server=$!
            listening $TCP/$1
        }
        listen 7001; first=$server
        listen 7002; second=$server
        for port in 7002 7001 7002; do client rping -c -a $address -p $port -C 2 -v; done
        kill -9 $first
        # Its port is free once it is gone; the other one looks four times a second.
        client rping -c -a $address -p 7002 -C 2 -v
        # An address that comes now is held, too.
        at_peer ip address add 192.0.2.77/24 dev eth0
        client rping -c -a 192.0.2.77 -p 7002 -C 2 -v
        preloaded rping -c -a $address -p 7001 -C 2 >"$OUT/client" 2>&1 && echo "the dead one answered"
        cat "$OUT/client"
        kill -9 $second
    "#;
    if let Some(text) = script("several listeners", &["rping"], true, text) {
        assert_eq!(text.matches("ping data: rdma-ping-1").count(), 5, "{text}");
        assert!(text.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{text}");
        assert!(!text.contains("the dead one answered"), "{text}");
    }
}

#[test]
fn a_port_is_taken_once_and_many_connections_are_made() {
    let text = r#"
        serve $TCP/7471 cmtime -c 200
        client cmtime -s $address -c 200
        kill $server
        timeout 120 env LD_PRELOAD="$LIBRARY" rping -s -a 0.0.0.0 -p 7100 >/dev/null 2>&1 &
        server=$!
        until grep -q "@urxe-cm/listen/$TCP/7100/" /proc/net/unix; do sleep 0.02; done
        for address in 0.0.0.0 127.0.0.1 192.0.2.1; do
            preloaded rping -s -a $address -p 7100 2>&1 && echo "taken twice"
        done
        kill $server
    "#;
    let needs = &["cmtime", "rping"];
    if let Some(text) = script("many connections", needs, true, text) {
        assert!(text.contains("disconnect"), "{text}");
        assert_eq!(
            text.matches("rdma_bind_addr: Address already in use")
                .count(),
            3,
            "{text}"
        );
    }
}

/// Requests, answers and data get lost, doubled and reordered at both ends; the programs only take
/// longer.
#[test]
fn a_bad_network_only_costs_time() {
    let text = r#"
        export URXE_IMPAIR=loss=10%,duplicate=5%,reorder=5%,seed=7
        for port in 7001 7002 7003; do
            serve $TCP/$port rping -s -a 0.0.0.0 -p $port -C 3
            ping -a $address -p $port; ended
        done
    "#;
    if let Some(text) = script("a bad network", &["rping"], true, text) {
        assert_eq!(text.matches("ping data: rdma-ping-2").count(), 3, "{text}");
    }
}

/// A program that returns without a word ends its connections all the same.
#[test]
fn a_program_that_exits_tells_its_peers() {
    let program = compile("leaver");
    let text = format!(
        r#"
        serve $TCP/7174 rping -s -a 0.0.0.0
        preloaded {} $address 7174
        # rping's server ends with its connection.
        wait $server || true
        cat "$OUT/server""#,
        program.display()
    );
    if let Some(text) = script("leaving", &["rping"], true, &text) {
        assert!(text.contains("DISCONNECT EVENT"), "{text}");
    }
}

/// Devices and addresses come and go: a program that listens on all hears on those that come, and
/// identifiers learn of those that go.
#[test]
fn listeners_and_connections_follow_the_interfaces() {
    let program = compile("cm_link");
    // Without IPv6, whose addresses appear when they like.
    let text = format!(
        "sysctl -qw net.ipv6.conf.default.disable_ipv6=1
         preloaded {}",
        program.display()
    );
    script("following", &["sysctl"], false, &text);
}

/// What the manual pages of librdmacm promise.
#[test]
fn promises_of_the_manual_pages() {
    let program = compile("promises_cm");
    let text = format!(
        "ip address add 192.0.2.1/32 dev lo
         preloaded {}",
        program.display()
    );
    script("promises", &[], false, &text);
}

#[test]
fn the_kernels_interface_can_be_left_alone() {
    if std::path::Path::new("/dev/infiniband/rdma_cm").exists() {
        eprintln!("skipped: this machine has RDMA-CM of its own");
        return;
    }
    let text = r#"URXE_CM=kernel preloaded rping -s 2>&1 || true"#;
    if let Some(text) = script("the kernel's interface", &["rping"], false, text) {
        assert!(text.contains("No such file or directory"), "{text}");
    }
}

/// Commands that librdmacm of rdma-core 58 and later writes.
#[test]
fn commands_that_are_newer_than_the_headers() {
    let program = common::compile("cm_commands", "cm_commands", &[]);
    let text = format!("preloaded {} 192.0.2.1", program.display());
    script("newer commands", &[], true, &text);
}

#[test]
fn what_is_destroyed_is_free_at_once() {
    let text = format!(
        "preloaded {} 192.0.2.1",
        compile("cm_descriptors").display()
    );
    script("descriptors", &[], true, &text);
}

/// Signals, a stopped process, cancelled threads, handlers that jump out, closed descriptors.
#[test]
fn calls_that_block() {
    let text = format!("preloaded {}", compile("blocking").display());
    script("calls that block", &[], false, &text);
}

/// A listener whose parent ends, or lives on. One connection after another, each ended at once, is
/// told in order as well.
#[test]
fn a_listener_may_become_a_daemon() {
    let text = format!("preloaded {}", compile("cm_daemon").display());
    script("a daemon", &[], true, &text);
}
