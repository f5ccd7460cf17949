"""The sort of the full-mesh paper: its time in proportion, its use of the link, and its growth."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rocelab.claims import Verdict, claims_by_id, judge
from rocelab.claims.tests.test_claims import INFO, repeated, sample
from rocelab.results import LinkInfo, Sample

(R7,) = claims_by_id(["R7"])
INFO_25 = dataclasses.replace(INFO, links=(LinkInfo("server-25", "bridge", 4200, 2500.0),))
OF: dict[str, Any] = {
    "level": "cloud", "link": "server-25", "test": "terasort", "interconnect": "soft-roce", "variant": "ucx",
}  # fmt: skip


def sorts(
    workers: int = 3, *, records: int = 1_280_000, terasort_s: float = 15.0, mean: float = 25.0, peak: float = 150.0
) -> list[Sample]:
    of = OF | {"nodes": workers + 1, "ranks": workers, "size_bytes": 100 * records}
    made = repeated(30.0, **of, metric="teragen_s", unit="s", statistic="total")
    made += repeated(terasort_s, **of, metric="terasort_s", unit="s", statistic="total")
    for statistic, value in (("mean", mean), ("max", peak)):
        made += repeated(value, **of, metric="node_throughput_mbps", statistic=statistic)
    return made + repeated(mean * workers, **of, metric="total_throughput_mbps")


def on(*numbers: int, **changed: Any) -> list[Sample]:
    """Sorts on several numbers of servers, each with as many records for each of them."""
    return [each for workers in numbers for each in sorts(workers, records=400_000 * workers, **changed)]


def test_a_sort_in_time_that_leaves_its_link_alone_and_grows_is_as_claimed() -> None:
    judged = judge(R7, INFO_25, on(2, 4, 8))
    assert judged.verdict is Verdict.REPRODUCED, judged.summary
    assert "from 2 to 8 servers the total is 100.0" in judged.summary


@pytest.mark.parametrize(
    "changed",
    [
        # 400,000 records of a server have 19.2 s, a 1/15.6th of what 6,250,000 have.
        {"terasort_s": 22.0},
        {"mean": 40.0},
        {"peak": 260.0},
    ],
)
def test_a_slow_sort_or_one_that_needs_its_link_contradicts(changed: dict[str, float]) -> None:
    assert judge(R7, INFO_25, on(2, 4, 8, **changed)).verdict is Verdict.CONTRADICTED


def test_the_time_is_in_proportion_to_the_records_of_a_server() -> None:
    for terasort_s, verdict in ((290.0, Verdict.NOT_CHECKABLE), (310.0, Verdict.CONTRADICTED)):
        judged = judge(R7, INFO_25, sorts(16, records=100_000_000, terasort_s=terasort_s))
        assert judged.verdict is verdict
        assert "at most 300.0" in judged.summary


def test_a_total_that_does_not_grow_contradicts() -> None:
    samples = on(2, 4) + sorts(8, records=3_200_000, mean=15.0)
    assert judge(R7, INFO_25, samples).verdict is Verdict.CONTRADICTED


def test_one_number_of_servers_leaves_the_growth_open() -> None:
    judged = judge(R7, INFO_25, sorts())
    assert judged.verdict is Verdict.NOT_CHECKABLE
    assert "takes 3 numbers of servers, and there is 3" in judged.summary
    assert "(reproduced: at most 20.5)" in judged.summary


def test_a_wrong_sort_contradicts_a_missing_transport_is_open() -> None:
    wrong = [*on(2, 4, 8), sample(None, **OF, nodes=4, ranks=3, repetition=1)]
    assert judge(R7, INFO_25, wrong).verdict is Verdict.CONTRADICTED
    over_tcp = [dataclasses.replace(each, interconnect="tcp") for each in on(2, 4, 8)]
    assert judge(R7, INFO_25, over_tcp).verdict is Verdict.NOT_CHECKABLE
