"""The readers of test output, on what cargo and pytest really print."""

from __future__ import annotations

from pathlib import Path

import pytest

from suite_results import Note, Tally, closing_line, read_cargo, read_junit, read_mutants, without_captured_output

# cargo 1.95 on a crate with a pass, a failure, ignored tests, one that skips itself, a crash, and
# documentation tests.
CARGO = (Path(__file__).parent / "cargo_test_output.txt").read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.fixture(scope="module")
def cargo() -> Tally:
    return read_cargo(CARGO)


def test_passed_tests_of_all_binaries_are_added_up(cargo: Tally) -> None:
    # adds, fine, and one documentation test; not the one that skipped itself.
    assert cargo.passed == 3


def test_failures_are_named(cargo: Tally) -> None:
    assert Note("demo tests::wrong", "see its output above") in cargo.failures


def test_a_test_program_that_dies_is_a_failure(cargo: Tally) -> None:
    crash = Note("crash (tests/crash.rs)", "the test program ended without a result, and its 2 tests are lost")
    assert crash in cargo.failures
    assert len(cargo.failures) == 2


def test_skips_carry_their_reason(cargo: Tally) -> None:
    assert cargo.skips == [
        Note("demo tests::long", "takes an hour"),
        Note("demo tests::unexplained", "ignored without a reason"),
        Note("demo tests::needs_ipv6", "this machine has no IPv6"),
        Note("demo (documentation) src/lib.rs - add (line 6)", "ignored without a reason"),
    ]


def test_a_failed_test_that_says_skipped_stays_failed(cargo: Tally) -> None:
    assert not any("wrong" in skip.test for skip in cargo.skips)


def test_a_skip_written_past_the_harness_is_counted_once() -> None:
    lines = [
        "     Running tests/veth.rs (target/debug/deps/veth-0123456789abcdef)\n",
        "running 2 tests\n",
        "test shaped ... SKIPPED shaped: tc is missing (Debian package iproute2)\n",
        "ok\n",
        "test plain ... ok\n",
        "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
    ]
    skip = Note("veth (tests/veth.rs) shaped", "tc is missing (Debian package iproute2)")
    assert read_cargo(lines) == Tally(passed=1, skips=[skip])


def test_output_that_ends_in_the_middle_is_a_failure() -> None:
    cut = CARGO[: CARGO.index("running 5 tests\n") + 2]
    assert [note.test for note in read_cargo(cut).failures] == ["demo"]


def test_a_test_that_wants_a_quiet_machine_is_no_skip(tmp_path: Path) -> None:
    lines = [
        "     Running tests/spin.rs (target/debug/deps/spin-0123456789abcdef)\n",
        "running 1 test\n",
        "test spins ... ignored, quiet: it measures latency\n",
        "test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
    ]
    assert read_cargo(lines) == Tally(quiet=[Note("spin (tests/spin.rs) spins", "it measures latency")])
    path = tmp_path / "junit.xml"
    skipped = '<skipped type="pytest.skip" message="quiet: it measures a rate">x</skipped>'
    path.write_text(f'<testsuites><testcase classname="a" name="b">{skipped}</testcase></testsuites>', encoding="utf-8")
    assert read_junit(path) == Tally(quiet=[Note("a::b", "it measures a rate")])


def test_a_test_that_takes_long_is_no_skip() -> None:
    tally = Tally()
    tally.skip(Note("a", "nightly: it sorts"))
    assert tally == Tally(nightly=[Note("a", "it sorts")])
    assert tally.total == 1


def test_a_mutant_that_is_not_caught_is_a_failure() -> None:
    tally = read_mutants(
        [
            "3 of 80 mutants, drawn with --seed abc\n",
            "caught      executes-duplicates  (proto/src/rc/responder/mod.rs, 21 s)\n",
            "NOT CAUGHT  takes-fragments  (udp/src/frames/filter.rs, 9 s)\n",
            "TIMED OUT   never-probes  (proto/src/rc/retry.rs, 121 s)\n",
            "1 of 3 mutants caught\n",
        ]
    )
    assert tally == Tally(
        passed=1,
        failures=[
            Note("takes-fragments (udp/src/frames/filter.rs)", "not caught"),
            Note("never-probes (proto/src/rc/retry.rs)", "timed out"),
        ],
    )


def test_nothing_read_is_nothing_counted() -> None:
    assert read_cargo(["error: could not compile `demo`\n"]).total == 0


def test_output_of_failing_tests_alone_is_shown() -> None:
    shown = "".join(without_captured_output(CARGO))
    assert "this machine has no IPv6" not in shown
    assert "assertion `left == right` failed" in shown
    assert "test result: FAILED. 2 passed; 1 failed; 2 ignored" in shown


JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest" errors="1" failures="1" skipped="2" tests="5">
<testcase classname="test_a" name="test_good" time="0.1" />
<testcase classname="test_a" name="test_bad"><failure message="assert 1 == 2&#10; more">trace</failure></testcase>
<testcase classname="test_a" name="test_fixture"><error message="failed on setup">trace</error></testcase>
<testcase classname="test_a" name="test_root"><skipped type="pytest.skip" message="not root">x</skipped></testcase>
<testcase classname="test_a" name="test_known"><skipped type="pytest.xfail" message="issue 7" /></testcase>
<testcase name="test_b"><skipped message="collection skipped">('b.py', 17, 'Skipped: no axe')</skipped></testcase>
</testsuite></testsuites>"""


def test_junit_counts_errors_as_failures_and_names_skips(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(JUNIT, encoding="utf-8")
    tally = read_junit(path)
    assert tally.passed == 1
    assert tally.failures == [
        Note("test_a::test_bad", "assert 1 == 2\n       more"),
        Note("test_a::test_fixture", "failed on setup"),
    ]
    assert tally.skips == [
        Note("test_a::test_root", "not root"),
        Note("test_a::test_known", "expected to fail: issue 7"),
        Note("test_b", "no axe"),
    ]


def test_closing_line_adds_all_suites(cargo: Tally) -> None:
    assert closing_line([cargo, Tally(passed=10)]) == "13 passed, 2 failed, 4 skipped"
