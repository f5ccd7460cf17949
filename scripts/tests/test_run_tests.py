"""Running a suite: what counts as a failure even if the suite itself does not say so."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import run_tests
from run_tests import Runner, run, summary
from suite_results import Note, Tally


@pytest.fixture(autouse=True)
def own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(run_tests, "LOGS", tmp_path)
    return tmp_path


def python(code: str, read: Callable[[Path], Tally] = lambda _log: Tally(passed=1)) -> Runner:
    return Runner("demo", [sys.executable, "-c", code], read)


def hide(_text: str) -> None:
    """Show nothing: these tests look at the tally."""


def test_output_is_shown_and_kept(own_logs: Path) -> None:
    shown: list[str] = []
    assert run(python("print('one'); print('two')"), show=shown.append).failures == []
    assert shown == ["one\n", "two\n"]
    assert (own_logs / "demo.log").read_text(encoding="utf-8") == "one\ntwo\n"


def test_a_bad_exit_status_without_a_failed_test_is_a_failure() -> None:
    failures = run(python("raise SystemExit(101)"), show=hide).failures
    assert [note.reason for note in failures] == ["ended with status 101, but reported no failed test"]


def test_a_suite_without_a_test_is_a_failure() -> None:
    failures = run(python("", read=lambda _log: Tally()), show=hide).failures
    assert [note.reason for note in failures] == ["ran no test"]


def test_a_hanging_suite_is_ended_with_all_it_started() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    failures = run(python(code), limit_s=0.5, show=hide).failures
    # The reader of its output comes back only because the grandchild, which holds the pipe too, is
    # gone.
    assert failures[0].reason.startswith("still running after")


def test_an_old_result_is_not_taken_for_a_new_one(own_logs: Path) -> None:
    (own_logs / "python.xml").write_text("<testsuites><testcase name='old' /></testsuites>", encoding="utf-8")
    fails = python("raise SystemExit(2)", read=run_tests.runners()["python"].read)
    tally = run(replace(fails, result=own_logs / "python.xml"), show=hide)
    assert tally.passed == 0
    assert len(tally.failures) == 1


def test_the_summary_lists_skips_and_failures_and_ends_on_counts() -> None:
    results = {
        "rust": Tally(passed=3, skips=[Note("a", "no IPv6")]),
        "python": Tally(passed=1, failures=[Note("b", "assert 1 == 2")]),
    }
    lines = summary(results, {"rust": 12.3, "python": 4.0}).splitlines()
    assert "  rust     a: no IPv6" in lines
    assert "  python   b: assert 1 == 2" in lines
    assert lines[-1] == "4 passed, 1 failed, 1 skipped"


def test_tests_of_real_time_are_listed_with_reasons_and_apart() -> None:
    results = {"rust": Tally(passed=3, quiet=[Note("a", "it measures latency")]), "python": Tally(passed=1)}
    lines = summary(results, {"rust": 12.3, "python": 4.0}).splitlines()
    assert "  rust     a: it measures latency" in lines
    assert lines[-1] == "4 passed, 0 failed, 0 skipped; 1 tests of real time need a quiet machine: make test-quiet"


def test_tests_that_take_long_are_listed_with_reasons_and_run_at_night() -> None:
    results = {"python": Tally(passed=1, nightly=[Note("a", "it sorts")])}
    lines = summary(results, {"python": 4.0}).splitlines()
    assert "  python   a: it sorts" in lines
    assert lines[-1] == "1 passed, 0 failed, 0 skipped; 1 tests take long: make test-all"
    assert "--nightly" in run_tests.runners(nightly=True)["python"].command
    assert "--nightly" not in run_tests.runners()["python"].command


def test_every_test_in_python_is_of_one_suite() -> None:
    with (run_tests.ROOT / "pyproject.toml").open("rb") as file:
        paths = tomllib.load(file)["tool"]["pytest"]["ini_options"]["testpaths"]
    assert sorted(paths) == sorted((*run_tests.OTHERS, *run_tests.CONFORMANCE))
    suites = run_tests.runners()
    for path in run_tests.COMMANDS:
        assert path in suites["commands"].command
        assert f"--ignore={path}" in suites["python"].command
        assert (run_tests.ROOT / path).is_dir()


def test_suites_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch, own_logs: Path) -> None:
    meets = (
        "import pathlib, sys, time\n"
        "here, there = map(pathlib.Path, sys.argv[1:])\n"
        "here.touch()\n"
        "while not there.exists(): time.sleep(0.01)\n"
    )
    names = ("one", "other")
    one, other = (str(own_logs / name) for name in names)
    commands = {"one": (one, other), "other": (other, one)}
    suites = {
        name: Runner(name, [sys.executable, "-c", meets, *commands[name]], lambda _log: Tally(passed=1))
        for name in names
    }
    monkeypatch.setattr(run_tests, "runners", lambda *, quiet, nightly, mutants: suites)
    assert run_tests.main([]) == 0


def test_a_suite_waits_for_the_one_that_it_comes_after(monkeypatch: pytest.MonkeyPatch, own_logs: Path) -> None:
    mark = own_logs / "mark"
    first = [sys.executable, "-c", f"import pathlib, time; time.sleep(0.5); pathlib.Path({str(mark)!r}).touch()"]
    second = [sys.executable, "-c", f"import pathlib, sys; sys.exit(not pathlib.Path({str(mark)!r}).exists())"]
    suites = {
        "first": Runner("first", first, lambda _log: Tally(passed=1)),
        "second": Runner("second", second, lambda _log: Tally(passed=1), after="first"),
    }
    monkeypatch.setattr(run_tests, "runners", lambda *, quiet, nightly, mutants: suites)
    assert run_tests.main([]) == 0


def test_mutants_are_a_suite_when_they_are_asked_for() -> None:
    assert list(run_tests.runners()) == ["rust", "python", "commands", "programs"]
    drawn = run_tests.runners(mutants=5)["mutants"]
    assert list(drawn.command)[1:] == ["scripts/mutants.py", "--draw", "5"]
    assert drawn.after == "rust"


def test_an_unknown_suite_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tests.main(["java"]) == 2
    assert "no suite is called java; there are rust, python, commands, programs" in capsys.readouterr().err
