//! Running a test for many seeds, and replaying one.
//!
//! `URXE_SIM_SEED=n` runs seed n alone and prints what happened if it fails. `URXE_SIM_SEEDS=n`
//! runs n seeds instead of the usual number.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;

use urxe_sim::World;

/// Lines of the trace to show of a replayed failure.
const TRACE_LINES_SHOWN: usize = 400;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
    )
}

/// Runs `test` for the first `usual_count` seeds, or as the environment says. `test` gets a slot
/// for its world, so that a failure can show the world's trace.
pub fn for_each_seed(usual_count: u64, test: impl Fn(u64, &mut Option<World>)) {
    let replayed = number("URXE_SIM_SEED");
    let seeds = match replayed {
        Some(seed) => seed..seed + 1,
        None => 0..number("URXE_SIM_SEEDS").unwrap_or(usual_count),
    };
    for seed in seeds {
        let mut world = None;
        let result = catch_unwind(AssertUnwindSafe(|| test(seed, &mut world)));
        if let Err(panic) = result {
            if replayed.is_some() {
                show_trace(world.as_ref());
            }
            eprintln!("{}", how_to_replay(seed));
            resume_unwind(panic);
        }
    }
}

/// Whether one seed is being replayed, so that the trace is worth keeping.
pub fn is_replay() -> bool {
    std::env::var_os("URXE_SIM_SEED").is_some()
}

fn show_trace(world: Option<&World>) {
    let Some(world) = world else { return };
    let lines: Vec<_> = world.trace.lines().collect();
    for line in &lines[lines.len().saturating_sub(TRACE_LINES_SHOWN)..] {
        eprintln!("{line}");
    }
}

fn how_to_replay(seed: u64) -> String {
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let binary = env!("CARGO_CRATE_NAME");
    format!(
        "seed {seed} at commit {}; to replay it:\n    URXE_SIM_SEED={seed} cargo test -p urxe-sim --test {binary} -- --exact {test}",
        commit()
    )
}

fn commit() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output();
    let text = output.ok().filter(|output| output.status.success());
    text.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
