"""urxe against the Linux rxe of newer kernels: some of the runs of interop.py, on each. Part of `make interop`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .guest import Guest
from .interop import (
    LIMIT_S,
    attempt,
    client_on_urxe,
    each,
    server_on_urxe,
    side_on_rxe,
    side_on_urxe,
)
from .kernels import BUILT, SUITES
from .runs import NEWER_COLUMNS, NEWER_OPERATIONS, ON_NEWER, Run, Side, command_lines, documented, table

pytestmark = pytest.mark.timeout(5 * LIMIT_S)
#: What became of each run, by its name and its column in the table.
OUTCOMES: dict[tuple[str, str], bool] = {}


@pytest.fixture(scope="module")
def urxe(newer_guest: Guest) -> Side:
    """The end on the host."""
    return side_on_urxe()


@pytest.fixture(scope="module")
def rxe(newer_guest: Guest) -> Side:
    """The end in the guest."""
    return side_on_rxe(newer_guest)


@each(ON_NEWER)
def test_server_on_urxe(newer_guest: Guest, urxe: Side, rxe: Side, run: Run) -> None:
    key = run.id, f"{newer_guest.suite}, server"
    OUTCOMES[key] = False
    attempt(server_on_urxe, newer_guest, run, *command_lines(run, urxe, rxe))
    OUTCOMES[key] = True


@each(ON_NEWER)
def test_client_on_urxe(newer_guest: Guest, urxe: Side, rxe: Side, run: Run) -> None:
    key = run.id, f"{newer_guest.suite}, client"
    OUTCOMES[key] = False
    attempt(client_on_urxe, newer_guest, run, *command_lines(run, rxe, urxe))
    OUTCOMES[key] = True


@pytest.mark.parametrize("both", [server_on_urxe, client_on_urxe])
def test_newer_operations(
    newer_guest: Guest, urxe: Side, rxe: Side, both: Callable[[Guest, Run, list[str], list[str]], None]
) -> None:
    ends = (urxe, rxe) if both is server_on_urxe else (rxe, urxe)
    # FLUSH is no part of it with this machine's libraries of Debian 12, and could not be. The rxe
    # of Linux 6.12 drops FLUSH packets with the right ICRC, and sends its own with another
    # (docs/interop.md).
    attempt(both, newer_guest, NEWER_OPERATIONS, *command_lines(NEWER_OPERATIONS, *ends))


def test_the_table_in_the_documentation_is_what_ran() -> None:
    if len(OUTCOMES) < 2 * len(ON_NEWER) * len(SUITES[1:]):
        pytest.skip("not everything ran")
    found = table(OUTCOMES, ON_NEWER, NEWER_COLUMNS)
    (BUILT / "newer.md").write_text(found)
    assert found == documented("what ran on newer kernels"), (
        f"docs/interop-runs.md has another table than {BUILT}/newer.md"
    )
