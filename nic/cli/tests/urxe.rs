//! The `urxe` command from outside.
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn urxe() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urxe"));
    for variable in ["URXE_LIBRARY", "URXE_LOG", "LD_PRELOAD"] {
        command.env_remove(variable);
    }
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A library that can be preloaded and does nothing: the C library itself, which is there already.
fn harmless() -> std::path::PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    path.map(Path::new)
        .find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"))
        .unwrap()
        .to_owned()
}

#[test]
fn runs_the_program_with_the_library_and_its_own_exit_status() {
    let library = harmless();
    let mut command = urxe();
    command.arg("run").arg("--library").arg(&library);
    command.args([
        "--",
        "sh",
        "-c",
        "echo $0 $1 $LD_PRELOAD; exit 5",
        "zero",
        "--one",
    ]);
    let shown = library.display();
    let (status, stdout, stderr) = run(&mut command);
    assert_eq!((status, stderr.as_str()), (5, ""));
    assert_eq!(stdout, format!("zero --one {shown}\n"));
    // What was preloaded before stays, behind ours.
    let (_, stdout, _) = run(command.env("LD_PRELOAD", &library));
    assert_eq!(stdout, format!("zero --one {shown}:{shown}\n"));
}

#[test]
fn ucx_sends_pieces_that_fit_packets_unless_told_otherwise() {
    let library = harmless();
    let piece = |variables: &[(&str, &str)]| {
        let mut command = urxe();
        command
            .env_remove("UCX_TLS")
            .env_remove("UCX_RC_VERBS_SEG_SIZE")
            .env_remove("UCX_RC_VERBS_RX_QUEUE_LEN");
        command.args(["run", "--library"]).arg(&library);
        let show = "echo $UCX_RC_VERBS_SEG_SIZE $UCX_RC_VERBS_RX_QUEUE_LEN";
        command.args(["--", "sh", "-c", show]);
        run(command.envs(variables.iter().copied())).1
    };
    assert_eq!(piece(&[]), "36864 1024\n");
    assert_eq!(piece(&[("UCX_TLS", "tcp,self")]), "\n");
    assert_eq!(piece(&[("UCX_RC_VERBS_SEG_SIZE", "8256")]), "8256\n");
    let told = [("UCX_RC_VERBS_RX_QUEUE_LEN", "64")];
    assert_eq!(piece(&told), "36864 64\n");
}

#[test]
fn ucx_repeats_its_datagrams_where_packets_are_lost() {
    let library = harmless();
    let polls_less = |options: &[&str], variables: &[(&str, &str)]| {
        let mut command = urxe();
        command
            .env_remove("UCX_TLS")
            .env_remove("UCX_ADAPTIVE_PROGRESS");
        command.args(["run", "--library"]).arg(&library);
        command.args(options);
        command.args(["--", "sh", "-c", "echo $UCX_ADAPTIVE_PROGRESS"]);
        run(command.envs(variables.iter().copied())).1
    };
    assert_eq!(polls_less(&[], &[]), "\n");
    assert_eq!(polls_less(&["--delay", "1ms"], &[]), "\n");
    assert_eq!(polls_less(&["--loss", "1%"], &[]), "n\n");
    assert_eq!(polls_less(&["--corrupt", "1%"], &[]), "n\n");
    let told = [("UCX_ADAPTIVE_PROGRESS", "y")];
    assert_eq!(polls_less(&["--loss", "1%"], &told), "y\n");
}

#[test]
fn finds_the_library_beside_the_command_or_in_lib() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bin = folder.path().join("bin");
    let lib = folder.path().join("lib/urxe");
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir_all(&lib).unwrap();
    let command = bin.join("urxe");
    // A link, not a copy: a process that another test starts meanwhile would inherit the copy open
    // for writing, and no process could run it then.
    std::fs::hard_link(env!("CARGO_BIN_EXE_urxe"), &command).unwrap();
    let preloaded = || {
        let mut run_it = Command::new(&command);
        run_it.env_remove("URXE_LIBRARY").env_remove("LD_PRELOAD");
        run(run_it.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]))
    };
    let (status, _, stderr) = preloaded();
    assert_eq!(status, 1);
    assert!(
        stderr.contains("liburxe.so") && stderr.contains("URXE_LIBRARY"),
        "{stderr}"
    );
    symlink(harmless(), lib.join("liburxe.so")).unwrap();
    assert!(preloaded().1.trim_end().ends_with("lib/urxe/liburxe.so"));
    symlink(harmless(), bin.join("liburxe.so")).unwrap();
    assert!(
        preloaded().1.trim_end().ends_with("bin/liburxe.so"),
        "the nearer one wins"
    );
}

#[test]
fn says_what_is_wrong_with_the_program_or_library() {
    let library = harmless();
    let with_library = |program: &str| {
        run(urxe()
            .arg("run")
            .arg("--library")
            .arg(&library)
            .args(["--", program]))
    };
    let (status, _, stderr) = with_library("no-such-program");
    assert_eq!(status, 127);
    assert!(
        stderr.starts_with("urxe: no program 'no-such-program' in PATH"),
        "{stderr}"
    );
    let (status, _, stderr) = with_library("/etc/passwd");
    assert_eq!(status, 126);
    assert!(
        stderr.contains("/etc/passwd is not an executable file"),
        "{stderr}"
    );
    let (status, _, stderr) = run(urxe().args(["run", "--library", "/nonsense.so", "--", "true"]));
    assert_eq!(status, 1);
    assert!(stderr.contains("no library at /nonsense.so"), "{stderr}");
    let folder = tempfile::tempdir().unwrap();
    let spaced = folder.path().join("lib urxe.so");
    symlink(&library, &spaced).unwrap();
    let (status, _, stderr) = run(urxe()
        .arg("run")
        .env("URXE_LIBRARY", spaced)
        .args(["--", "true"]));
    assert_eq!(status, 1);
    assert!(stderr.contains("a space or a colon"), "{stderr}");
    let (status, _, stderr) = run(urxe().arg("run"));
    assert_eq!(status, 2);
    assert!(stderr.contains("PROGRAM"), "{stderr}");
}

#[test]
fn lists_the_loopback_device() {
    let (status, stdout, stderr) = run(urxe().args(["devices", "--json"]));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let devices: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let loopback = devices
        .as_array()
        .unwrap()
        .iter()
        .find(|device| device["interface"] == "lo");
    let Some(loopback) = loopback else {
        eprintln!("skipped: the loopback interface is down here");
        return;
    };
    assert_eq!(loopback["device"], "urxe_lo");
    assert_eq!(loopback["state"], "ACTIVE");
    assert_eq!(loopback["gids"][0]["address"], "127.0.0.1");
    assert_eq!(
        loopback["gids"][0]["gid"],
        "0000:0000:0000:0000:0000:ffff:7f00:0001"
    );
    let (_, table, _) = run(urxe().arg("devices"));
    assert!(
        table.starts_with("DEVICE") && table.contains("urxe_lo"),
        "{table}"
    );
}

#[test]
fn tells_its_version_and_completes() {
    let (status, stdout, _) = run(urxe().arg("--version"));
    assert_eq!(status, 0);
    assert!(
        stdout.starts_with(concat!("urxe ", env!("CARGO_PKG_VERSION"))),
        "{stdout}"
    );
    let (status, stdout, _) = run(urxe().args(["completions", "bash"]));
    assert_eq!(status, 0);
    assert!(stdout.contains("_urxe()") && stdout.contains("devices"));
}

#[test]
fn manual_pages_have_every_command_and_option() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man/man1");
    let (status, _, stderr) = run(urxe().arg("man").arg("--out").arg(&pages));
    assert_eq!((status, stderr.as_str()), (0, ""));
    let (_, help, _) = run(urxe().arg("--help"));
    let listed = help.split("Commands:").nth(1).unwrap();
    let listed = listed.split("Options:").next().unwrap();
    let commands: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.contains(&"run"), "{commands:?}");
    for command in &commands {
        let page = std::fs::read_to_string(pages.join(format!("urxe-{command}.1"))).unwrap();
        let page = page.replace('\\', "");
        let (_, help, _) = run(urxe().args([command, "--help"]));
        let options = help
            .split_whitespace()
            .map(|word| word.split(['=', ',', '[']).next().unwrap())
            .filter(|word| word.starts_with("--") && word.len() > 2);
        for option in options {
            assert!(page.contains(option), "urxe-{command}.1 has no {option}");
        }
    }
    let run_page = std::fs::read_to_string(pages.join("urxe-run.1")).unwrap();
    assert!(run_page.contains("URXE_LOG"), "{run_page}");
    let found = std::fs::read_dir(&pages).unwrap().count();
    assert_eq!(found, commands.len() + 1, "urxe.1 and a page for each");
    let (_, printed, _) = run(urxe().arg("man"));
    assert_eq!(
        printed,
        std::fs::read_to_string(pages.join("urxe.1")).unwrap()
    );
}

#[test]
fn manual_pages_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    run(urxe().arg("man").arg("--out").arg(folder.path()));
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let page = entry.unwrap().path();
        let checked = Command::new("groff")
            .args(["-man", "-ww", "-Tutf8", "-z"])
            .arg(&page)
            .output();
        let Ok(checked) = checked else {
            println!("skipped: groff is not installed");
            return;
        };
        let complaints = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(complaints, "", "{}", page.display());
    }
}
