//! What the integration tests share: where the library is, and how C programs are built and run.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod script;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The library under test: cargo puts it where it puts this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join("liburxe.so");
    assert!(
        library.is_file(),
        "cargo did not build {}",
        library.display()
    );
    library
}

/// A folder for programs, removed at the end of the test.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// Compiles `tests/c/<name>.c` against libibverbs, with warnings as errors, to `<program>`.
pub(crate) fn compile(name: &str, program: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(format!("{name}.c"));
    let program = folder().join(program);
    let output = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .args(options)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        // Not for programs that call none of its functions.
        .args(["-Wl,--as-needed", "-libverbs", "-ldl"])
        .output()
        .expect("a C compiler is needed (Debian: apt-get install gcc libibverbs-dev)");
    assert!(output.status.success(), "{}", shown(&output));
    program
}

/// A command that runs with the library preloaded, and is killed if it hangs.
pub(crate) fn preloaded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=1", "120"])
        .arg(program)
        .env("LD_PRELOAD", library());
    command
}

/// What a program did, for a person.
pub(crate) fn shown(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Compiles a C program that runs in circumstances of its own.
pub(crate) fn build(name: &str) -> PathBuf {
    compile(name, name, &[])
}

/// Compiles and runs a C program, which checks for itself.
pub(crate) fn run(name: &str) {
    run_with(name, &[]);
}

/// The same with arguments.
pub(crate) fn run_with(name: &str, arguments: &[&str]) {
    let program = compile(name, name, &[]);
    let output = preloaded(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name}: {}", shown(&output));
}

/// What a sanitizer makes of memory that is still there at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaks {
    /// It is an error.
    Refused,
    /// The program leaves some on purpose, or forks: a child has what its parent's threads had.
    Expected,
}

/// The same under the compiler's address and undefined behaviour sanitizers, which see what is
/// leaked, and what is read or written outside of an allocation, in the program and in the library.
pub(crate) fn run_sanitized(name: &str, leaks: Leaks, arguments: &[String]) {
    let output = Command::new("cc")
        .arg("-print-file-name=libasan.so")
        .output()
        .unwrap();
    let sanitizer = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    if !sanitizer.is_absolute() {
        eprintln!("skipped: {name} with sanitizers needs libasan (Debian: part of gcc)");
        return;
    }
    let options = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile(name, &format!("{name}-sanitized"), options);
    // The sanitizer's library has to be the first one.
    let mut list = sanitizer.into_os_string();
    list.push(" ");
    list.push(library());
    let detects = u8::from(leaks == Leaks::Refused);
    let output = preloaded(program)
        .args(arguments)
        .env("LD_PRELOAD", list)
        .env("ASAN_OPTIONS", format!("detect_leaks={detects}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", shown(&output));
}

/// The same under valgrind, which also sees what is used without having been set.
pub(crate) fn run_in_valgrind(name: &str) {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: {name} in valgrind needs it (Debian: apt-get install valgrind)");
        return;
    }
    let program = compile(name, &format!("{name}-valgrind"), &[]);
    let output = preloaded("valgrind")
        .args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
        ])
        .arg(program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{name}: {}", shown(&output));
}
