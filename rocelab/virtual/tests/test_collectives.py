"""Collectives of training jobs in studies: their scenarios, and a run of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.study.problems import StudyError
from rocelab.virtual.loading import parse
from rocelab.virtual.scenario import scenario
from rocelab.virtual.steps import VirtualStep, plan
from rocelab.virtual.tests.test_studies import run_study

COLLECTIVES = """
schema = 1
id = "training"
title = "Training"
fabric = { kind = "virtual", host = "xeon-scalable" }

[[link]]
id = "rails"
topology = "rails"
rails = 4
nodes_per_group = 2
spines = 2
uplink_gbps = 100
switches = ["hpcc-switch"]
path_mtu_bytes = 4096

[[test]]
test = "ring-all-reduce"
sizes_bytes = [1048576, 16777216]
nodes = [16]
ranks = 4
stride = 4

[test.variants]
roce-100g = ["send"]

[[test]]
test = "all-to-all"
sizes_bytes = [1048576]
nodes = [8, 16]

[test.variants]
roce-100g = ["send"]
"""


def test_a_group_is_ranks_a_stride_apart() -> None:
    steps = [step for step in plan(parse(COLLECTIVES, "study.toml")) if isinstance(step, VirtualStep)]
    assert [(step.test_name, step.nodes, step.size_bytes) for step in steps] == [
        ("ring-all-reduce", 16, 1 << 20),
        ("ring-all-reduce", 16, 1 << 24),
        ("all-to-all", 8, 1 << 20),
        ("all-to-all", 16, 1 << 20),
    ]
    assert scenario(steps[0])["traffic"] == {
        "kind": "collective",
        "algorithm": "ring-all-reduce",
        "size_bytes": 1 << 20,
        "ranks": 4,
        "stride": 4,
        "chunk_bytes": None,
    }


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ranks = 4", "ranks = 3", "16 hosts are not groups of 3 ranks 4 apart"),
        ('test = "all-to-all"', 'test = "mesh"\nranks = 4', "mesh has no ranks"),
        ("stride = 4", "stride = 4\nchunk_bytes = 65536", "ring-all-reduce has no chunks; double-tree-all-reduce has"),
        ('["send"]', '["write"]', "write"),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        parse(COLLECTIVES.replace(old, new), "study.toml")


def test_a_run_tells_times_and_bus_bandwidths(tmp_path: Path) -> None:
    samples = run_study(tmp_path, COLLECTIVES)
    values = {(each.test, each.nodes, each.size_bytes, each.metric): each.value or 0.0 for each in samples}
    large = values["ring-all-reduce", 16, 1 << 24, "bus_bandwidth_mbps"]
    small = values["ring-all-reduce", 16, 1 << 20, "bus_bandwidth_mbps"]
    # Of 100 Gbps less headers, and less latencies of six steps: they count more with less data.
    assert 50_000 < small < large < 98_000
    time_us = values["ring-all-reduce", 16, 1 << 24, "collective_us"]
    assert large == pytest.approx(8 * (1 << 24) / time_us * 1.5)
    assert values["all-to-all", 16, 1 << 20, "collective_us"] > 0


def test_a_double_tree_is_ahead_of_a_ring_where_there_is_little_data_for_each_of_many_ranks(tmp_path: Path) -> None:
    text = COLLECTIVES[: COLLECTIVES.index("[[test]]")]
    for test, chunks in (("ring-all-reduce", ""), ("double-tree-all-reduce", "chunk_bytes = 262144")):
        text += f'''
[[test]]
test = "{test}"
sizes_bytes = [32768, 16777216]
nodes = [32]
{chunks}

[test.variants]
roce-100g = ["send"]
'''
    samples = run_study(tmp_path, text)
    rates = {(each.test, each.size_bytes): each.value or 0.0 for each in samples if each.metric == "bus_bandwidth_mbps"}
    assert rates["double-tree-all-reduce", 32768] > 2 * rates["ring-all-reduce", 32768]
    assert 40_000 < rates["double-tree-all-reduce", 1 << 24] < 98_000
