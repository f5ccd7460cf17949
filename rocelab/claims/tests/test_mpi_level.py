"""The MPI and NAS levels of the FDR paper: what bears a claim out, and what speaks against it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from rocelab.claims import Verdict, claims_by_id, tables_of
from rocelab.claims.tests.simulated import series, verdict_of
from rocelab.results import Sample

SIZES = [1 << bit for bit in range(15)]
NETWORKS = {"infiniband-qdr": 1.2, "infiniband-fdr": 0.9, "roce-10g": 3.0, "roce-40g": 1.0}
JUMP = 1.6
Growth = Callable[[int], float]


def smooth(size: int) -> float:
    return 10 + size / 8


def jump(size: int) -> float:
    return smooth(size) * (JUMP if size >= 2048 else 1.0)


def stand_still(size: int) -> float:
    return smooth(size) / (JUMP if size >= 2048 else 1.0)


def collectives(
    *, scatter: Growth = jump, alltoallv_40: float = 1.0, small_40: float = 1.0, at_10: Growth | None = None
) -> list[Sample]:
    """Times of both collectives: factors of each network, times how they grow."""
    made = []
    for interconnect, factor in NETWORKS.items():
        of: dict[str, Any] = {
            "level": "mpi", "metric": "latency_us", "link": "sx6036", "variant": "smpi", "nodes": 4, "ranks": 64,
            "interconnect": interconnect,
        }  # fmt: skip
        is_40 = interconnect == "roce-40g"
        grows = at_10 if at_10 is not None and interconnect == "roce-10g" else scatter
        small, all_sizes = (small_40, alltoallv_40) if is_40 else (1.0, 1.0)

        def scattered(size: int, factor: float = factor, grows: Growth = grows, small: float = small) -> float:
            return factor * grows(size) * (small if size < 64 else 1.0)

        made += series(scattered, SIZES, test="scatter", **of)
        made += series(
            lambda size, times=factor * all_sizes: times * smooth(size),  # type: ignore[misc]
            SIZES,
            test="alltoallv",
            **of,
        )
    return made


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.REPRODUCED),
        # The source does not say in which direction it changes.
        ({"scatter": stand_still}, Verdict.REPRODUCED),
        ({"scatter": smooth}, Verdict.CONTRADICTED),
        # RoCE at both rates changes, and not QDR alone.
        ({"at_10": smooth}, Verdict.CONTRADICTED),
        # The source names no size from which on it holds, and both collectives.
        ({"small_40": 1.3}, Verdict.CONTRADICTED),
        ({"alltoallv_40": 1.3}, Verdict.CONTRADICTED),
        # As low is not lower.
        ({"small_40": 1.2}, Verdict.CONTRADICTED),
        ({"alltoallv_40": 1.18}, Verdict.CONTRADICTED),
    ],
)
def test_scatter_changes_at_2_kib_and_40_gige_is_ahead_everywhere(changed: dict[str, Any], verdict: Verdict) -> None:
    assert verdict_of("V10", collectives(**changed)).verdict is verdict


def nas(**changed: float) -> list[Sample]:
    """Table I as the source has it, but for the times that are named as ``bt_roce_10g``."""
    (table,) = (each for each in tables_of(claims_by_id(["V11"])) if each.level == "nas")
    made = []
    for row in table.rows:
        for column, time_s in zip(table.columns, row.values, strict=True):
            name = f"{row.name.lower()}_{column.interconnect.replace('-', '_')}"
            of: dict[str, Any] = {
                "level": "nas", "test": row.test, "metric": "time_s", "link": "sx6036", "variant": "smpi",
                "interconnect": column.interconnect, "nodes": table.nodes, "ranks": table.ranks,
            }  # fmt: skip
            made += series({0: changed.get(name, time_s)}, **of)
    return made


def test_table_1_itself_bears_out_what_is_said_of_it() -> None:
    assert verdict_of("V11", nas()).verdict is Verdict.REPRODUCED
    assert verdict_of("V12", nas()).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        # Within 2.6 % of the table, and yet the network does nearly nothing.
        ({"bt_roce_10g": 25.55}, "BT over RoCE 10GigE, in the table +5.6 %: +2.9 % (not as claimed"),
        ({"lu_roce_10g": 24.07}, "LU over RoCE 10GigE, in the table +1.9 %: +0.1 % (not as claimed"),
        # Within 5 % of the table, and more than twice the effect.
        ({"ft_infiniband_qdr": 10.43}, "FT over QDR, in the table +2.6 %: +7.4 % (not as claimed"),
    ],
)
def test_a_network_without_its_effect_contradicts_table_1(changed: dict[str, float], words: str) -> None:
    found = verdict_of("V11", nas(**changed))
    assert found.verdict is Verdict.CONTRADICTED
    assert words in found.summary


@pytest.mark.parametrize(
    "changed",
    [
        {"is_infiniband_fdr": 0.71},
        {"mg_infiniband_fdr": 1.70},
        {"bt_infiniband_qdr": 25.2},
        {"lu_roce_10g": 24.07},
        {"bt_infiniband_fdr": 23.0},
    ],
)
def test_a_gain_that_is_not_there_or_one_too_many_contradicts(changed: dict[str, float]) -> None:
    assert verdict_of("V12", nas(**changed)).verdict is Verdict.CONTRADICTED


def test_a_kink_is_measured_against_both_neighbours() -> None:
    found = verdict_of("V10", collectives())
    steps = [jump(size) for size in (512, 1024, 2048, 4096)]
    growths = [after / before for before, after in itertools.pairwise(steps)]
    kink = growths[1] / math.sqrt(growths[0] * growths[2])
    assert f"change of MPI_Scatter at 2 KiB over QDR: {kink:.2f} times" in found.summary
