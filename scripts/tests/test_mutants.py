"""The list of mutants is true, and what comes of them is told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mutants
from mutants import NIC, Mutant

ALL = mutants.read()


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_a_mutant_is_an_edit_of_the_source_as_it_is(mutant: Mutant) -> None:
    assert (NIC / mutant.path).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.new != mutant.old


def test_names_are_different_and_every_crate_of_the_nic_has_some() -> None:
    assert len({mutant.name for mutant in ALL}) == len(ALL) >= 60
    crates = {"wire", "proto", "iwarp-wire", "iwarp", "duty", "cm", "udp", "device", "preload", "cli"}
    assert {mutant.path.partition("/")[0] for mutant in ALL} == crates


def test_a_draw_follows_from_its_seed() -> None:
    assert mutants.drawn(ALL, 5, "one") == mutants.drawn(ALL, 5, "one") != mutants.drawn(ALL, 5, "another")
    assert len(mutants.drawn(ALL, 5, "one")) == 5


def test_tests_are_those_of_the_longest_part_of_a_path() -> None:
    tests = {"src": ["-p all"], "src/memory": ["-p memory"]}
    assert mutants.tests_of("src/memory/mod.rs", tests) == ("-p memory",)
    assert mutants.tests_of("src/lib.rs", tests) == ("-p all",)


def test_what_no_test_is_named_for_is_said() -> None:
    with pytest.raises(SystemExit, match=r"no tests are named for build\.rs; there are tests for src"):
        mutants.tests_of("build.rs", {"src": ["-p all"]})


@pytest.mark.parametrize(
    ("outcome", "status", "expected"),
    [
        ("caught", 0, "1 of 1 mutants caught\n"),
        ("NOT CAUGHT", 1, "0 of 1 mutants caught\nnot caught: breaks\n"),
        ("TIMED OUT", 1, "0 of 1 mutants caught\ntimed out: breaks\n"),
    ],
)
def test_a_time_out_is_not_a_catch(
    outcome: str, status: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mutant = Mutant("breaks", "wire/src/psn.rs", "a", "b", ("-p urxe-wire",))
    assert mutants.report([mutant], {"breaks": outcome}) == status
    assert capsys.readouterr().out == expected


def test_a_source_that_lacks_the_edited_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "psn.rs").write_text("fn other() {}", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"breaks: nic/wire/psn\.rs has 0 times, not once"):
        mutants.outcome_of(tmp_path, Mutant("breaks", "wire/psn.rs", "fn one() {}", "", ()))


def test_a_copy_is_newer_than_what_was_built_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = tmp_path / "nic"
    (nic / "proto").mkdir(parents=True)
    source = nic / "proto/lib.rs"
    source.write_text("", encoding="utf-8")
    os.utime(source, (0, 0))
    monkeypatch.setattr(mutants, "NIC", nic)
    built = tmp_path / "built"
    built.touch()
    mutants.copy_crates(tmp_path / "work")
    assert (tmp_path / "work/proto/lib.rs").stat().st_mtime_ns >= built.stat().st_mtime_ns
