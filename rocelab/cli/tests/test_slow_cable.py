"""A slowed cable among sixteen nodes of the emulated fabric is named, and none where none is slow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, Node
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.report import all_pairs
from rocelab.report.model import RunModel
from rocelab.study.runner import Runner
from rocelab.study.tests import small
from rocelab.study.tests.test_all_pairs import TEXT, rounds, study

#: Eight pairs at this rate leave two cores idle more than half of the time.
SIXTEEN = TEXT.replace("nodes = 4", "nodes = 16").replace("point_ms = 10", "point_ms = 200")


@pytest.fixture
def sixteen() -> Iterator[emulated.EmulatedFabric]:
    try:
        fabric = emulated.up([link.profile() for link in study(SIXTEEN).link], emulated.default_names(16))
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with fabric:
        yield fabric


def found_on(fabric: emulated.EmulatedFabric, folder: Path) -> list[all_pairs.Finding]:
    with closing(small.store(folder)) as store:
        Runner(store, fabric, NamespaceLauncher(fabric), small.Seen(), {}).run(rounds(SIXTEEN))
        return all_pairs.findings(all_pairs.of_run(RunModel.of(store)))


def slow_down(fabric: emulated.EmulatedFabric, node: Node, rate_mbps: int) -> None:
    """Give what the node sends to its cable another rate."""
    launcher = NamespaceLauncher(fabric)
    rate = ("rate", f"{rate_mbps}mbit", "burst", "16kb", "latency", "50ms")
    command = ("tc", "qdisc", "replace", "dev", node.interfaces["eth"], "root", "tbf", *rate)
    assert launcher.start(node, command).wait(10).exit_status == 0


@pytest.mark.fabric
@pytest.mark.timeout(300)
def test_a_slow_cable_among_sixteen_nodes_is_named_else_none(sixteen: emulated.EmulatedFabric, tmp_path: Path) -> None:
    assert found_on(sixteen, tmp_path / "all-alike") == []
    slow = random.Random(7).choice(sixteen.nodes)
    slow_down(sixteen, slow, 50)
    first, *others = found_on(sixteen, tmp_path / "one-slow")
    assert others == []
    assert first.subject == slow.name
    assert "sends at" in first.text
