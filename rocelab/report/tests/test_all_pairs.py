"""What the report makes of all pairs; the values are made up."""

from __future__ import annotations

import dataclasses
import io
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rocelab.claims.tests.test_claims import sample
from rocelab.report import all_pairs
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_summary
from rocelab.report.tests.synthetic import make_info
from rocelab.report.write import write_report
from rocelab.results import LinkInfo, RunStore, Sample

NODES = [f"node{at}" for at in range(1, 13)]
FAILED = ("node1", "node12")


def pairs(slow: str | None, factor: float = 0.6) -> list[Sample]:
    found = []
    for part, (client, server) in enumerate(permutations(NODES, 2)):
        what: dict[str, Any] = {
            "link": "rail",
            "level": "pairs",
            "test": "bandwidth",
            "interconnect": "tcp",
            "variant": "blocking@default",
            "size_bytes": 65536,
            "nodes": len(NODES),
            "metric": "bandwidth_mbps",
            "unit": "Mbps",
            "part": part,
        }
        value = (1000.0 + part % 7) * (factor if slow in (client, server) else 1.0)
        for repetition in range(2):
            one = sample(value, statistic=f"{client} to {server}", repetition=repetition, **what)
            one = dataclasses.replace(one, params={"client": client, "server": server})
            if (client, server) == FAILED:
                one = dataclasses.replace(one, ok=False, value=None, error="node12: its agent is gone")
            found.append(one)
    return found


def model_of(samples: list[Sample]) -> RunModel:
    info = dataclasses.replace(make_info("made-up", 2, 1, 8), links=(LinkInfo("rail", "rail", 1500),), claims=())
    return RunModel(info, samples)


def test_a_slow_node_is_in_the_first_line_with_both_directions() -> None:
    (finding,) = all_pairs.findings(all_pairs.of_run(model_of(pairs("node7"))))
    assert finding.subject == "node7"
    assert "sends at 60 % and receives at 60 % of the others in bandwidth of 64 KiB by TCP blocking" in finding.text
    out = io.StringIO()
    print_summary(Console(file=out, width=500), model_of(pairs("node7")))
    assert out.getvalue().startswith("node7 is slower than the others.")


def test_nothing_is_said_of_nodes_that_are_alike() -> None:
    found = all_pairs.of_run(model_of(pairs(None)))
    assert all_pairs.findings(found) == []
    (sentence,) = all_pairs.sentences(found)
    assert sentence.endswith("No node and no pair stands out.")
    assert "131 pairs of 12 nodes" in sentence
    assert "1 pair failed" in sentence


def test_nodes_are_in_the_order_of_their_numbers() -> None:
    (found,) = all_pairs.of_run(model_of(pairs(None)))
    assert found.nodes == NODES


def test_the_table_has_the_slowest_node_first() -> None:
    (section,) = all_pairs.sections(all_pairs.of_run(model_of(pairs("node7"))))
    (figure,) = section.links[0][1]
    assert figure.tables[0].rows[0] == ("node7", "602 Mbps, 60 %", "602 Mbps, 60 %")
    assert "sends" in figure.tables[0].head


def test_every_pair_is_in_the_table_for_other_programs() -> None:
    lines = all_pairs.pairs_csv(all_pairs.of_run(model_of(pairs("node7")))).splitlines()
    assert len(lines) == 1 + len(NODES) * (len(NODES) - 1)
    assert lines[1].startswith('rail,bandwidth,"TCP blocking')
    assert lines[-1].endswith(",,,0")


def test_pairs_are_no_series_of_the_run() -> None:
    assert model_of(pairs(None)).series_keys == []


def at_switches(samples: list[Sample], per_switch: int) -> list[Sample]:
    """The same with the switch of each node, which are filled one after the other."""
    switch_of = {node: f"leaf{at // per_switch}" for at, node in enumerate(NODES)}
    return [
        dataclasses.replace(
            each,
            params={
                **each.params,
                **{f"{end}_switch": switch_of[str(each.params[end])] for end in ("client", "server")},
            },
        )
        for each in samples
    ]


def test_a_slow_switch_is_said_and_not_each_of_its_nodes() -> None:
    samples = []
    for each in at_switches(pairs(None), 3):
        switches = {each.params["client_switch"], each.params["server_switch"]}
        is_slow = "leaf1" in switches and len(switches) == 2 and each.value is not None
        samples.append(dataclasses.replace(each, value=each.value * 0.5) if is_slow and each.value else each)
    (finding,) = all_pairs.findings(all_pairs.of_run(model_of(samples)))
    assert finding.subject == "switch leaf1"
    assert finding.text.startswith("On rail: has 50 % of the others in bandwidth of 64 KiB")
    assert "uplinks" in finding.text


def test_a_slow_node_is_said_as_before_where_switches_are_known() -> None:
    (finding,) = all_pairs.findings(all_pairs.of_run(model_of(at_switches(pairs("node7"), 3))))
    assert finding.subject == "node7"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    info = dataclasses.replace(make_info("made-up", 2, 1, 8), links=(LinkInfo("rail", "rail", 1500),), claims=())
    store = RunStore.create(tmp_path, info, "")
    store.append(*pairs("node7"))
    store.close()
    return write_report(store).page.parent


def test_the_page_begins_with_the_slow_node_and_has_a_map(folder: Path) -> None:
    page = (folder / "index.html").read_text()
    assert page.index("node7 is slower than the others.") < page.index('id="summary"')
    assert '<section id="pairs"' in page
    assert (folder / "pairs.csv").is_file()
    (svg,) = (folder / "figures").glob("pairs-*.svg")
    assert "Client, which sends" in svg.read_text()
