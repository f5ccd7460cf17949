//! iWARP devices by Debian's unmodified programs: librdmacm's examples, rsockets, and perftest with
//! `-R`, between two network namespaces.
mod common;

use common::script::{Script, stdout};

/// Pieces of the scripts, on top of those of [`Script`].
const IWARP: &str = r#"
export URXE_TRANSPORT=iwarp
there() { exec nsenter --target "$peer" --net "$@"; }
serve() { # serve PORT PROGRAM OPTIONS...: a server at the peer that listens
    local port=$1; shift
    there timeout --kill-after=1 120 env LD_PRELOAD="$LIBRARY" "$@" >"$OUT/server" 2>&1 &
    server=$!
    until listens $port; do
        kill -0 $server 2>/dev/null || { cat "$OUT/server"; echo "the server ended"; exit 1; }
        sleep 0.02
    done
}
excused() { # as in the tests of RDMA-CM over RoCE
    [ "$1" = rping ] && grep -qx "rdma_get_cm_event: Bad file descriptor" "$OUT/$2"
}
client() { # a client that succeeds, and then the server's end
    preloaded "$@" >"$OUT/client" 2>&1 || excused "$1" client || {
        cat "$OUT/server" "$OUT/client"; echo "the client failed: $*"; exit 1
    }
    cat "$OUT/client"
    wait $server || excused "$1" server || {
        cat "$OUT/server" "$OUT/client"; echo "the server failed: $*"; exit 1
    }
    cat "$OUT/server"
}
refused() { # a program that has to fail, and what it says
    preloaded "$@" 2>&1 && { echo "it ran: $*"; exit 1; }
    true
}
"#;

fn script(name: &'static str, needs: &'static [&'static str], text: &str) -> Option<String> {
    let script = Script {
        name,
        needs,
        two_namespaces: true,
        text: format!("{IWARP}\n{text}"),
    };
    script.run().map(|output| stdout(&output))
}

#[test]
fn a_device_says_that_it_is_iwarp() {
    let text = r#"
        ip link set eth0 address 02:11:22:33:44:55
        preloaded ibv_devinfo -v -d $device
        preloaded cat /sys/class/infiniband/$device/node_type
        preloaded cat /sys/class/infiniband/$device/ports/1/gids/0
        refused cat /sys/class/infiniband/$device/ports/1/gids/1
        refused ibv_ud_pingpong -d $device -g 0
        refused ibv_uc_pingpong -d $device -g 0
        refused ibv_xsrq_pingpong -d $device -g 0
        refused udaddy -b 192.0.2.1
    "#;
    let needs = &["ibv_devinfo", "ibv_ud_pingpong", "udaddy"];
    let Some(text) = script("an iWARP device", needs, text) else {
        return;
    };
    for wanted in [
        "transport:\t\t\tiWARP (1)",
        "gid_tbl_len:\t\t1\n",
        "4: RNIC",
        "0211:2233:4455:0000:0000:0000:0000:0000",
        "Couldn't create QP",
        "Couldn't Open the XRC Domain",
        "udaddy: failure trying to listen: Operation not supported",
    ] {
        assert!(text.contains(wanted), "no '{wanted}' in {text}");
    }
}

#[test]
fn rping_over_both_families() {
    let text = r"
        at_peer ip address add 2001:db8::2/64 dev eth0 nodad
        ip address add 2001:db8::1/64 dev eth0 nodad
        serve 7174 rping -s -a 0.0.0.0 -C 3
        client rping -c -a $address -C 3 -v
        serve 7174 rping -s -a $address -C 3 -S 10000
        client rping -c -a $address -C 3 -v -S 10000
        serve 7174 rping -s -a :: -C 3
        client rping -c -a 2001:db8::2 -C 3 -v
        serve 7174 rping -s -a :: -C 3
        client rping -c -a $address -C 3 -v
        at_peer ip address add fe80::2/64 dev eth0 nodad
        ip address add fe80::1/64 dev eth0 nodad
        serve 7174 rping -s -a fe80::2%eth0 -C 3
        client rping -c -a fe80::2%eth0 -C 3 -v
    ";
    if let Some(text) = script("rping", &["rping"], text) {
        assert_eq!(text.matches("ping data: rdma-ping-2").count(), 5, "{text}");
    }
}

#[test]
fn librdmacms_examples_and_rsockets() {
    let text = r#"
        serve 7471 ucmatose -c 5 -C 10
        client ucmatose -s $address -c 5 -C 10
        serve 7471 ucmatose -m
        client ucmatose -s $address -m
        serve 7471 rdma_server
        client rdma_client -s $address
        serve 7471 rdma_xserver -c r
        client rdma_xclient -s $address -c r
        serve 7471 riostream -S 4096 -I 10 -C 10
        client riostream -s $address -S 4096 -I 10 -C 10
        for test in b n; do
            serve 7471 rstream -T $test -S 4096 -I 10 -C 10
            client rstream -s $address -T $test -S 4096 -I 10 -C 10
        done
        serve 7471 cmtime -c 200
        preloaded cmtime -s $address -c 200
        kill $server
        head -c 3000001 /dev/urandom >"$OUT/source"
        serve 7427 rcopy
        preloaded rcopy "$OUT/source" "$address:$OUT/copy"
        kill $server
        cmp "$OUT/source" "$OUT/copy" && echo copied
    "#;
    let needs = &[
        "ucmatose",
        "rdma_server",
        "rdma_xserver",
        "rstream",
        "rcopy",
        "cmtime",
    ];
    if let Some(text) = script("librdmacm's examples", needs, text) {
        assert_eq!(text.matches("return status 0").count(), 4, "{text}");
        assert_eq!(text.matches("custom").count(), 6, "{text}");
        assert!(text.contains("copied"), "{text}");
    }
}

/// Runs a program of perftest at both ends.
const EACH: &str = r#"
        each() {
            serve 18515 "$@"
            client "$@" $address >"$OUT/both"
            grep bytes "$OUT/client"
        }
"#;

#[test]
fn perftest_with_connection_manager() {
    let text = r"
        each ib_send_lat -R -d $device -F -n 50
        each ib_send_lat -R -d $device -F -n 50 -e
        each ib_write_lat -R -d $device -F -n 50
        each ib_read_lat -R -d $device -F -n 50
        each ib_atomic_lat -R -d $device -F -n 50
        each ib_write_bw -R -d $device -F -n 50
        each ib_write_bw -R -d $device -F -n 50 -s 1000000 -q 4
        each ib_read_bw -R -d $device -F -n 50
        each ib_send_bw -R -d $device -F -n 50 -q 4
    ";
    let needs = &["ib_send_lat", "ib_write_bw", "ib_read_lat", "ib_send_bw"];
    if let Some(text) = script("perftest -R", needs, &format!("{EACH}{text}")) {
        assert_eq!(text.matches("#bytes").count(), 9, "{text}");
    }
}

/// It grants sends by WRITEs from memory that it changes before they have completed, as they have
/// not where little is buffered.
#[test]
fn perftest_both_ways_at_once() {
    let text = format!(
        r#"{EACH}
        echo 4096 16384 16384 >/proc/sys/net/ipv4/tcp_wmem
        at_peer sh -c "echo 4096 16384 16384 >/proc/sys/net/ipv4/tcp_rmem"
        each ib_send_bw -R -d $device -F -n 1000 -b -r 6 -t 6
        "#
    );
    if let Some(text) = script("perftest -R -b", &["ib_send_bw"], &text) {
        assert_eq!(text.matches("#bytes").count(), 1, "{text}");
    }
}

#[test]
fn who_is_refused_exits_or_is_killed_is_noticed_at_the_other_end() {
    let program = common::compile("leaver", "leaver", &["-Wl,--no-as-needed", "-lrdmacm"]);
    let text = format!(
        r#"
        refused rping -c -a $address -C 1
        serve 7174 rping -s -a 0.0.0.0
        preloaded {} $address 7174
        # rping's server ends with its connection.
        wait $server || true
        cat "$OUT/server"
        serve 7174 rping -s -a 0.0.0.0
        env LD_PRELOAD="$LIBRARY" rping -c -a $address >"$OUT/client" 2>&1 &
        client=$!
        sleep 0.5
        kill -9 $client
        wait $server || true
        cat "$OUT/server""#,
        program.display()
    );
    if let Some(text) = script("leaving", &["rping"], &text) {
        assert!(
            text.contains("RDMA_CM_EVENT_REJECTED, error -111"),
            "{text}"
        );
        assert_eq!(text.matches("DISCONNECT EVENT").count(), 2, "{text}");
    }
}
