"""What the test runners say, read from their own output, so that `make test` can close on one line over all of them.

Counts are the runners' own. A skip is never counted as a pass. A Rust test that finds it cannot run
here prints ``skipped: <reason>`` (or, past the harness, ``SKIPPED <test>: <reason>``) and returns,
because libtest has no other way. It is moved from passed to skipped. Tests of real time, which only
a quiet machine can run, have a reason that begins with ``quiet: ``; those that take long have one
with ``nightly: ``. Both are counted apart.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_SUITE = re.compile(r"^\s+(?:Running (?:unittests )?(?P<file>\S+) \((?P<binary>\S+)\)|Doc-tests (?P<doc>\S+))$")
_RUNNING = re.compile(r"^running (\d+) tests?$")
_IGNORED = re.compile(r"^test (?P<name>.+?) \.\.\. ignored(?:, (?P<reason>.*))?$")
_OUTPUT_OF = re.compile(r"^---- (?P<name>.+?) stdout ----$")
_SKIPPED = re.compile(r"^skipped: (?P<reason>.+)$", re.IGNORECASE)
# Written past the capture of libtest, so that `cargo test` alone shows it too; it may land in the
# middle of a line.
_SKIPPED_BY_NAME = re.compile(r"\bSKIPPED (?P<test>\w+(?:::\w+)*): (?P<reason>.+)$")
_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;")
_COLLECTION_SKIPPED = re.compile(r"Skipped: (?P<reason>.*?)['\"]?\)?$")
_MUTANT = re.compile(r"^(?P<outcome>caught|NOT CAUGHT|TIMED OUT) +(?P<name>[a-z0-9-]+)  \((?P<path>[^,]+), \d+ s\)$")
#: As many lines of what a failed test says are shown at the end.
_LINES_OF_FAILURE = 20
_QUIET = "quiet: "
_NIGHTLY = "nightly: "
_HASH = re.compile(r"-[0-9a-f]{16}$")


@dataclass(frozen=True, slots=True)
class Note:
    """A test that failed or was skipped, and why."""

    test: str
    reason: str


@dataclass(slots=True)
class Tally:
    """What one runner did. `passed` holds no test that was skipped."""

    passed: int = 0
    failures: list[Note] = field(default_factory=list)
    skips: list[Note] = field(default_factory=list)
    quiet: list[Note] = field(default_factory=list)
    nightly: list[Note] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Every test that was reported in any way."""
        return self.passed + len(self.failures) + len(self.skips) + len(self.quiet) + len(self.nightly)

    def skip(self, note: Note) -> None:
        """Count a test that was not run."""
        if note.reason.startswith(_QUIET):
            self.quiet.append(Note(note.test, note.reason.removeprefix(_QUIET)))
        elif note.reason.startswith(_NIGHTLY):
            self.nightly.append(Note(note.test, note.reason.removeprefix(_NIGHTLY)))
        else:
            self.skips.append(note)


@dataclass(slots=True)
class _Suite:
    """One test binary of cargo while its output is read."""

    name: str
    announced: int = 0
    finished: bool = True
    ignored: list[Note] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    section: str = "tests"
    output_of: str = ""


def read_cargo(lines: Iterable[str]) -> Tally:
    """Read what `cargo test -- --show-output` printed, its standard error included."""
    tally = Tally()
    suite = _Suite("cargo test")
    for raw in lines:
        line = raw.rstrip("\n")
        if match := _SUITE.match(line):
            _close(suite, tally)
            suite = _Suite(_suite_name(match))
        else:
            _read_suite_line(line, suite, tally)
    _close(suite, tally)
    return tally


def _suite_name(match: re.Match[str]) -> str:
    if doc := match["doc"]:
        return f"{doc} (documentation)"
    crate = _HASH.sub("", Path(match["binary"]).name)
    return crate if match["file"].startswith("src/") else f"{crate} ({match['file']})"


def _read_suite_line(line: str, suite: _Suite, tally: Tally) -> None:
    if match := _RUNNING.match(line):
        suite.announced, suite.finished, suite.section = int(match[1]), False, "tests"
    elif match := _RESULT.match(line):
        _finish(suite, tally, passed=int(match[1]), failed=int(match[2]))
    elif line in {"successes:", "failures:"}:
        suite.section, suite.output_of = line[:-1], ""
        suite.failed.clear()
    elif match := _OUTPUT_OF.match(line):
        suite.output_of = match["name"]
    elif suite.section == "tests" and (match := _IGNORED.match(line)):
        suite.ignored.append(Note(f"{suite.name} {match['name']}", match["reason"] or "ignored without a reason"))
    elif match := _SKIPPED_BY_NAME.search(line):
        suite.skipped.setdefault(match["test"], match["reason"])
    elif suite.output_of and (match := _SKIPPED.match(line)):
        suite.skipped.setdefault(suite.output_of, match["reason"])
    elif suite.section == "failures" and line.startswith("    ") and not suite.output_of:
        suite.failed.append(line.strip())


def _finish(suite: _Suite, tally: Tally, *, passed: int, failed: int) -> None:
    # The names stand last before the result; a test's own output may hold lines that look like
    # them.
    names = suite.failed[-failed:] if failed else []
    names += ["(a test whose name could not be read)"] * (failed - len(names))
    skipped = [Note(f"{suite.name} {test}", reason) for test, reason in suite.skipped.items() if test not in names]
    tally.failures += [Note(f"{suite.name} {name}", "see its output above") for name in names]
    for note in suite.ignored + skipped:
        tally.skip(note)
    tally.passed += passed - len(skipped)
    # Documentation tests print several runs under one heading.
    suite.finished, suite.ignored, suite.skipped, suite.failed, suite.section = True, [], {}, [], "tests"


def _close(suite: _Suite, tally: Tally) -> None:
    if not suite.finished:
        reason = f"the test program ended without a result, and its {suite.announced} tests are lost"
        tally.failures.append(Note(suite.name, reason))


def without_captured_output(lines: Iterable[str]) -> Iterator[str]:
    """Drop what passing tests printed: --show-output is on only to learn why a test skipped itself."""
    sections = 0  # "successes:" stands twice, over their outputs and over their names; a test's output may say anything
    for line in lines:
        stripped = line.rstrip("\n")
        if stripped == "successes:":
            sections += 1
        elif _RESULT.match(stripped) or (stripped == "failures:" and sections != 1):
            sections = 0
        if not sections:
            yield line


def read_junit(path: Path) -> Tally:
    """Read pytest's JUnit file. An error in a fixture is a failure; an expected failure is a skip that says so."""
    tally = Tally()
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314  our own pytest wrote it
        name = "::".join(part for part in (case.get("classname", ""), case.get("name", "")) if part)
        bad = [child for child in case if child.tag in {"failure", "error"}]
        skipped = case.find("skipped")
        if bad:
            tally.failures.append(Note(name, _first_lines(bad[0].get("message", "no message"))))
        elif skipped is not None:
            tally.skip(Note(name, _skip_reason(skipped)))
        else:
            tally.passed += 1
    return tally


def _skip_reason(skipped: ET.Element) -> str:
    message = skipped.get("message", "no reason")
    # A module that skips itself while it is collected has its reason only in the text: ('file', 17,
    # 'Skipped: reason').
    if message == "collection skipped" and (match := _COLLECTION_SKIPPED.search(skipped.text or "")):
        message = match["reason"]
    expected = "expected to fail: " if skipped.get("type") == "pytest.xfail" else ""
    return expected + _first_line(message)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0] if text.strip() else "no message"


def _first_lines(text: str) -> str:
    """What failed, indented below its test: a command's errors stand before the comparison, and the last says why."""
    lines = text.strip().split("\n") if text.strip() else ["no message"]
    shown = lines if len(lines) <= _LINES_OF_FAILURE else [*lines[:_LINES_OF_FAILURE], "[...]"]
    return "\n      ".join(shown)


def closing_line(tallies: Iterable[Tally]) -> str:
    """The line `make test` ends with."""
    all_of_them = list(tallies)
    failed = sum(len(tally.failures) for tally in all_of_them)
    skipped = sum(len(tally.skips) for tally in all_of_them)
    quiet = sum(len(tally.quiet) for tally in all_of_them)
    nightly = sum(len(tally.nightly) for tally in all_of_them)
    counts = [f"{sum(tally.passed for tally in all_of_them)} passed, {failed} failed, {skipped} skipped"]
    if quiet:
        counts.append(f"{quiet} tests of real time need a quiet machine: make test-quiet")
    if nightly:
        counts.append(f"{nightly} tests take long: make test-all")
    return "; ".join(counts)


def read_mutants(lines: Iterable[str]) -> Tally:
    """Read what scripts/mutants.py printed."""
    tally = Tally()
    for match in filter(None, (_MUTANT.match(line.rstrip("\n")) for line in lines)):
        if match["outcome"] == "caught":
            tally.passed += 1
        else:
            tally.failures.append(Note(f"{match['name']} ({match['path']})", match["outcome"].lower()))
    return tally
