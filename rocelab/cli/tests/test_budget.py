"""Repetitions and budgets as a person asks for them, and what is said about them before a run."""

from __future__ import annotations

import pytest

from rocelab.cli.budget import fitting, warn_unreachable, with_repetitions
from rocelab.cli.studies import seconds, steps_of
from rocelab.study.loading import parse
from rocelab.study.problems import StudyError
from rocelab.study.schema import Study

TEXT = """\
schema = 1
id = "b"
title = "A study with a budget"
claims = ["S1"]
repetitions = 5
budget_minutes = 1.5

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "latency"
sizes_bytes = { from = 1, to = 1024 }
[test.variants]
tcp = ["blocking"]

[[test]]
test = "bandwidth"
repetitions = 3
sizes_bytes = [1024]
[test.variants]
tcp = ["blocking"]
"""


def study(text: str = TEXT) -> Study:
    return parse(text, "b.toml")


def repetitions(of: Study) -> list[int]:
    return [of.repetitions_of(test) for test in of.test]


def test_a_study_states_its_budget() -> None:
    assert study().budget_minutes == 1.5
    assert study(TEXT.replace("budget_minutes = 1.5\n", "")).budget_minutes is None
    with pytest.raises(StudyError, match=r"b.toml:6: budget_minutes"):
        study(TEXT.replace("1.5", "0"))


@pytest.mark.parametrize(("asked", "come_out"), [(10, [10, 3]), (4, [4, 3]), (2, [2, 2])])
def test_a_test_makes_no_more_repetitions_than_its_own_or_asked(asked: int, come_out: list[int]) -> None:
    assert repetitions(with_repetitions(study(), asked)) == come_out


def test_a_budget_that_is_large_enough_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert fitting(study(), 1000) == study()
    assert capsys.readouterr().err == ""


def test_too_small_a_budget_is_said_with_what_it_would_take(capsys: pytest.CaptureFixture[str]) -> None:
    whole_s = seconds(steps_of(study()))
    fewer = fitting(study(), 0.7 * whole_s)
    assert repetitions(fewer)[0] == 3
    said = capsys.readouterr().err
    assert "A study with a budget: 5 repetitions take about" in said
    assert "For all of it, give --minutes 1." in said
    assert "Now 3 repetitions are made, in about" in said


def test_a_budget_for_less_than_two_repetitions_is_still_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert repetitions(fitting(study(), 0.01)) == [2, 2]
    assert "Now it ends when the time is over" in capsys.readouterr().err


def test_one_repetition_is_said_to_be_too_few_for_claims(capsys: pytest.CaptureFixture[str]) -> None:
    warn_unreachable(study())
    assert capsys.readouterr().err == ""
    warn_unreachable(with_repetitions(study(), 1))
    assert "will get no verdict from 1 repetition" in capsys.readouterr().err
