//! Captures and bad networks, as programs under `urxe run` have them.
mod support;

use std::collections::HashSet;
use std::process::Command;

use support::*;

const PCAP_SCRIPT: &str = r#"
        start 18515 "--pcap server.pcapng" "--pcap client.pcapng" ib_send_lat -d urxe_lo -x 0 -n 50 -s 2000
        finish
        start 18515 "--pcap server.%p" "--pcap both.pcapng" ib_read_bw -d urxe_lo -x 0 -n 20 -s 20000
        finish
        ls server.[0-9]*
        # Both ends are processes of one program, which write one file.
        urxe run --pcap tree.pcapng -- bash -c '
            ib_write_bw -d urxe_lo -x 0 -n 100 -s 4096 >/dev/null &
            until ss -Hltn | grep -q :18515; do sleep 0.05; done
            ib_write_bw -d urxe_lo -x 0 -n 100 -s 4096 127.0.0.1 >/dev/null && wait'
        # Killed in the middle: what was written can be read, but for the packet that was just being written.
        start 18515 "--pcap killed.pcapng" "" ib_write_bw -d urxe_lo -x 0 -D 20 -s 4096
        until_true "packets" test -s killed.pcapng
        sleep 0.3
        urxe stat --json | sed -n 's/^ *"pid": \([0-9]*\),/\1/p' | xargs kill -9
        wait $client $server || true
        fields='-e frame.time_epoch -e frame.p2p_dir -e ip.src -e ip.id -e udp.length -e infiniband.bth.opcode -e infiniband.bth.psn'
        for file in client both tree; do tshark -n -r $file.pcapng -T fields $fields >$file.fields; done
        tshark -n -r killed.pcapng -T fields $fields >killed.fields || test $? -eq 2
        capinfos -tl client.pcapng
        tshark -n -r client.pcapng -o udp.check_checksum:TRUE -o ip.check_checksum:TRUE -z expert,warn -q >expert
    "#;

#[test]
fn wireshark_reads_what_programs_sent() {
    let folder = folder();
    let needs = &[
        "ib_send_lat",
        "ib_read_bw",
        "ib_write_bw",
        "tshark",
        "capinfos",
    ];
    let Some(output) = script("urxe run --pcap", needs, folder.path(), PCAP_SCRIPT) else {
        return;
    };
    let read = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
    let opcodes = |file: &str| -> Vec<String> {
        let text = read(file);
        let lines = text.lines().map(|line| line.split('\t').nth(5).unwrap());
        lines.map(str::to_owned).collect()
    };
    let client = opcodes("client.fields");
    // ib_send_lat of 2000 bytes at path MTU 4096 or 1024: SEND Only, or First and Last;
    // acknowledgements.
    assert!(client.contains(&"17".to_owned()), "{client:?}");
    // A message that was sent again is the same one: direction, opcode and PSN tell.
    let text = read("client.fields");
    let messages: HashSet<_> = text
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|fields| ["2", "4"].contains(&fields[5]))
        .map(|fields| (fields[1], fields[6]))
        .collect();
    assert_eq!(messages.len(), 100, "50 messages each way: {text}");
    let both = opcodes("both.fields");
    assert!(
        both.contains(&"12".to_owned()) && both.contains(&"15".to_owned()),
        "{both:?}"
    );
    assert!(
        both.iter().all(|opcode| !opcode.is_empty()),
        "not RoCE: {both:?}"
    );
    // Both directions.
    for direction in ["\t0\t", "\t1\t"] {
        assert!(text.contains(direction), "{text}");
    }
    assert!(shown(&output).contains("server."), "{}", shown(&output));
    assert!(!opcodes("killed.fields").is_empty());
    // What was received was sent, with the same headers.
    let tree = read("tree.fields");
    let passed = |direction: &str| {
        let lines = tree
            .lines()
            .map(|line| line.split('\t').collect::<Vec<_>>());
        let lines = lines.filter(|fields| fields[1] == direction);
        let mut passed: Vec<_> = lines.map(|fields| fields[2..].join(" ")).collect();
        passed.sort();
        passed
    };
    let (sent, received) = (passed("0"), passed("1"));
    // The last acknowledgement may find no process any more.
    let known = received
        .iter()
        .filter(|packet| sent.binary_search(packet).is_ok());
    assert!(
        received.len() >= 100 && known.count() == received.len(),
        "{tree}"
    );
    let expert = read("expert");
    assert!(!expert.to_lowercase().contains("checksum"), "{expert}");
}

#[test]
fn perftest_completes_on_a_bad_network() {
    let folder = folder();
    let text = r#"
        bad='--loss 5% --duplicate 1% --reorder 1% --corrupt 1% --seed 7'
        for program in ib_write_bw ib_read_bw ib_send_bw; do
            start 18515 "$bad" "$bad" $program -d urxe_lo -x 0 -n 200 -s 65536
            until_true "losses" shows '"impaired_lost": [1-9]'
            finish
            cat client
        done
        start 18515 "$bad" "--loss 5% --pcap client.pcapng" ib_send_lat -d urxe_lo -x 0 -n 500 -s 64
        finish
        cat client
    "#;
    let needs = &["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_send_lat"];
    let Some(output) = script("urxe run --loss", needs, folder.path(), text) else {
        return;
    };
    let text = shown(&output);
    assert_eq!(text.matches(" 65536      200 ").count(), 3, "{text}");
    assert_eq!(text.matches(" 64      500 ").count(), 1, "{text}");
    let capture = folder.path().join("client.pcapng").metadata().unwrap();
    assert!(capture.len() > 10_000, "{} bytes", capture.len());
}

#[test]
fn says_what_is_wrong_with_a_network_or_a_capture() {
    let urxe = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_urxe"))
            .args(arguments)
            .env("URXE_LIBRARY", library())
            .output()
            .unwrap();
        (output.status.code(), shown(&output))
    };
    for (option, value, part) in [
        (
            "--loss",
            "1",
            "'1' has no percent sign: write it as 1% or 0.05%",
        ),
        ("--reorder", "120%", "'120%' is not between 0% and 100%"),
        ("--corrupt", "x%", "'x%' is not a percentage"),
        (
            "--delay",
            "5",
            "'5' has no unit: write it as 100us, 1.5ms or 2s",
        ),
        ("--seed", "-1", "unexpected argument '-1'"),
    ] {
        let (status, text) = urxe(&["run", option, value, "--", "true"]);
        assert!(status == Some(2) && text.contains(part), "{option}: {text}");
    }
    let (status, text) = urxe(&["run", "--pcap", "/nonexistent/file", "--", "true"]);
    assert!(
        status == Some(1) && text.contains("cannot write the capture /nonexistent/file"),
        "{text}"
    );
    let (status, text) = urxe(&["stat", "--watch=0"]);
    assert!(
        status == Some(2) && text.contains("not between 0.1 and 86400 seconds"),
        "{text}"
    );
    let (status, text) = urxe(&["ping", "no-such-host.invalid"]);
    assert!(
        status == Some(1) && text.contains("no-such-host.invalid"),
        "{text}"
    );
}
