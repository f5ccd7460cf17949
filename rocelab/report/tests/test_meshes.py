"""What the report makes of meshes, and of the figures of the source that ran them; the values are made up."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rocelab.claims.tests.test_claims import sample
from rocelab.report import gallery, meshes, redrawn
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_summary
from rocelab.report.tests.synthetic import make_info
from rocelab.report.write import summary_csv, write_report
from rocelab.results import LinkInfo, RunStore, Sample

LINKS = (
    LinkInfo("cable-25", "direct", 1500, 1000.0),
    LinkInfo("racks", "two-level", 4200, 25.0, nodes_per_switch=8, uplink_rate_mbps=200.0),
)
TOTALS_MBPS = {2: 46.0, 4: 90.0, 16: 320.0}


def mesh(interconnect: str, variant: str, part: float, test: str = "mesh") -> list[Sample]:
    found = []
    for nodes, total in TOTALS_MBPS.items():
        what: dict[str, Any] = {
            "link": "racks",
            "test": test,
            "interconnect": interconnect,
            "variant": variant,
            "size_bytes": 16384,
            "nodes": nodes,
            "ranks": 2 * nodes * (nodes - 1),
            "unit": "Mbps",
        }
        found.append(sample(total * part, metric="throughput_mbps", statistic="total", **what))
        for statistic, factor in (("mean", 1.0), ("min", 0.5), ("max", 1.5)):
            value = total * part / nodes * factor
            found.append(sample(value, metric="node_throughput_mbps", statistic=statistic, **what))
    return found


@pytest.fixture
def model() -> RunModel:
    info = dataclasses.replace(make_info("made-up", 1, 1, 8), links=LINKS, claims=("R1", "R4", "R5"))
    pingpong: dict[str, Any] = {"link": "cable-25", "level": "mpi", "test": "PingPong", "metric": "latency_us"}
    pingpong |= {"interconnect": "soft-roce", "variant": "openmpi-ucx", "statistic": "median", "unit": "us"}
    samples = [sample(size * 8 / 500.0, size_bytes=size, **pingpong) for size in (1024, 65536)]
    return RunModel(info, samples + mesh("soft-roce", "write", 1.0) + mesh("tcp", "blocking", 0.9))


def test_a_mesh_is_drawn_over_its_nodes_beside_the_cables_rate(model: RunModel) -> None:
    (section,) = meshes.sections(model)
    ((title, (figure,)),) = section.links
    assert "two levels of switches, 25.0 Mbps, uplinks of 200 Mbps" in title
    points = figure.spec["datasets"]["points"]
    assert {point["size"] for point in points} == {2, 4, 16}
    assert [point["value"] for point in points if point["series"] == "all cables at their rate"] == [50, 100, 400]
    assert figure.labels == ("Soft RoCE write", "TCP blocking", "all cables at their rate")


def test_the_table_has_the_spread_over_nodes_and_the_linearity(model: RunModel) -> None:
    (table,) = meshes.tables(model, LINKS[1])
    assert table.rows[-1][:4] == ("16", "320 Mbps", "20.0 Mbps (10.0 Mbps to 30.0 Mbps)", "87 %")
    assert [row[3] for row in table.rows] == ["100 %", "98 %", "87 %"]


def events(test: str) -> list[Sample]:
    """Node 0 loses packets in one of three repetitions, node 3 sends again in two."""
    what: dict[str, Any] = {"link": "racks", "test": test, "interconnect": "soft-roce", "variant": "write"}
    what |= {"size_bytes": 16384, "nodes": 4, "ranks": 24, "unit": "events"}
    again = [(9.0, 1), (7.0, 2)]
    return [
        sample(0.0, metric="events_lost", statistic="total", repetition=0, **what),
        sample(5.0, metric="events_lost.udp.RcvbufErrors", statistic="node0", repetition=1, **what),
        *(
            sample(value, metric="events_resent.urxe.packet_seq_err", statistic="node3", repetition=at, **what)
            for value, at in again
        ),
    ]


def test_the_packets_fate_at_the_median_is_named_with_the_node(model: RunModel) -> None:
    held = RunModel(model.info, [*model.samples, *events("mesh")])
    _, table = meshes.tables(held, LINKS[1])
    assert table.rows == (("Soft RoCE write", "4", "sent or asked for again", "node3: 7 urxe.packet_seq_err"),)
    assert meshes.tables(model, LINKS[1])[1:] == []


def test_the_servers_of_an_incast_share_one_cable(model: RunModel) -> None:
    held = RunModel(model.info, mesh("soft-roce", "write", 0.5, test="incast"))
    (section,) = meshes.sections(held)
    ((_, (figure,)),) = section.links
    points = figure.spec["datasets"]["points"]
    assert [point["value"] for point in points if point["series"] == "all cables at their rate"] == [25, 25, 25]
    (table,) = meshes.tables(held, LINKS[1])
    assert [row[3] for row in table.rows] == ["100 %", "196 %", "696 %"]
    assert table.rows[-1][2].startswith("10.7 Mbps (")


def test_each_kind_of_traffic_has_a_figure_of_its_own(model: RunModel) -> None:
    kinds = ("mesh", "incast", "bisection", "permutation")
    held = RunModel(model.info, [one for kind in kinds for one in mesh("soft-roce", "write", 0.5, test=kind)])
    (section,) = meshes.sections(held)
    names = [figure.name for _, figures in section.links for figure in figures]
    assert len(set(names)) == len(names) == len(kinds)


def test_meshes_have_no_place_among_the_tests_over_sizes(model: RunModel) -> None:
    assert [test.test for test in model.tests] == ["PingPong"]
    assert all("mesh" not in section.id for section in gallery.sections(model))


def test_figures_of_the_source_are_drawn_once_with_its_names(model: RunModel) -> None:
    (section,) = redrawn.sections(model)
    ((_, drawn),) = section.links
    assert [figure.labels for figure in drawn] == [("25Gbps s-s",), ("OFED ib_write_bw",)]
    pingpong, throughput = (figure.spec["datasets"]["points"] for figure in drawn)
    assert [point["value"] for point in pingpong] == pytest.approx([500.0, 500.0])
    assert [(point["size"], point["value"]) for point in throughput] == list(TOTALS_MBPS.items())


def test_the_terminal_and_the_csv_have_the_mesh(model: RunModel) -> None:
    printed = io.StringIO()
    print_summary(Console(file=printed, width=160), model)
    assert "20.0 Mbps (10.0 Mbps to 30.0 Mbps)" in printed.getvalue()
    lines = summary_csv(model).splitlines()
    assert any(line.startswith("racks,network,mesh,soft-roce,write,throughput_mbps") for line in lines)


@pytest.mark.slow
def test_a_report_of_meshes_alone_is_written(model: RunModel, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, model.info, "# made up\n")
    store.append(*mesh("soft-roce", "write", 1.0))
    files = write_report(store)
    assert "Full mesh of connections" in files.page.read_text(encoding="utf-8")
    assert (tmp_path / "made-up" / "report" / "figures" / "mesh-network-racks.svg").exists()


def test_a_quote_in_the_name_of_a_series_is_not_read_as_syntax() -> None:
    info = dataclasses.replace(make_info("made-up", 1, 1, 8), links=LINKS, claims=())
    ((_, (figure,)),) = meshes.sections(RunModel(info, mesh("tcp", "openmpi-ob1", 1.0)))[0].links
    assert "'" in figure.labels[0]
    (strips,) = (layer for layer in figure.spec["layer"] if layer.get("data") == {"name": "by_size"})
    shown = {tip["title"]: tip["field"] for tip in strips["encoding"]["tooltip"]}
    assert list(shown) == ["Servers", *figure.labels]
    assert all(field.isidentifier() for field in shown.values())
    first = figure.spec["datasets"]["by_size"][0]
    assert first[shown["Servers"]] == "2"
    assert first[shown[figure.labels[0]]] == "46.0 Mbps"
