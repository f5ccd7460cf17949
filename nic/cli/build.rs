//! Lets `urxe --version` name the git commit it was built from, when it was built from git.
use std::path::Path;
use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    // A commit changes the branch's file or the packed references, a checkout changes HEAD.
    for reference in ["HEAD", "packed-refs"]
        .map(str::to_owned)
        .into_iter()
        .chain(git(&["symbolic-ref", "HEAD"]))
    {
        if let Some(path) = git(&["rev-parse", "--git-path", &reference])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let text = commit.map_or_else(
        || version.to_owned(),
        |commit| format!("{version} (commit {commit})"),
    );
    println!("cargo::rustc-env=URXE_VERSION={text}");
}
