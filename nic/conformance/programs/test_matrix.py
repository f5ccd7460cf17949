"""Unmodified programs on urxe: each entry of the matrix is one test."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from .matrix import Entry, MatrixError, read
from .running import Outcome

LIMIT_S = 300.0


def _parameters() -> list[object]:
    return [
        pytest.param(entry, id=entry.id, marks=[pytest.mark.xfail(reason=entry.xfail)] if entry.xfail else [])
        for entry in read()
    ]


@pytest.mark.fabric
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("entry", _parameters())
def test_program(entry: Entry, outcomes: Mapping[str, Future[Outcome]]) -> None:
    outcome = outcomes[entry.id].result(LIMIT_S)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    print(outcome.transcript)
    assert not outcome.problems, f"{'; '.join(outcome.problems)}\n{outcome.transcript}"


def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[group]]\nclient = "{program}"\nproofs = "1"\nruns = ["true"]\n')
    with pytest.raises(MatrixError, match=r"x\.toml: true : no such setting: proofs"):
        read(tmp_path)


def test_two_runs_that_look_the_same_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[group]]\nclient = "{program}"\nruns = ["true", "true"]\n')
    with pytest.raises(MatrixError, match="there are two runs of 'true'"):
        read(tmp_path)
