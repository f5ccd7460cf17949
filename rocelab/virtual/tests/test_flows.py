"""Studies of flows: what their files may say, the scenarios that come of them, and a run of one."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rocelab.results import Sample
from rocelab.study.problems import StudyError
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.loading import parse
from rocelab.virtual.scenario import scenario
from rocelab.virtual.steps import plan
from rocelab.virtual.tests.test_studies import run_study

FLOWS = """
schema = 1
id = "flows"
title = "Flows"
fabric = { kind = "virtual", host = "xeon-scalable" }

[[link]]
id = "tree"
topology = "fat-tree"
radix = 4
switches = ["hpcc-switch"]
path_mtu_bytes = 4096

[[test]]
level = "flows"
test = "alistorage"
nodes = [8]
loads = [0.6, 0.2]
flows = 3000
warmup_flows = 100
incast = { senders = 4, size_bytes = 20000, load = 0.02 }

[test.variants]
roce-100g = ["write"]
"""
VARY = '\n[test.vary]\n"switch.shared_shift" = [1, 3]\n"switch.pfc" = [true, false]\n'


def _steps(text: str) -> list[FlowsStep]:
    return [step for step in plan(parse(text, "study.toml")) if isinstance(step, FlowsStep)]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"alistorage"',
            '"alistorge"',
            r"study.toml:\d+: test.*unknown workload 'alistorge'; did you mean 'alistorage'",
        ),
        ('"alistorage"', '"fixed"', "flows of fixed have size_bytes"),
        ("loads = [0.6, 0.2]", "loads = [0.6, 0]", "greater than 0"),
        ("loads = [0.6, 0.2]", "loads = [0.6, 0.6]", "the same value is there twice"),
        ("warmup_flows = 100", "warmup_flows = 3000", "none is left that counts"),
        ("senders = 4", "senders = 8", "8 hosts have at most 7 senders"),
        ('["write"]', '["mpi"]', "write"),
        ("flows = 3000", "flow = 3000", "did you mean 'flows'"),
        ("roce-100g =", "infiniband-edr =", "infiniband-edr is infiniband, and link tree has no such switch"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, said: str) -> None:
    assert old in FLOWS
    with pytest.raises(StudyError, match=said):
        parse(FLOWS.replace(old, new), "study.toml")


def test_a_parameter_that_is_not_there_cannot_be_varied() -> None:
    with pytest.raises(StudyError, match=r"study.toml:\d+: .*switch.shared_shft is no number or word"):
        parse(FLOWS + VARY.replace("shared_shift", "shared_shft"), "study.toml")


def test_each_load_is_a_simulation_and_says_so_in_its_variant() -> None:
    steps = _steps(FLOWS)
    assert [step.variant for step in steps] == ["write:load=0.2", "write:load=0.6"]
    traffic = scenario(steps[0])["traffic"]
    assert (traffic["load"], traffic["flows"], traffic["pattern"]) == (0.2, 3000, {"kind": "mesh"})
    assert traffic["sizes"][0] == [0.0, 0.0]
    assert traffic["sizes"][-1] == [2_000_000.0, 1.0]
    assert [key.size_bytes for key in steps[0].keys][:2] == [None, 1744]


def test_what_is_varied_is_in_the_scenario() -> None:
    steps = _steps(FLOWS + VARY)
    assert len(steps) == 2 * 4
    assert steps[1].variant == "write:load=0.2,switch.shared_shift=1,switch.pfc=false"
    made = [scenario(step)["switch"] for step in steps[:4]]
    assert [(each["shared_shift"], each["pfc"]) for each in made] == [(1, True), (1, False), (3, True), (3, False)]


def test_repetitions_have_seeds_of_their_own() -> None:
    steps = _steps(FLOWS.replace('title = "Flows"', 'title = "Flows"\nrepetitions = 2\nseed = 7'))
    assert [step.seed for step in steps] == [7, 8, 7, 8]


def _value(samples: list[Sample], variant: str, metric: str, statistic: str, size_bytes: int | None = None) -> float:
    found = [
        sample.value
        for sample in samples
        if (sample.variant, sample.metric, sample.statistic) == (variant, metric, statistic)
        and sample.size_bytes == size_bytes
    ]
    (value,) = found
    assert value is not None
    return value


def test_a_run_tells_slowdowns_by_size_and_of_all(tmp_path: Path) -> None:
    samples = run_study(tmp_path, FLOWS)
    calm, busy = "write:load=0.2", "write:load=0.6"
    for variant in (calm, busy):
        assert _value(samples, variant, "flows", "total") == 2900
        medians = [_value(samples, variant, "slowdown", each) for each in ("median", "p95", "p99", "p99.9")]
        assert medians == sorted(medians)
        assert medians[0] >= 1
        assert _value(samples, variant, "incast_slowdown", "median") > 1.2
        by_bin = [sample for sample in samples if sample.variant == variant and sample.size_bytes is not None]
        assert sum(sample.value or 0 for sample in by_bin if sample.metric == "flows") == 2900
        # Of some 290 flows of a bin, the 99.9th percentile would be a guess.
        assert not any(sample.statistic == "p99.9" for sample in by_bin)
    assert _value(samples, busy, "slowdown", "p99") > _value(samples, calm, "slowdown", "p99")
    assert _value(samples, busy, "cable_use_percent", "mean") > 30
    tables = sorted((tmp_path / "run" / "logs").glob("*-flows.csv"))
    assert len(tables) == 2
    with tables[0].open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["is_of_incast"] == "False" for row in rows) == 3000
    assert float(rows[0]["took_ns"]) >= 0.98 * float(rows[0]["alone_ns"])


def test_a_bin_without_flows_says_so(tmp_path: Path) -> None:
    few = FLOWS.replace("flows = 3000", "flows = 5").replace("warmup_flows = 100", "").replace("[0.6, 0.2]", "[0.2]")
    samples = run_study(tmp_path, few)
    empty = [sample for sample in samples if not sample.ok]
    assert empty
    assert all("ask for more flows" in (sample.error or "") for sample in empty)


def _link(keys: str) -> str:
    return FLOWS.replace('topology = "fat-tree"\nradix = 4', keys).replace("incast =", "# incast =")


DRAGONFLY = """topology = "dragonfly"
hosts_per_switch = 2
switches_per_group = 2
global_cables = 1
global_gbps = 100"""
RAILS = """topology = "rails"
rails = 2
nodes_per_group = 2
spines = 2
uplink_gbps = 100"""
LISTED = """topology = "listed"
cables = [
    { ends = ["host 0-3", "switch 0"] },
    { ends = ["host 4-7", "switch 1"] },
    { ends = ["switch 0-1", "switch 2-3"], gbps = 400 },
]"""
SPRAYED = """topology = "fat-tree"
radix = 4
hash = "packets"
hosts_per_edge = 4"""


@pytest.mark.parametrize("keys", [DRAGONFLY, RAILS, LISTED, SPRAYED])
def test_flows_cross_every_topology(tmp_path: Path, keys: str) -> None:
    text = _link(keys).replace("flows = 3000", "flows = 1000").replace("[0.6, 0.2]", "[0.2]")
    samples = run_study(tmp_path, text)
    assert _value(samples, "write:load=0.2", "flows", "total") == 900
    assert _value(samples, "write:load=0.2", "slowdown", "median") < 3


def test_an_entry_of_cables_joins_each_with_each() -> None:
    (step, _) = _steps(_link(LISTED))
    topology = scenario(step)["topology"]
    assert (topology["switches"], len(topology["cables"])) == (4, 8 + 4)
    assert {"ends": [{"switch": 1}, {"switch": 3}], "gbps": 400} in topology["cables"]


INCIDENTS = """
incidents = [
    { what = "cable", switch = [0, 2], at_us = 100, until_us = 1000, notice_us = 50 },
    { what = "pause-storm", host = [3, 0], at_us = 300, until_us = 1500 },
]
"""


def test_what_breaks_in_the_middle_costs_time_and_is_survived(tmp_path: Path) -> None:
    whole = (
        FLOWS.replace("flows = 3000", "flows = 1000").replace("[0.6, 0.2]", "[0.2]").replace("incast =", "# incast =")
    )
    broken = whole.replace("radix = 4\n", "radix = 4\n" + INCIDENTS)
    (step,) = _steps(broken)
    assert scenario(step)["incidents"][0] == {
        "victim": {"cable": {"switch": [0, 2]}},
        "at_ns": 100_000,
        "until_ns": 1_000_000,
        "notice_ns": 50_000,
    }
    calm, bad = (
        _value(run_study(tmp_path / name, text), "write:load=0.2", "slowdown", "p99")
        for name, text in (("a", whole), ("b", broken))
    )
    assert bad > 1.5 * calm


def test_an_incident_without_a_place_is_refused() -> None:
    wrong = FLOWS.replace("radix = 4\n", 'radix = 4\nincidents = [{ what = "cable", at_us = 1 }]\n')
    with pytest.raises(StudyError, match="an incident is at a host or at a switch"):
        parse(wrong, "study.toml")
