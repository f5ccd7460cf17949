"""What can be known of the runs without a guest."""

from __future__ import annotations

from .interop import GIVEN_UP, REFUSAL_LOST, is_its_own
from .kernels import SUITES
from .runs import COLUMNS, NEWER_COLUMNS, ON_NEWER, OPERATIONS, RUNS, Side, command_lines, documented, table
from .siw_runs import DOCUMENT, SETTINGS, SIW_COLUMNS, SIW_RUNS


def test_the_documentation_has_every_run() -> None:
    everything = {(run.id, column): True for run in RUNS for column in COLUMNS}
    assert len(everything) == len(RUNS) * len(COLUMNS), "two runs have the same name"
    names = [row.split(" | ")[:2] for row in table(everything).splitlines()]
    assert [row.split(" | ")[:2] for row in documented().splitlines()] == names


def test_the_documentation_has_every_run_on_newer_kernels() -> None:
    assert len(SUITES[1:]) * 2 == len(NEWER_COLUMNS)
    assert all(column.split(", ")[0] in SUITES[1:] for column in NEWER_COLUMNS)
    everything = {(run.id, column): True for run in ON_NEWER for column in NEWER_COLUMNS}
    assert documented("what ran on newer kernels") == table(everything, ON_NEWER, NEWER_COLUMNS)


def test_the_documentation_has_every_run_with_siw() -> None:
    assert {column.split(", siw has ")[1] for column in SIW_COLUMNS if "siw" in column} == set(SETTINGS)
    everything = {(run.id, column): True for run in SIW_RUNS for column in SIW_COLUMNS}
    assert len(everything) == len(SIW_RUNS) * len(SIW_COLUMNS), "two runs have the same name"
    assert documented("what ran with siw", DOCUMENT) == table(everything, SIW_RUNS, SIW_COLUMNS)


def test_each_end_has_its_own_words() -> None:
    run = next(run for run in RUNS if run.ipv6 and run.port is None)
    here, there = Side("urxe_a", "0", "1", "10.0.0.1", "fd00::1"), Side("rxe0", "1", "2", "10.0.0.2", "fd00::2")
    server, client = command_lines(run, here, there)
    assert server[:2] == ["rping", "-s"]
    assert client[:4] == ["rping", "-c", "-a", "fd00::1"]
    run = next(run for run in SIW_RUNS if run.ipv6)
    assert command_lines(run, here, there)[1][:4] == ["rping", "-c", "-a", "fd00::1"]
    run = next(run for run in RUNS if run.ipv6 and run.command.startswith("ibv_rc"))
    server, client = command_lines(run, there, here)
    assert server == ["ibv_rc_pingpong", "-d", "rxe0", "-g", "2", "-c", "-n", "200"]
    assert client == ["ibv_rc_pingpong", "-d", "urxe_a", "-g", "1", "-c", "-n", "200", "10.0.0.2"]


def test_what_failed_shows() -> None:
    text = table({(RUNS[0].id, "server"): False, (RUNS[0].id, "client"): True})
    assert "| FAILS | passes | not run | not run |" in text.splitlines()[2]


def test_an_end_is_excused_by_what_it_says_if_its_data_are_right() -> None:
    rping = next(run for run in RUNS if run.command.startswith("rping"))
    data = "server ping data: rdma-ping-19: TUVWXYZ\n"
    race = "server DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n"
    assert rping.is_done(0, "")
    assert rping.is_done(255, data + race)
    assert not rping.is_done(255, race)
    assert not rping.is_done(255, data)
    assert not rping.is_done(-11, data + race)
    assert not RUNS[0].is_done(1, data + race)


def test_a_refusal_may_be_lost_where_packets_are() -> None:
    said = f"client on urxe: wrong: {REFUSAL_LOST}"
    assert REFUSAL_LOST in OPERATIONS.read_text()
    assert is_its_own(RUNS[0], said, with_loss=True)
    assert not is_its_own(RUNS[0], said, with_loss=False)
    assert not is_its_own(RUNS[0], f"client on urxe: {GIVEN_UP}", with_loss=True)
