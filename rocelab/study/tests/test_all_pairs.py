"""All pairs: what is planned, and what becomes of pairs that fail."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import closing
from itertools import permutations
from pathlib import Path

import pytest

from rocelab.fabric.base import LaunchError
from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.results import Sample
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner, remaining
from rocelab.study.schema import Study
from rocelab.study.steps import RoundStep
from rocelab.study.tests import small

TEXT = """\
schema = 1
id = "pairs"
title = "All pairs"
repetitions = 1
time_limit_s = 5

[tcp]
congestion_control = ["default"]

[fabric]
nodes = 4

[[link]]
id = "eth"
kind = "bridge"
rate_mbps = 100

[[test]]
level = "pairs"
test = "bandwidth"
point_ms = 10

[test.variants]
tcp = ["blocking"]
"""


def study(text: str = TEXT) -> Study:
    return parse(text, "pairs.toml")


def rounds(text: str = TEXT) -> list[RoundStep]:
    return [step for step in plan(study(text)) if isinstance(step, RoundStep)]


def answer(start: Start) -> Outcome:
    """rocelab-sock that moves 100 Mbps."""
    if "client" not in start.argv:
        return Outcome()
    size, messages = (int(start.argv[start.argv.index(name) + 1]) for name in ("--size", "--messages"))
    end = {"elapsed_s": messages * size * 8e-8, "cpu_s": 0.01}
    report = {"size_bytes": size, "messages": messages, "client": end, "server": end, "bandwidth_mbps": 100.0}
    return Outcome(stdout=json.dumps({**report, "message_rate_per_s": 1.0}))


def run(tmp_path: Path, launcher: FakeLauncher, steps: Sequence[RoundStep], nodes: int = 4) -> list[Sample]:
    fabric = FakeFabric(tuple(link.profile() for link in study().link), node_count=nodes)
    with closing(small.store(tmp_path)) as store:
        Runner(store, fabric, launcher, small.Seen(), {}).run(steps)
        return store.samples()


def test_pairs_are_measured_both_ways_a_node_once_in_a_round() -> None:
    steps = rounds()
    assert sorted(pair for step in steps for pair in step.pairs) == sorted(permutations(range(4), 2))
    assert [len(step.pairs) for step in steps] == [2] * 6
    assert [step.part for step in steps] == [*range(6)]
    assert len({step.key for step in steps}) == len(steps)


RACKS = TEXT.replace('kind = "bridge"', 'kind = "two-level"\nnodes_per_switch = 2')


def test_samples_name_the_known_switches_of_their_nodes(tmp_path: Path) -> None:
    (tmp_path / "racks").mkdir()
    samples = run(tmp_path / "racks", FakeLauncher(answer), rounds(RACKS))
    switches = {(each.params["client"], each.params["client_switch"]) for each in samples}
    assert switches == {("node0", "switch0"), ("node1", "switch0"), ("node2", "switch1"), ("node3", "switch1")}
    (tmp_path / "one").mkdir()
    assert all("client_switch" not in each.params for each in run(tmp_path / "one", FakeLauncher(answer), rounds()))


def test_one_pair_at_a_time_leaves_a_switch() -> None:
    steps = rounds(RACKS.replace("point_ms", "pairs_per_switch = 1\npoint_ms"))
    crossing = [[pair for pair in step.pairs if pair[0] // 2 != pair[1] // 2] for step in steps]
    assert max(map(len, crossing)) == 1
    assert sorted(pair for step in steps for pair in step.pairs) == sorted(permutations(range(4), 2))


def test_latency_is_one_way_with_as_few_pairs_at_once_as_asked() -> None:
    steps = rounds(TEXT.replace('"bandwidth"', '"latency"').replace("point_ms", "pairs_at_once = 1\npoint_ms"))
    assert [len(step.pairs) for step in steps] == [1] * 6
    assert {step.key.size_bytes for step in steps} == {8}


def test_a_variant_that_does_not_exist_is_named() -> None:
    with pytest.raises(StudyError, match="unknown variant of tcp for bandwidth"):
        study(TEXT.replace("blocking", "sleeping"))


def test_every_pair_has_a_sample_of_its_own(tmp_path: Path) -> None:
    samples = run(tmp_path, FakeLauncher(answer), rounds())
    pairs = {(each.params["client"], each.params["server"]) for each in samples}
    assert pairs == {*permutations((f"node{at}" for at in range(4)), 2)}
    assert {(each.level, each.metric, each.value) for each in samples} == {("pairs", "bandwidth_mbps", 100.0)}
    assert {each.statistic for each in samples} == {f"{client} to {server}" for client, server in pairs}


def test_an_unreachable_node_fails_its_pairs_and_no_others(tmp_path: Path) -> None:
    def lost(start: Start) -> Outcome:
        if start.node.name == "node2":
            raise LaunchError("node2: its agent is gone")
        return answer(start)

    samples = run(tmp_path, FakeLauncher(lost), rounds())
    failed = [each for each in samples if not each.ok]
    assert len(failed) == 6
    assert all("node2" in (each.params["client"], each.params["server"]) for each in failed)
    assert all(each.error is not None and "its agent is gone" in each.error for each in failed)


def test_rounds_with_a_failed_pair_are_made_again_by_a_resume(tmp_path: Path) -> None:
    def lost(start: Start) -> Outcome:
        if {start.node.name} & {"node0"}:
            raise LaunchError("node0: gone")
        return answer(start)

    fabric = FakeFabric(tuple(link.profile() for link in study().link), node_count=5)
    steps = rounds(TEXT.replace("nodes = 4", "nodes = 5"))
    with closing(small.store(tmp_path)) as store:
        Runner(store, fabric, FakeLauncher(lost), small.Seen(), {}).run(steps)
        left = [step for step in remaining(steps, store) if isinstance(step, RoundStep)]
    # With five nodes, one rests in each round: node0 does once, there and back.
    assert sum(0 in pair for step in left for pair in step.pairs) == 8
    assert len(left) == len(steps) - 2


def test_a_node_that_hangs_in_round_after_round_is_given_up(tmp_path: Path) -> None:
    def hanging(start: Start) -> Outcome:
        return dataclasses.replace(answer(start), hangs=start.node.name == "node1")

    samples = run(tmp_path, FakeLauncher(hanging), rounds())
    of_node = [each for each in samples if "node1" in (each.params["client"], each.params["server"])]
    errors = [each.error or "" for each in of_node]
    assert sum("not run: what was measured with node1 hung in 3 rounds before it" in each for each in errors) == 3
    assert all(each.ok for each in samples if each not in of_node)
