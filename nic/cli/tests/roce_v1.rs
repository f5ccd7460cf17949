//! RoCE v1, as programs under `urxe run --roce-v1` have it. GID 32 is that of 127.0.0.1.
mod support;

use std::process::Command;

use support::*;

#[test]
fn wireshark_reads_frames_as_roce_v1() {
    let folder = folder();
    let script_text = r#"
        start 18515 "--roce-v1" "--roce-v1 --pcap client.pcapng" ib_send_lat -d urxe_lo -x 32 -n 50 -s 2000
        finish
        start 18515 "--roce-v1" "--roce-v1 --pcap both.pcapng" ib_read_bw -d urxe_lo -x 33 -n 20 -s 20000
        finish
        fields='-e eth.type -e infiniband.grh.ipver -e infiniband.grh.nxthdr -e infiniband.grh.sgid -e infiniband.bth.opcode'
        for file in client both; do tshark -n -r $file.pcapng -T fields $fields >$file.fields; done
        tshark -n -r client.pcapng -Y '_ws.malformed || _ws.expert.severity == "Error"' >wrong
    "#;
    let needs = &["ib_send_lat", "ib_read_bw", "tshark"];
    let name = "urxe run --roce-v1 --pcap";
    if script(name, needs, folder.path(), script_text).is_none() {
        return;
    }
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    for (file, source, opcodes) in [
        ("client.fields", "::ffff:127.0.0.1", &["4", "17"][..]),
        ("both.fields", "::1", &["12", "15"]),
    ] {
        let text = read(file);
        let frames: Vec<Vec<_>> = text
            .lines()
            .map(|line| line.split('\t').collect())
            .collect();
        assert!(frames.len() > 20, "{text}");
        for frame in &frames {
            assert_eq!(frame[..4], ["0x8915", "6", "27", source], "{file}");
        }
        for opcode in opcodes {
            assert!(
                frames.iter().any(|frame| frame[4] == *opcode),
                "{opcode}: {text}"
            );
        }
    }
    assert_eq!(read("wrong"), "");
}

#[test]
fn a_queue_pair_of_one_version_takes_nothing_of_the_other() {
    let folder = folder();
    let text = r#"
        for indices in "0 32" "32 0"; do
            set -- $indices
            timeout 60 urxe run --roce-v1 -- ibv_rc_pingpong -d urxe_lo -g $1 >server 2>&1 &
            until_true "a server" listens 18515
            if timeout 60 urxe run --roce-v1 -- ibv_rc_pingpong -d urxe_lo -g $2 127.0.0.1 >client 2>&1; then
                echo "a message passed from GID $2 to GID $1"; exit 1
            fi
            cat client
            pkill -P $! || true
            wait || true
        done
    "#;
    let needs = &["ibv_rc_pingpong", "pkill"];
    let Some(output) = script("urxe run --roce-v1", needs, folder.path(), text) else {
        return;
    };
    let text = shown(&output);
    let failed = text.matches("transport retry counter exceeded").count();
    assert_eq!(failed, 2, "{text}");
}

#[test]
fn loss_is_repaired() {
    let folder = folder();
    let text = r#"
        bad='--roce-v1 --loss 2% --corrupt 1% --reorder 1% --seed 7'
        start 18515 "$bad" "$bad" ib_write_bw -d urxe_lo -x 32 -n 200 -s 65536
        until_true "losses" shows '"impaired_lost": [1-9]'
        finish
        cat client
    "#;
    let needs = &["ib_write_bw"];
    let Some(output) = script("urxe run --roce-v1 --loss", needs, folder.path(), text) else {
        return;
    };
    assert!(
        shown(&output).contains(" 65536      200 "),
        "{}",
        shown(&output)
    );
}

#[test]
fn what_is_on_another_link_is_refused_with_a_reason() {
    let folder = folder();
    let text = r#"
        ip link add veth0 type veth peer name veth1
        ip address add 10.66.0.1/24 dev veth0
        ip link set veth0 up; ip link set veth1 up
        timeout 60 urxe run --roce-v1 -- ibv_rc_pingpong -d urxe_lo -g 33 >server 2>&1 &
        until_true "a server" listens 18515
        timeout 60 urxe run --roce-v1 -- ibv_rc_pingpong -d urxe_veth0 -g 32 127.0.0.1 >client 2>&1 && exit 1
        pkill -P $! || true
        wait || true
        cat client server
    "#;
    let needs = &["ibv_rc_pingpong", "pkill"];
    let Some(output) = script("urxe run --roce-v1", needs, folder.path(), text) else {
        return;
    };
    let text = shown(&output);
    for part in ["10.66.0.1 is on no network of lo", "use a GID of RoCE v2"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_group_is_refused_with_a_reason_which_is_said_once() {
    let folder = folder();
    let text = format!(
        r#"
        cc -Wall -Wextra -Werror -D_GNU_SOURCE {}/tests/c/groups.c -libverbs -o groups
        urxe run --roce-v1 -- ./groups urxe_lo 2>&1
        "#,
        env!("CARGO_MANIFEST_DIR")
    );
    let Some(output) = script("urxe run --roce-v1", &["cc"], folder.path(), &text) else {
        return;
    };
    let text = shown(&output);
    for part in ["GID 0: made\n", "GID 32: EINVAL\n"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("GID 32: made"), "{text}");
    let reasons =
        text.matches("239.1.2.1 is a multicast group, and GID index 32 is one of RoCE v1");
    assert_eq!(reasons.count(), 1, "{text}");
    assert!(!text.contains("239.1.2.2"), "{text}");
}

#[test]
fn the_devices_have_entries_of_both_types() {
    let folder = folder();
    let text = r#"
        urxe devices --json >plain
        URXE_ROCE_V1=on urxe devices --json >both
        urxe run --roce-v1 -- cat /sys/class/infiniband/urxe_lo/ports/1/gid_attrs/types/0
        urxe run --roce-v1 -- cat /sys/class/infiniband/urxe_lo/ports/1/gid_attrs/types/32
    "#;
    let Some(output) = script("urxe run --roce-v1", &["cat"], folder.path(), text) else {
        return;
    };
    let text = shown(&output);
    assert!(text.contains("RoCE v2\nIB/RoCE v1\n"), "{text}");
    let entries = |file: &str| -> Vec<(u64, String, String)> {
        let devices = json(folder.path(), file);
        let gids = devices[0]["gids"].as_array().unwrap().clone();
        let text = |gid: &serde_json::Value, key: &str| gid[key].as_str().unwrap().to_owned();
        gids.iter()
            .map(|gid| {
                let index = gid["index"].as_u64().unwrap();
                (index, text(gid, "address"), text(gid, "type"))
            })
            .collect()
    };
    let (plain, both) = (entries("plain"), entries("both"));
    assert_eq!(both[..plain.len()], plain);
    let v1 = plain
        .iter()
        .map(|(index, address, _)| (index + 32, address.clone(), "IB/RoCE v1".to_owned()));
    assert!(both[plain.len()..].iter().cloned().eq(v1), "{both:?}");
}

#[test]
fn without_the_right_it_is_refused_with_what_to_do() {
    let without = ["--bounding-set", "-net_raw", "--inh-caps", "-net_raw"];
    let output = Command::new("setpriv")
        .args(without)
        .arg(env!("CARGO_BIN_EXE_urxe"))
        .args(["run", "--roce-v1", "--", "true"])
        .env("URXE_LIBRARY", library())
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: urxe run --roce-v1 without CAP_NET_RAW needs setpriv (util-linux)");
        return;
    };
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in ["--roce-v1", "CAP_NET_RAW", "use RoCE v2"] {
        assert!(text.contains(part), "{text}");
    }
}
