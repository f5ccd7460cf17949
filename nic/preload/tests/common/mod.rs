//! What the integration tests share: where the library is, and how C programs are built and run.
#![allow(dead_code, reason = "each test uses a part")]

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

/// Compiles `tests/c/<name>.c` against libibverbs, with warnings as errors.
pub(crate) fn compile(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(format!("{name}.c"));
    let program = folder().join(name);
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
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .arg("-libverbs")
        .output()
        .expect("a C compiler is needed (Debian: apt-get install gcc libibverbs-dev)");
    assert!(output.status.success(), "{}", shown(&output));
    program
}

/// A command that runs with the library preloaded, and is killed if it hangs.
pub(crate) fn preloaded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=1", "20"])
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

/// Compiles and runs a C program, which checks for itself.
pub(crate) fn run(name: &str) -> Output {
    let output = preloaded(compile(name)).output().unwrap();
    assert!(output.status.success(), "{name}: {}", shown(&output));
    output
}
