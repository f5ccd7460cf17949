"""BT, SP and LU: the published results, on as many ranks as cut the grid in each way they know."""

from __future__ import annotations

from typing import Any, Final

import pytest

from .conftest import Mpi

#: Five residuals and five errors, and what LU has besides.
CHECKS: Final = {"bt": 10, "sp": 10, "lu": 11}


def run(mpi: Mpi, ranks: int, *arguments: str) -> dict[str, Any]:
    """What --json prints."""
    (found,) = mpi.samples(ranks, *arguments, program=mpi.nas)
    return found


@pytest.mark.parametrize(
    ("program", "ranks"),
    [(program, ranks) for program in ("bt", "sp") for ranks in (1, 4, 9)] + [("lu", ranks) for ranks in (1, 2, 4, 8)],
)
def test_class_s_gives_the_published_results(mpi: Mpi, program: str, ranks: int) -> None:
    found = run(mpi, ranks, program, "S")
    assert found["verification"] == "pass"
    assert len(found["checks"]) == CHECKS[program]
    # Far better than the 1e-8 that count: what differs is the order of additions alone.
    assert max(check["error"] for check in found["checks"]) < 1e-10


def test_parts_of_unequal_size_give_the_published_results(any_mpi: Mpi) -> None:
    # 33 points in 17 and 16.
    assert run(any_mpi, 2, "lu", "W")["verification"] == "pass"


@pytest.mark.parametrize(
    ("ranks", "arguments", "said"),
    [
        (2, ("bt", "S"), "bt runs on 1, 4, 9, 16, ... ranks, not on 2"),
        (5, ("lu", "S"), "into 1 x 5 parts for 5 ranks: too thin"),
        (25, ("sp", "S"), "too few for 25 ranks, which cut them into 5 parts; at most 16 ranks can share it"),
    ],
)
def test_ranks_that_cannot_share_the_grid_are_refused(
    any_mpi: Mpi, ranks: int, arguments: tuple[str, ...], said: str
) -> None:
    done = any_mpi.run(ranks, *arguments, program=any_mpi.nas)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
