//! Programs into which liburxe.so cannot get: `urxe run` says so before they start, and the
//! programs do as it says.
mod support;

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::turn;

use tempfile::TempDir;

/// Says whether the preloaded library is in it.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
int main(void)
{
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, "liburxe.so") != NULL;
    puts(found ? "loaded" : "alone");
    return 0;
}
"#;

/// A folder that every user can read, with the library under test in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("liburxe.so");
    std::fs::copy(library, folder.path().join("liburxe.so")).unwrap();
    folder
}

/// Compiles the program; `None` (which is said) if this machine cannot link it so.
fn program(folder: &TempDir, options: &[&str]) -> Option<PathBuf> {
    let source = folder.path().join("program.c");
    std::fs::write(&source, PROGRAM).unwrap();
    let program = folder.path().join(format!("program{}", options.concat()));
    let output = Command::new("cc")
        .args(options)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is needed (Debian: apt-get install gcc)");
    if !options.is_empty() && !output.status.success() {
        eprintln!("skipped: linking with {options:?} is not possible here");
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(program)
}

fn urxe(folder: &TempDir, options: &[&str], words: &[&Path]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_urxe"));
    command.env_remove("LD_PRELOAD").arg("run").arg("--library");
    command.arg(folder.path().join("liburxe.so"));
    command.args(options).arg("--").args(words);
    command
}

fn outcome(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn loaded() -> (i32, String, String) {
    (0, "loaded\n".into(), String::new())
}

fn is_root() -> bool {
    // SAFETY: cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("skipped: only root may make a program that runs with other rights");
    }
    is_root
}

#[test]
fn a_dynamic_program_has_the_library_and_nothing_is_said() {
    // A process that another test starts meanwhile would inherit what is open for writing here.
    let _turn = turn();
    let folder = folder();
    let program = program(&folder, &[]).unwrap();
    assert_eq!(outcome(&mut urxe(&folder, &[], &[&program])), loaded());
    let script = folder.path().join("script");
    std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(outcome(&mut urxe(&folder, &[], &[&script])), loaded());
    let env = [Path::new("env"), &program];
    assert_eq!(outcome(&mut urxe(&folder, &[], &env)), loaded());
}

#[test]
fn a_static_program_is_warned_of_also_behind_scripts_and_env() {
    let _turn = turn();
    let folder = folder();
    for options in [&["-static"][..], &["-static-pie"]] {
        let Some(program) = program(&folder, options) else {
            continue;
        };
        let alone = |words: &[&Path]| {
            let (status, stdout, stderr) = outcome(&mut urxe(&folder, &[], words));
            assert_eq!((status, stdout.as_str()), (0, "alone\n"), "{stderr}");
            let says = format!("{}", program.display());
            assert!(
                stderr.starts_with("urxe: warning: ")
                    && stderr.contains(&says)
                    && stderr.contains("statically linked")
                    && stderr.contains("-static")
                    && stderr.contains("--sysfs"),
                "{stderr}"
            );
            stderr
        };
        assert!(!alone(&[&program]).contains(", which "));
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#! {}\n", program.display())).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(alone(&[&script]).contains("script starts "));
        alone(&[Path::new("env"), Path::new("A=1"), &program]);
        let silent = outcome(&mut urxe(&folder, &["--anyway"], &[&program]));
        assert_eq!(silent, (0, "alone\n".into(), String::new()));
    }
}

#[test]
fn a_program_with_other_rights_is_refused_and_a_copy_of_it_runs() {
    let _turn = turn();
    if !is_root() {
        return;
    }
    let folder = folder();
    let program = program(&folder, &[]).unwrap();
    let copy = folder.path().join("copy");
    std::fs::copy(&program, &copy).unwrap();
    for (owner, group, mode, what) in [
        (Some(1), None, 0o4755, "(setuid)"),
        (None, Some(1), 0o2755, "(setgid)"),
    ] {
        chown(&program, owner.or(Some(0)), group.or(Some(0))).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
        let (status, stdout, stderr) = outcome(&mut urxe(&folder, &[], &[&program]));
        assert_eq!((status, stdout.as_str()), (126, ""), "{stderr}");
        assert!(
            stderr.starts_with("urxe: ") && stderr.contains(what) && stderr.contains("LD_PRELOAD"),
            "{stderr}"
        );
        // It is true what is said.
        let anyway = outcome(&mut urxe(&folder, &["--anyway"], &[&program]));
        assert_eq!(anyway, (0, "alone\n".into(), String::new()));
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(outcome(&mut urxe(&folder, &[], &[&script])).0, 126);
        // The kernel ignores the bits of a script, and who has no new rights gains none.
        std::fs::write(&script, format!("#!{}\n", copy.display())).unwrap();
        chown(&script, owner, group).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(outcome(&mut urxe(&folder, &[], &[&script])), loaded());
        let gains_nothing = urxe(&folder, &[], &[&program]);
        let mut setpriv = Command::new("setpriv");
        setpriv
            .arg("--no-new-privs")
            .arg(gains_nothing.get_program());
        assert_eq!(outcome(setpriv.args(gains_nothing.get_args())), loaded());
    }
    assert_eq!(outcome(&mut urxe(&folder, &[], &[&copy])), loaded());
}

#[test]
fn a_program_with_file_capabilities_is_refused_to_others_than_root() {
    let _turn = turn();
    if !is_root() {
        return;
    }
    let folder = folder();
    let program = program(&folder, &[]).unwrap();
    let setcap = Command::new("setcap")
        .arg("cap_net_raw+ep")
        .arg(&program)
        .output();
    if !setcap.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: file capabilities need setcap, and a file system that has them");
        return;
    }
    let command = folder.path().join("urxe");
    std::fs::copy(env!("CARGO_BIN_EXE_urxe"), &command).unwrap();
    let as_other = |options: &[&str]| {
        let urxe = urxe(&folder, options, &[&program]);
        let mut other = Command::new("setpriv");
        other.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        outcome(
            other
                .env_remove("LD_PRELOAD")
                .arg(&command)
                .args(urxe.get_args()),
        )
    };
    let (status, stdout, stderr) = as_other(&[]);
    assert_eq!((status, stdout.as_str()), (126, ""), "{stderr}");
    assert!(stderr.contains("(file capabilities)"), "{stderr}");
    assert_eq!(
        as_other(&["--anyway"]),
        (0, "alone\n".into(), String::new())
    );
    assert_eq!(outcome(&mut urxe(&folder, &[], &[&program])), loaded());
}

#[test]
fn a_program_of_another_libc_is_refused_also_with_sysfs() {
    let _turn = turn();
    let folder = folder();
    let program = program(&folder, &[]).unwrap();
    // The path of its dynamic linker is replaced by one that is as long: its name decides.
    let mut bytes = std::fs::read(&program).unwrap();
    let begin = bytes.windows(3).position(|three| three == b"/ld").unwrap();
    let end = begin + bytes[begin..].iter().position(|byte| *byte == 0).unwrap();
    let name = format!("/{:x<width$}", "ld-musl-", width = end - begin - 1);
    bytes[begin..end].copy_from_slice(name.as_bytes());
    std::fs::write(&program, bytes).unwrap();
    for options in [&[][..], &["--sysfs"]] {
        let (status, _, stderr) = outcome(&mut urxe(&folder, options, &[&program]));
        assert_eq!(status, 126, "{stderr}");
        assert!(
            stderr.contains("built for musl") && stderr.contains("liburxe.so for glibc"),
            "{stderr}"
        );
    }
    // Nothing is in the way any more, but that there is no such dynamic linker.
    let (status, _, stderr) = outcome(&mut urxe(&folder, &["--anyway"], &[&program]));
    assert_eq!(status, 126);
    assert!(stderr.contains("cannot run"), "{stderr}");
}
