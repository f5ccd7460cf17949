"""Unmodified programs on urxe: each entry of the matrix is one test."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import pytest

from userland.roots import ROOTS

from .matrix import Entry, MatrixError, read
from .running import Job, Outcome

LIMIT_S = 300.0
#: Run in each other userland by `make test`; `make test-distros` runs all.
SMOKE = (
    "ibv_devinfo -d {device}",
    "ibv_rc_pingpong -c",
    "ib_send_bw -n 500",
    "ib_write_lat -n 200",
    "rping",
    "fi_pingpong -p verbs -e msg -I 100",
    "ucx_perftest -t tag_lat -n 500",
)


def _parameters() -> list[object]:
    return [
        pytest.param(entry, id=entry.id, marks=[pytest.mark.xfail(reason=entry.xfail)] if entry.xfail else [])
        for entry in read()
    ]


@pytest.mark.fabric
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("entry", _parameters())
def test_program(entry: Entry, distro: str | None, outcomes: Mapping[Job, Future[Outcome]]) -> None:
    judge(outcomes[distro, entry.id].result(LIMIT_S))


@pytest.mark.fabric
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("distro", [root.name for root in ROOTS])
@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.id) for entry in read() if entry.id in SMOKE])
def test_program_of_another_distribution(distro: str, entry: Entry, outcomes: Mapping[Job, Future[Outcome]]) -> None:
    judge(outcomes[distro, entry.id].result(LIMIT_S))


def test_those_that_run_in_each_userland_are_in_the_matrix() -> None:
    assert {entry.id for entry in read()} >= set(SMOKE)


def judge(outcome: Outcome) -> None:
    """Skip or fail as the outcome says."""
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    print(outcome.transcript)
    assert not outcome.problems, f"{'; '.join(outcome.problems)}\n{outcome.transcript}"


def test_an_entry_can_be_for_some_releases_of_rdma_core(tmp_path: Path) -> None:
    runs = '["true", { run = "true", note = "old", before = 60 }, { run = "true", note = "new", since = 60 }]'
    (tmp_path / "x.toml").write_text(f'[[group]]\nclient = "{{program}}"\nruns = {runs}\n')
    entries = read(tmp_path)
    assert [entry.note for entry in entries if entry.is_for(59)] == ["", "old"]
    assert [entry.note for entry in entries if entry.is_for(60)] == ["", "new"]
    assert [entry.note for entry in entries if entry.is_for(None)] == ["", "old", "new"]


def test_a_setting_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[group]]\nclient = "{program}"\nproofs = "1"\nruns = ["true"]\n')
    with pytest.raises(MatrixError, match=r"x\.toml: true : no such setting: proofs"):
        read(tmp_path)


def test_two_runs_that_look_the_same_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[[group]]\nclient = "{program}"\nruns = ["true", "true"]\n')
    with pytest.raises(MatrixError, match="there are two runs of 'true'"):
        read(tmp_path)
