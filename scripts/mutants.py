"""Breaks the NIC on purpose, one way at a time, and sees that the tests of the file that was broken fail.

Usage: scripts/mutants.py [NAME...]               (all of them when none is named)
       scripts/mutants.py --draw COUNT [--seed N] (so many, drawn by a seed; without one, by the commit)

A test that cannot fail proves nothing. Each mutant is one edit of a crate as it is now; an edit
that does not fit any more is a failure, so that the list stays true. nic/mutants has a file for
each crate: its mutants, and which tests (arguments of `cargo test`) have to notice those of a file
or folder. The crates are copied first: the tree is not touched. What the tests of a mutant do not
end in time is counted apart: no reader would call that noticed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NIC = ROOT / "nic"
LISTS = NIC / "mutants"
#: How long the tests of one mutant may take, once they are built.
LIMIT_S = 120
#: Random programs in each of the simulator's tests.
SEEDS = 400
#: Not copied: no part of the workspace, or made by builds.
LEFT_OUT = ("target", "fuzz", "mutants", "conformance", "node_modules")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One edit: in which file what is replaced by what, exactly once, and which tests have to notice."""

    name: str
    #: Below nic/.
    path: str
    old: str
    new: str
    #: Arguments of one `cargo test` each.
    tests: tuple[str, ...]


def read(folder: Path = LISTS) -> tuple[Mutant, ...]:
    """All mutants, crate by crate."""
    found: list[Mutant] = []
    for file in sorted(folder.glob("*.toml")):
        listed = tomllib.loads(file.read_text(encoding="utf-8"))
        found += [
            Mutant(each["name"], f"{file.stem}/{each['path']}", each["old"], each["new"],
                   tests_of(each["path"], listed["tests"]))
            for each in listed["mutant"]
        ]  # fmt: skip
    return tuple(found)


def tests_of(path: str, tests: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The tests named for the longest part of the path."""
    longest = max((part for part in tests if path.startswith(part)), key=len, default=None)
    if longest is None:
        sys.exit(f"no tests are named for {path}; there are tests for {', '.join(tests)}")
    return tuple(tests[longest])


def main(argv: Sequence[str]) -> int:
    """Test the mutants that were asked for; the exit status is whether each was caught."""
    parser = argparse.ArgumentParser(description="Break the NIC in known ways, and see that its tests notice.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; all when none is named")
    parser.add_argument("--draw", type=int, metavar="COUNT", help="test so many, drawn at random")
    parser.add_argument("--seed", metavar="TEXT", help="what the draw follows from; default: the commit")
    asked = parser.parse_args(argv)
    mutants = read()
    if unknown := sorted(set(asked.names) - {mutant.name for mutant in mutants}):
        known = ", ".join(mutant.name for mutant in mutants)
        print(f"no such mutant: {', '.join(unknown)}; there are {known}", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in mutants if not asked.names or mutant.name in asked.names]
    if asked.draw is not None:
        seed = asked.seed or commit()
        chosen = drawn(chosen, asked.draw, seed)
        print(f"{len(chosen)} of {len(mutants)} mutants, drawn with --seed {seed}", flush=True)
    return report(chosen, test_all(chosen))


def commit() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def drawn(mutants: Sequence[Mutant], count: int, seed: str) -> list[Mutant]:
    """So many of them, the same for a seed, and in the order of the list, so that neighbours share a build."""
    picked = random.Random(seed).sample(range(len(mutants)), min(count, len(mutants)))
    return [mutants[at] for at in sorted(picked)]


def test_all(chosen: Sequence[Mutant]) -> dict[str, str]:
    """What came of each: `caught`, `NOT CAUGHT` or `TIMED OUT`."""
    work = target() / "work"
    copy_crates(work)
    sound: set[str] = set()
    outcomes = {}
    for mutant in chosen:
        for tests in mutant.tests:
            if tests not in sound and (outcome := run(work, tests)) != "pass":
                sys.exit(f"without any mutant, cargo test {tests}: {outcome}; mend that first")
            sound.add(tests)
        started = time.monotonic()
        outcomes[mutant.name] = outcome_of(work, mutant)
        took_s = time.monotonic() - started
        print(f"{outcomes[mutant.name]:10}  {mutant.name}  ({mutant.path}, {took_s:.0f} s)", flush=True)
    return outcomes


def report(chosen: Sequence[Mutant], outcomes: Mapping[str, str]) -> int:
    """The closing lines, and the exit status: zero only if each mutant was caught."""
    named = {
        what: [each.name for each in chosen if outcomes[each.name] == what] for what in ("NOT CAUGHT", "TIMED OUT")
    }
    caught = len(chosen) - sum(map(len, named.values()))
    print(f"{caught} of {len(chosen)} mutants caught")
    for what, names in named.items():
        if names:
            print(f"{what.lower()}: {', '.join(names)}")
    return 0 if caught == len(chosen) else 1


def target() -> Path:
    """Where copies are built: beside the other builds, so that the next time what others made is built already."""
    return Path(os.environ.get("CARGO_TARGET_DIR", NIC / "target")).resolve() / "mutants"


def copy_crates(work: Path) -> None:
    """The workspace as it is now. To cargo its files are new: else an earlier mutant's build would pass for it."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(NIC, work, ignore=shutil.ignore_patterns(*LEFT_OUT), copy_function=shutil.copy)


def outcome_of(work: Path, mutant: Mutant) -> str:
    """Whether the tests notice the mutant."""
    path = work / mutant.path
    source = path.read_text(encoding="utf-8")
    times = source.count(mutant.old)
    if times != 1:
        sys.exit(f"{mutant.name}: nic/{mutant.path} has {times} times, not once:\n{mutant.old}")
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        for tests in mutant.tests:
            outcome = run(work, tests)
            if outcome != "pass":
                return {"fail": "caught", "time-out": "TIMED OUT"}[outcome]
        return "NOT CAUGHT"
    finally:
        path.write_text(source, encoding="utf-8")


def run(work: Path, tests: str) -> str:
    """`pass`, `fail` or `time-out` of the tests with the sources as they are."""
    environment = os.environ | {
        "URXE_SIM_SEEDS": str(SEEDS),
        "RUST_BACKTRACE": "0",
        "CARGO_TARGET_DIR": str(target()),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        # Debugging information and warnings of a mutant are of no use.
        "RUSTFLAGS": "-Awarnings",
    }
    command = ["cargo", "test", "--quiet", "--locked", "--offline", *tests.split()]
    built = subprocess.run([*command, "--no-run"], cwd=work, env=environment, capture_output=True, check=False)
    if built.returncode != 0:
        sys.exit(f"does not compile: cargo test {tests}\n{built.stderr.decode(errors='replace')}")
    # A session of its own: what hangs is ended with everything that it started.
    process = subprocess.Popen(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return "pass" if process.wait(timeout=LIMIT_S) == 0 else "fail"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "time-out"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
