//! Debian's own programs, unmodified: over the loopback interface, and between two network
//! namespaces. Each pair runs in namespaces of its own, so that the ports these programs use are
//! free.
mod common;

use common::script::{Script, stdout};
use common::shown;

#[test]
fn ibv_devices_and_devinfo_show_the_device() {
    let text = "preloaded ibv_devices\npreloaded ibv_devinfo -v -d $device".to_owned();
    let needs = &["ibv_devices", "ibv_devinfo"];
    let script = Script {
        name: "ibv_devinfo",
        needs,
        two_namespaces: true,
        text,
    };
    let Some(output) = script.run() else { return };
    let text = stdout(&output);
    for part in [
        "urxe_eth0",
        "urxe_lo",
        "state:\t\t\tPORT_ACTIVE (4)",
        "active_mtu:\t\t1024 (3)",
        "link_layer:\t\tEthernet",
        "GID[  0]:\t\t::ffff:192.0.2.1, RoCE v2",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// `ibv_rc_pingpong` with each of the options, polling and with events.
fn pingpong(two_namespaces: bool) {
    let mut text = String::new();
    for options in [
        "",
        "-e",
        "-s 1",
        "-e -s 100000 -n 100",
        "-c -n 100",
        "-m 256 -n 100",
        "-N",
        "-o -n 100",
        "-o -P -n 100",
        "-O -n 100",
        "-t -n 100",
        "-j -n 100 -s 512",
    ] {
        text += &format!("pair 18515 ibv_rc_pingpong -d $device -g 0 -n 300 {options}\n");
    }
    let needs = &["ibv_rc_pingpong"];
    let script = Script {
        name: "ibv_rc_pingpong",
        needs,
        two_namespaces,
        text,
    };
    let Some(output) = script.run() else { return };
    assert_eq!(
        stdout(&output).matches("usec/iter").count(),
        12,
        "{}",
        shown(&output)
    );
}

#[test]
fn rc_pingpong_over_loopback() {
    pingpong(false);
}

#[test]
fn rc_pingpong_between_namespaces() {
    pingpong(true);
}

/// The loopback interface as a device of several addresses, of both families.
#[test]
fn every_address_of_the_loopback_interface() {
    let mut text = "ip address add 198.51.100.7/32 dev lo\n".to_owned();
    // 127.0.0.1, this one and ::1. The programs meet over IPv4.
    for index in 0..3 {
        text += &format!(
            "pair 18515 ibv_rc_pingpong -d $device -g {index} -n 100\n\
             pair 18515 ibv_ud_pingpong -d $device -g {index} -n 100 -s 1000\n"
        );
    }
    let script = Script {
        name: "addresses of loopback",
        needs: &["ibv_rc_pingpong", "ibv_ud_pingpong"],
        two_namespaces: false,
        text,
    };
    let Some(output) = script.run() else { return };
    let text = stdout(&output);
    assert_eq!(text.matches("usec/iter").count(), 6, "{}", shown(&output));
    for address in ["::ffff:127.0.0.1", "::ffff:198.51.100.7", "::1"] {
        assert!(text.contains(&format!("GID {address}\n")), "{text}");
    }
}

/// The other four pingpong programs, polling and with events.
#[test]
fn pingpong_over_every_transport() {
    let mut text = String::new();
    for (program, options) in [
        ("ibv_uc_pingpong", &["-c", "-e", "-s 100000"][..]),
        ("ibv_ud_pingpong", &["-c", "-e", "-s 1000"]),
        ("ibv_srq_pingpong", &["-c", "-e", "-q 4"]),
        ("ibv_xsrq_pingpong", &["", "-e", "-s 1000"]),
    ] {
        for option in options {
            text += &format!("pair 18515 {program} -d $device -g 0 -n 100 {option}\n");
        }
    }
    let needs = &[
        "ibv_uc_pingpong",
        "ibv_ud_pingpong",
        "ibv_srq_pingpong",
        "ibv_xsrq_pingpong",
    ];
    let script = Script {
        name: "pingpong",
        needs,
        two_namespaces: true,
        text,
    };
    let Some(output) = script.run() else { return };
    let text = stdout(&output);
    assert_eq!(text.matches("usec/iter").count(), 9, "{}", shown(&output));
    assert_eq!(text.matches("success").count(), 3, "{}", shown(&output));
}

const LATENCY: [&str; 3] = ["ib_send_lat", "ib_write_lat", "ib_read_lat"];
const BANDWIDTH: [&str; 3] = ["ib_send_bw", "ib_write_bw", "ib_read_bw"];

/// perftest opens counters once, and reads them before and after.
#[test]
fn perftest_reports_counters() {
    let counters = "hw_counters/out_of_buffer,hw_counters/sent_pkts,counters/port_xmit_data";
    let script = Script {
        name: "counters of perftest",
        needs: &["ib_send_bw"],
        two_namespaces: true,
        text: format!("pair 18515 ib_send_bw -d $device -x 0 -F -n 100 -s 4096 -W {counters}\n"),
    };
    let Some(output) = script.run() else { return };
    let text = stdout(&output);
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
        line.trim_start_matches('=').parse().unwrap()
    };
    assert_eq!(value("hw_counters/out_of_buffer"), 0);
    // The path MTU is 1024.
    assert!(value("hw_counters/sent_pkts") >= 400, "{text}");
    assert!(value("counters/port_xmit_data") >= 100 * 4096 / 4, "{text}");
}

/// Each of the programs with each of the options; each run prints a table.
fn perftest(
    name: &'static str,
    two_namespaces: bool,
    programs: &'static [&'static str],
    options: &[&str],
) {
    let mut text = String::new();
    for program in programs {
        for option in options {
            // perftest itself refuses events for WRITE, whose target has no completions.
            if !(program.contains("write") && option.contains("-e")) {
                text += &format!("pair 18515 {program} -d $device -x 0 -F {option}\n");
            }
        }
    }
    let script = Script {
        name,
        needs: programs,
        two_namespaces,
        text,
    };
    let Some(output) = script.run() else { return };
    let runs = script.text.lines().count();
    let tables = stdout(&output).matches("#bytes").count();
    assert_eq!(tables, runs, "{}", shown(&output));
}

#[test]
fn perftest_over_loopback() {
    perftest("perftest over loopback", false, &LATENCY, &["-n 100"]);
    let options = &["-n 100 --use_old_post_send"];
    perftest("perftest over loopback", false, &BANDWIDTH, options);
}

#[test]
fn perftest_between_namespaces() {
    perftest(
        "perftest between namespaces",
        true,
        &LATENCY,
        &["-m 256 -n 100"],
    );
    let options = &["-e -n 100", "-b -q 8 -n 20", "-m 256 -s 3000 -n 50"];
    perftest("perftest between namespaces", true, &BANDWIDTH, options);
}

#[test]
fn perftest_over_every_transport() {
    let sends = &["ib_send_lat", "ib_send_bw"];
    let name = "perftest over every transport";
    perftest(
        name,
        true,
        sends,
        &["-c UD -n 50", "-c UC -n 50", "-c XRC -n 50"],
    );
    let writes = &["ib_write_lat", "ib_write_bw"];
    perftest(name, true, writes, &["-c UC -n 50", "-c XRC -n 50"]);
    perftest(
        name,
        true,
        &["ib_read_bw", "ib_atomic_bw"],
        &["-c XRC -n 50"],
    );
    let options = &[
        "--use-srq -q 4 -n 50",
        "-c UD --use-srq -n 50",
        "-c UC --use-srq -b -n 50",
        "-c UD -e -n 50",
        "-c UD -b --use_old_post_send -n 50",
        "-c XRC --use_old_post_send -n 50",
    ];
    perftest(name, true, &["ib_send_bw"], options);
    perftest(name, true, &["ib_atomic_lat"], &["-A CMP_AND_SWAP -n 50"]);
}

/// The others with all sizes are in the matrix of programs (nic/conformance): perftest measures the
/// processor's clock for 0.2 s after every size.
#[test]
fn perftest_with_all_sizes() {
    let programs = &["ib_send_bw", "ib_write_lat", "ib_read_lat"];
    perftest("perftest -a", true, programs, &["-a -n 20"]);
}

#[test]
fn perftest_over_ipv6_and_for_a_duration() {
    let text = "at_peer ip address add 2001:db8::2/64 dev eth0 nodad\n\
        ip address add 2001:db8::1/64 dev eth0 nodad\n\
        pair 18515 ib_write_bw -d $device -x 1 -F -n 100\n\
        pair 18515 ib_send_lat -d $device -x 0 -F -D 1\n"
        .to_owned();
    let needs = &["ib_write_bw", "ib_send_lat"];
    let script = Script {
        name: "perftest over IPv6",
        needs,
        two_namespaces: true,
        text,
    };
    let Some(output) = script.run() else { return };
    assert_eq!(
        stdout(&output).matches("#bytes").count(),
        2,
        "{}",
        shown(&output)
    );
}

#[test]
fn no_device_is_an_empty_list() {
    let program = common::build("no_devices");
    let script = Script {
        name: "no devices",
        needs: &[],
        two_namespaces: false,
        text: format!("ip link set lo down\npreloaded {}", program.display()),
    };
    script.run();
}

#[test]
fn programs_without_verbs_run_as_ever_and_load_nothing() {
    // Programs that open files by libc's functions of every kind, and do not link libibverbs.
    for arguments in [
        &["cat", "/proc/self/maps"][..],
        &["bash", "-c", "cat < /proc/$$/maps"],
    ] {
        let output = common::preloaded(arguments[0])
            .args(&arguments[1..])
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", shown(&output));
        let text = stdout(&output);
        assert!(text.contains("liburxe.so"), "{text}");
        assert!(!text.contains("libibverbs"), "loaded for nothing: {text}");
        assert!(output.stderr.is_empty(), "{}", shown(&output));
    }
    let output = common::preloaded("getent")
        .args(["hosts", "localhost"])
        .output()
        .unwrap();
    assert!(
        stdout(&output).contains("localhost"),
        "fopen of /etc/hosts: {}",
        shown(&output)
    );
}

/// UCX finds the device, and its transports carry messages and remote accesses.
#[test]
fn ucx_over_rc_and_ud() {
    let mut text = "preloaded ucx_info -d\nexport UCX_NET_DEVICES=$device:1\n".to_owned();
    for transport in ["rc", "ud_verbs"] {
        for test in ["tag_lat", "ucp_put_lat", "ucp_get"] {
            text += &format!(
                "UCX_TLS={transport} pair 13337 ucx_perftest -t {test} -s 8192 -n 100 -w 10\n"
            );
        }
    }
    let needs = &["ucx_info", "ucx_perftest"];
    let script = Script {
        name: "UCX",
        needs,
        two_namespaces: true,
        text,
    };
    let Some(output) = script.run() else { return };
    let text = stdout(&output);
    for part in [
        "Transport: rc_verbs",
        "Transport: ud_verbs",
        "Device: urxe_eth0:1",
        // The PCI function that the device belongs to.
        "System device: urxe_eth0 ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(text.matches("Final:").count(), 6, "{}", shown(&output));
}

/// A sender of datagrams that is faster than its link, and ends as soon as they count as sent: none
/// is lost at its end.
#[test]
fn a_sender_that_ends_takes_no_datagram_along() {
    if common::script::namespaces().is_some_and(|options| options.len() > 1) {
        eprintln!("skipped: without privileges, the receiver's buffer is too small for a burst");
        return;
    }
    let program = common::build("burst");
    // Slower than the sender, with room for more than a socket's buffer.
    let text = format!(
        r#"
        tc qdisc add dev eth0 root tbf rate 100mbit burst 128kb limit 64mb
        at_peer timeout --kill-after=1 120 env LD_PRELOAD="$LIBRARY" {program} >"$OUT/server" & server=$!
        until grep -qs listens "$OUT/server"; do sleep 0.02; done
        preloaded {program} $address $(cut -d' ' -f2 "$OUT/server")
        wait $server || {{ cat "$OUT/server"; exit 1; }}
        cat "$OUT/server""#,
        program = program.display()
    );
    let script = Script {
        name: "a burst",
        needs: &["tc"],
        two_namespaces: true,
        text,
    };
    let Some(output) = script.run() else { return };
    assert!(stdout(&output).contains("all came"), "{}", shown(&output));
}

/// Not a program of Debian's, but one that needs network interfaces of its own.
#[test]
fn the_gid_table_and_the_port_follow_the_interface() {
    // Without IPv6, whose addresses appear when they like.
    let text = format!(
        "sysctl -qw net.ipv6.conf.default.disable_ipv6=1
         ip link add left type veth peer name right
         ip address add 192.0.2.1/24 dev left
         ip link set left up
         ip link set right up
         until ip -o link show left | grep -q 'state UP'; do sleep 0.05; done
         preloaded {}",
        common::build("link").display()
    );
    let needs = &["sysctl"];
    let script = Script {
        name: "link",
        needs,
        two_namespaces: false,
        text,
    };
    script.run();
}

/// What does not work says so and ends; it does not crash or hang.
#[test]
fn what_is_not_supported_ends_with_an_error() {
    let text = r#"
        refuses() { status=0; preloaded "$@" || status=$?; echo "status $status"; }
        refuses ibv_rc_pingpong -d nonsense
        refuses raw_ethernet_bw --server -d $device -B 02:00:00:00:00:02 -E 02:00:00:00:00:01 -F -s 64 -n 5
        "#
    .to_owned();
    let needs = &["ibv_rc_pingpong", "raw_ethernet_bw"];
    let script = Script {
        name: "refusals",
        needs,
        two_namespaces: false,
        text,
    };
    let Some(output) = script.run() else { return };
    let text = stdout(&output);
    let statuses: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("status "))
        .collect();
    assert_eq!(statuses.len(), 2, "{}", shown(&output));
    assert!(
        statuses.iter().all(|status| *status == "1"),
        "{statuses:?} {}",
        shown(&output)
    );
}
