"""Runs the test suites at the same time and closes on one line over all of them.

Usage: scripts/run_tests.py [rust] [python] [commands] [programs]   (all of them when none is named)
       scripts/run_tests.py nightly           (all, also the tests that take long)
       scripts/run_tests.py quiet             (one after the other, the tests of real time of all of them)
       scripts/run_tests.py --mutants COUNT   (all, then so many mutants, drawn by the commit)

The full output of each is kept in .build/tests/. A runner that crashes, hangs, or runs no test at all counts as a
failure: nothing that did not happen is called a pass.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from suite_results import (
    Note,
    Tally,
    closing_line,
    read_cargo,
    read_junit,
    read_mutants,
    without_captured_output,
)

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".build" / "tests"
#: A suite that takes so long hangs, on a busy machine, too.
LIMIT_S = 2400
#: Where the tests in Python are that run programs on the NIC; those that call rocelab as a person
#: does, also on hosts, and wait more than they work; and all others. Each is a suite of its own.
CONFORMANCE, COMMANDS = ("nic/conformance",), ("rocelab/cli", "rocelab/hosts")
OTHERS = ("rocelab", "nic/python", "packaging", "scripts", "bench")
#: The runners that have not ended.
_under_way: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True, slots=True)
class Runner:
    """One suite: how it is started, and how its result is read from its log."""

    name: str
    command: Sequence[str]
    read: Callable[[Path], Tally]
    #: What it writes beside its log, so that an old one is not taken for a new one.
    result: Path | None = None
    hides_output_of_passed: bool = False
    #: The suite that has to have ended before.
    after: str | None = None


def _read_lines(read: Callable[[Iterable[str]], Tally]) -> Callable[[Path], Tally]:
    def read_log(log: Path) -> Tally:
        with log.open(encoding="utf-8", errors="replace") as lines:
            return read(lines)

    return read_log


def _pytest(name: str, paths: Sequence[str], options: Sequence[str], after: str | None = None) -> Runner:
    junit = LOGS / f"{name}.xml"
    command = [".venv/bin/python", "-m", "pytest", "--junitxml", str(junit), "--durations=25", *options, *paths]
    return Runner(
        name, command, lambda _log: read_junit(junit) if junit.exists() else Tally(), result=junit, after=after
    )


def runners(*, quiet: bool = False, nightly: bool = False, mutants: int = 0) -> dict[str, Runner]:
    """The suites by name: their tests of real time, which are all that Rust's ignore, or all others; and mutants.

    Of those that take long there is only the list, unless it is `nightly`.
    """
    rust = ["cargo", "test", "--manifest-path", "nic/Cargo.toml", "--workspace", "--locked", "--no-fail-fast"]
    rust += ["--color=never", "--", "--show-output", *(["--ignored", "--test-threads=1"] if quiet else [])]
    options = (["-m", "quiet"] if quiet else []) + (["--nightly"] if nightly else [])
    suites = [
        Runner("rust", rust, _read_lines(read_cargo), hides_output_of_passed=True),
        _pytest("python", OTHERS, [*options, *(f"--ignore={path}" for path in COMMANDS)]),
        _pytest("commands", COMMANDS, options),
        _pytest("programs", CONFORMANCE, options, after="commands"),
    ]
    if mutants:
        command = [sys.executable, "scripts/mutants.py", "--draw", str(mutants)]
        suites.append(Runner("mutants", command, _read_lines(read_mutants), after="rust"))
    return {suite.name: suite for suite in suites}


def run(runner: Runner, *, limit_s: float = LIMIT_S, show: Callable[[str], object] = sys.stdout.write) -> Tally:
    """Run one suite, showing its output as it comes, and give its tally."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{runner.name}.log"
    if runner.result is not None:
        runner.result.unlink(missing_ok=True)
    timed_out = threading.Event()
    with log.open("w", encoding="utf-8") as kept:
        # Its own session: what hangs is ended with everything it started.
        process = subprocess.Popen(
            runner.command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, encoding="utf-8", errors="replace", start_new_session=True,
        )  # fmt: skip
        _under_way.add(process)
        timer = threading.Timer(limit_s, _end, [process, timed_out])
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout as output:
                kept_lines = (_keep(line, kept.write) for line in output)
                for line in without_captured_output(kept_lines) if runner.hides_output_of_passed else kept_lines:
                    show(line)
            status = process.wait()
        finally:
            timer.cancel()
            _end_group(process)
            _under_way.discard(process)
    tally = runner.read(log)
    _add_runner_failure(tally, runner, status, timed_out_after_s=limit_s if timed_out.is_set() else None)
    return tally


def _keep(line: str, write: Callable[[str], object]) -> str:
    write(line)
    return line


def _end(process: subprocess.Popen[str], timed_out: threading.Event) -> None:
    timed_out.set()
    _end_group(process)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End what is left of the runner: all of it when it hangs or we are interrupted, or what it left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _add_runner_failure(tally: Tally, runner: Runner, status: int, *, timed_out_after_s: float | None) -> None:
    suite = f"the {runner.name} suite"
    if timed_out_after_s is not None:
        tally.failures.append(Note(suite, f"still running after {timed_out_after_s:.0f} s, so it was ended"))
    elif status != 0 and not tally.failures:
        tally.failures.append(Note(suite, f"ended with status {status}, but reported no failed test"))
    elif tally.total == 0:
        tally.failures.append(Note(suite, "ran no test"))


def _notes(title: str, results: dict[str, Tally], pick: Callable[[Tally], list[Note]]) -> list[str]:
    lines = [f"  {name:<8} {note.test}: {note.reason}" for name, tally in results.items() for note in pick(tally)]
    return ["", f"{title} ({len(lines)}):", *lines] if lines else []


def summary(results: dict[str, Tally], seconds: dict[str, float]) -> str:
    """All that a reader needs after pages of output: what was skipped and why, what failed, and the counts."""
    lines = (
        _notes("Of real time, for make test-quiet", results, lambda tally: tally.quiet)
        + _notes("Long, for make test-all", results, lambda tally: tally.nightly)
        + _notes("Skipped", results, lambda tally: tally.skips)
        + _notes("Failed", results, lambda tally: tally.failures)
    )
    lines += ["", f"{'suite':<9}{'passed':>8}{'failed':>8}{'skipped':>8}{'seconds':>9}"]
    lines += [
        f"{name:<9}{tally.passed:>8}{len(tally.failures):>8}{len(tally.skips):>8}{seconds[name]:>9.0f}"
        for name, tally in results.items()
    ]
    return "\n".join([*lines, "", closing_line(results.values())])


def main(names: Sequence[str]) -> int:
    """Run the named suites, or all, or the tests of real time."""
    mutants = 0
    if len(names) == 2 and names[0] == "--mutants" and names[1].isdecimal():
        names, mutants = [], int(names[1])
    is_quiet, is_nightly = list(names) == ["quiet"], list(names) == ["nightly"]
    known = runners(quiet=is_quiet, nightly=is_nightly, mutants=mutants)
    chosen = list(known) if is_quiet or is_nightly or not names else list(names)
    if unknown := [name for name in chosen if name not in known]:
        print(f"run_tests: no suite is called {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    seconds: dict[str, float] = {}
    ended = {name: threading.Event() for name in chosen}

    def timed(name: str) -> Tally:
        if (before := known[name].after) in ended:
            ended[before].wait()
        try:
            return run_timed(name)
        finally:
            ended[name].set()

    def run_timed(name: str) -> Tally:
        print(f"=== {name}: {' '.join(known[name].command)}", flush=True)
        started = time.monotonic()
        tally = run(known[name], show=lambda line: sys.stdout.write(f"{name:<8} | {line}"))
        seconds[name] = time.monotonic() - started
        return tally

    # Each waits more than it works; tests of real time want the machine for themselves.
    with ThreadPoolExecutor(1 if is_quiet else len(chosen)) as pool:
        try:
            results = dict(zip(chosen, pool.map(timed, chosen), strict=True))
        except KeyboardInterrupt:
            for process in list(_under_way):
                _end_group(process)
            raise
    print(summary(results, seconds), flush=True)
    return 1 if any(tally.failures for tally in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
