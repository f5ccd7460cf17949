use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use urxe_device::{DeviceStat, QpStat};

use super::*;

/// A test whose processes answer does not wait for the end of the time.
const SHORT: Limits = Limits {
    timeout: Duration::from_secs(60),
    at_once: 8,
    processes: 40,
    failures: 3,
    user_time: Duration::from_secs(60),
    answer_bytes: 1 << 20,
    bytes: 4 << 20,
};

/// Names that no other test, and no process, has.
fn name(test: u64, number: u64) -> String {
    let unique = (u64::from(std::process::id()) << 32) + (test << 16) + number;
    format!("{STAT_SOCKET_PREFIX}1/{unique:016x}")
}

fn bind(name: &str) -> UnixListener {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
}

/// A socket that says this to each program that asks.
fn says(name: &str, answer: impl Into<Vec<u8>>) {
    let (listener, answer) = (bind(name), answer.into());
    std::thread::spawn(move || {
        for mut asker in listener.incoming().flatten() {
            let _ = asker.write_all(&answer);
        }
    });
}

fn true_answer() -> String {
    format!(r#"{{"schema": {STAT_SCHEMA}, "pid": 1, "comm": "x"}}"#)
}

fn ask(names: &[String]) -> (Vec<ProcessStat>, Vec<String>) {
    ask_all(
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
        &SHORT,
    )
}

#[test]
fn only_listening_sockets_of_ours_are_asked() {
    let sockets = "\
        Num       RefCount Protocol Flags    Type St Inode Path\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 43171 @urxe-stat/812/00ff00ff00ff00ff\n\
        0000000000000000: 00000003 00000000 00000000 0001 03 43172 @urxe-stat/812/00ff00ff00ff00ff\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 43173 /run/urxe-stat/1\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 43174 @other\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 43174 @urxe-stat/812\x1b[2J/00ff00ff00ff00ff\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 43174 @urxe-stat/812/00ff00ff00ff00f\u{fffd}\n\
        0000000000000000: 00000002 00000000 00010000 0001 01 43175\n";
    let ours = "urxe-stat/812/00ff00ff00ff00ff";
    assert_eq!(names(sockets).collect::<Vec<_>>(), [ours]);
    assert_eq!(shown(ours), "process 812");
}

#[test]
fn what_a_terminal_would_obey_is_not_shown() {
    let own = name(1, 0);
    let hostile = r#"\u001b[2J\u009b0m\u202egpj\n"#;
    says(
        &own,
        format!(
            r#"{{"schema": {STAT_SCHEMA}, "pid": 7, "comm": "{hostile}", "devices": [{{"device": "{hostile}", "interface": "{hostile}",
            "counters": {{"{hostile}": 1}}, "qps": [{{"type": "{hostile}", "state": "{hostile}", "local_address": "{hostile}",
            "remote_address": "{hostile}", "counters": {{"{hostile}": 1}}}}]}}]}}"#
        ),
    );
    let (processes, complaints) = ask(&[own]);
    assert_eq!(complaints, Vec::<String>::new());
    let told = serde_json::to_string(&processes).unwrap();
    assert!(
        !told.contains(['\u{9b}', '\u{202e}']) && !told.contains("\\u001b"),
        "{told}"
    );
    assert!(told.contains("?[2J?0m?gpj?"), "{told}");
    // The kernel says which process it is, and whose.
    assert_eq!(processes[0].pid, std::process::id());
    assert_eq!(processes[0].uid, Some(rustix::process::geteuid().as_raw()));
    assert_ne!(processes[0].comm, "?[2J?0m?gpj?");
}

#[test]
fn long_texts_are_cut() {
    let mut text = "ü".repeat(1000);
    clean_text(&mut text);
    assert_eq!(text, "ü".repeat(TEXT_MAX));
}

#[test]
fn a_full_queue_of_askers_makes_nobody_wait() {
    let own = name(2, 0);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let address = SocketAddrUnix::new_abstract_name(own.as_bytes()).unwrap();
    let listener = socket();
    rustix::net::bind(&listener, &address).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting: Vec<_> = std::iter::repeat_with(socket)
        .take_while(|asker| connect(asker, &address) == Ok(()))
        .collect();
    assert!(!waiting.is_empty());
    let (processes, complaints) = ask(&[own]);
    assert_eq!(processes, []);
    assert_eq!(complaints, ["process 1: does not answer (is it stopped?)"]);
}

#[test]
fn who_says_too_much_does_not_keep_others_from_being_heard() {
    let names: Vec<_> = (0..3).map(|number| name(3, number)).collect();
    says(&names[0], vec![b' '; 4 << 20]);
    says(&names[1], true_answer());
    says(&names[2], r#"{"schema": "\u001b[2J"}"#);
    let (processes, mut complaints) = ask(&names);
    assert_eq!(processes.len(), 1);
    complaints.sort();
    assert_eq!(
        complaints,
        [
            "process 1: answers what is not understood",
            "process 1: answers with more than fits",
        ]
    );
}

#[test]
fn a_user_with_many_silent_sockets_costs_one_wait() {
    let names: Vec<_> = (0..100).map(|number| name(4, number)).collect();
    let _silent: Vec<_> = names.iter().map(|name| bind(name)).collect();
    let limits = Limits {
        timeout: Duration::from_millis(100),
        ..SHORT
    };
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    let (processes, complaints) = ask_all(&all, &limits);
    assert_eq!(processes, []);
    // Those that were asked at once, and a line about all others.
    assert_eq!(complaints.len(), SHORT.at_once + 1, "{complaints:?}");
}

/// What a process tells that has a device, and this many queue pairs.
fn with_queue_pairs(count: u32) -> Vec<u8> {
    let counters = |count| {
        let named = (0..count).map(|number| (format!("some_counter_{number}"), number));
        named.collect::<Counters>()
    };
    let qp = |number| QpStat {
        lqpn: number,
        r#type: "RC".into(),
        state: "RTS".into(),
        local_address: Some("fd00::1:2:3:4".into()),
        remote_address: Some("fd00::5:6:7:8".into()),
        counters: counters(20),
        ..QpStat::default()
    };
    let device = DeviceStat {
        device: "urxe_eth0".into(),
        counters: counters(30),
        qps: (0..count).map(qp).collect(),
        ..DeviceStat::default()
    };
    serde_json::to_vec(&ProcessStat {
        schema: STAT_SCHEMA,
        devices: vec![device; 4],
        ..ProcessStat::default()
    })
    .unwrap()
}

#[test]
fn answers_that_would_take_gigabytes_in_memory_are_refused() {
    let begin = format!(r#"{{"schema": {STAT_SCHEMA}, "devices": ["#);
    let many = |item: &str| vec![item; 60_000].join(",");
    let counters: Vec<_> = (0..60_000)
        .map(|number| format!(r#""{number:x}":1"#))
        .collect();
    let hostile = [
        format!("{begin}{}]}}", many("[]")),
        format!("{begin}{}]}}", many("{}")),
        format!(r#"{begin}{{"qps": [{}]}}]}}"#, many("[]")),
        format!(r#"{begin}{{"qps": [{}]}}]}}"#, many("{}")),
        format!(r#"{begin}{{"counters": {{{}}}}}]}}"#, counters.join(",")),
    ];
    for (number, answer) in (0..).zip(hostile) {
        let own = name(5, number);
        says(&own, answer);
        let (processes, complaints) = ask(&[own]);
        assert_eq!(processes.len(), 0, "{number}");
        assert_eq!(complaints, ["process 1: answers what is not understood"]);
    }
    for count in [0, 1, 10, 200] {
        let own = name(6, u64::from(count));
        says(&own, with_queue_pairs(count));
        let (processes, complaints) = ask(&[own]);
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(processes[0].devices[3].qps.len(), count as usize);
    }
}

/// Sockets of one user answer, but each only when it is asked for long.
#[test]
fn a_user_whose_answers_come_late_uses_up_its_time() {
    let names: Vec<_> = (0..40).map(|number| name(7, number)).collect();
    for name in &names {
        let listener = bind(name);
        std::thread::spawn(move || {
            for mut asker in listener.incoming().flatten() {
                std::thread::sleep(Duration::from_millis(400));
                let _ = asker.write_all(true_answer().as_bytes());
            }
        });
    }
    let limits = Limits {
        user_time: Duration::from_millis(600),
        ..SHORT
    };
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    let (processes, complaints) = ask_all(&all, &limits);
    // Five times as many as are asked at once; twice is more than the time.
    assert!(processes.len() <= 2 * SHORT.at_once, "{}", processes.len());
    assert!(
        complaints
            .iter()
            .any(|line| line.starts_with("further processes of user")),
        "{complaints:?}"
    );
}
