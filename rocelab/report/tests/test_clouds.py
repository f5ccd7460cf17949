"""The level cloud in the report: its tables, and the figures of the sources, which go over workloads and over time."""

from __future__ import annotations

import dataclasses
from typing import Any

from rocelab.claims.tests.test_claims import INFO, sample
from rocelab.report import clouds, gallery, redrawn
from rocelab.report.catalogue import GROUP_STEP
from rocelab.report.gallery import Figure
from rocelab.report.model import RunModel
from rocelab.results import LinkInfo, Sample

LINKS = ("ipoib-fdr", "ipoib-qdr", "sockets-40gige", "sockets-10gige")
WORKLOADS = {"get": ("read",), "put": ("update",), "mix": ("read", "update")}


def cloud(value: float, **changes: Any) -> Sample:
    fields: dict[str, Any] = {"level": "cloud", "interconnect": "tcp", "nodes": 4, "ranks": 3, "size_bytes": 1000}
    return sample(value, **(fields | changes))


def model(samples: list[Sample], *claims: str) -> RunModel:
    links = tuple(LinkInfo(link, "bridge", 9000, 1000.0) for link in dict.fromkeys(each.link for each in samples))
    return RunModel(dataclasses.replace(INFO, links=links, claims=claims), samples)


def hbase() -> list[Sample]:
    made = []
    for speed, link in enumerate(LINKS, start=1):
        for workload, operations in WORKLOADS.items():
            of: dict[str, Any] = {"link": link, "test": f"ycsb-{workload}", "variant": "sockets"}
            made.append(cloud(1000.0 * speed, **of, metric="throughput_per_s", unit="1/s"))
            made += [
                cloud(100.0 * speed, **of, metric=f"{each}_latency_us", unit="us", statistic=statistic)
                for each in operations
                for statistic in ("mean", "p99")
            ]
    return made


def terasort() -> list[Sample]:
    of: dict[str, Any] = {"link": "server-25", "test": "terasort", "variant": "ucx", "interconnect": "soft-roce"}
    moments = [
        cloud(float(10 * at + node), **of, metric="node_sent_mbps", statistic=f"node{node}@{at}.25")
        for at in range(3)
        for node in (1, 2)
    ]
    return [*moments, cloud(9.0, **of, metric="terasort_s", unit="s", statistic="total")]


def drawn(run: RunModel) -> dict[str, Figure]:
    found = [figure for section in redrawn.sections(run) for _, made in section.links for figure in made]
    return {figure.name: figure for figure in found}


def test_the_figures_of_hbase_go_over_workloads() -> None:
    figures = drawn(model(hbase(), "V14"))
    assert set(figures) == {"vienne2012-figure-7a", "vienne2012-figure-7b", "vienne2012-figure-8"}
    throughput = figures["vienne2012-figure-8"]
    table = throughput.tables[0]
    assert table.head == ("Workload", "Sockets (10 GigE)", "Sockets (40 GigE)", "IPoIB (QDR)", "IPoIB (FDR)")
    assert [row[0] for row in table.rows] == ["100 % get", "100 % put", "get-put mix"]
    assert table.rows[0][-1] == "1.00 thousand/s"
    points = throughput.static_spec["datasets"]["points"]
    # Side by side, around the place of their workload.
    assert sorted(point["size"] for point in points if abs(point["size"] - GROUP_STEP) < 5) == [7, 9, 11, 13]


def test_terasorts_figure_has_a_line_for_each_node_over_time() -> None:
    figures = drawn(model(terasort(), "R7"))
    assert set(figures) == {"li2019-figure-10-1"}
    figure = figures["li2019-figure-10-1"]
    assert figure.title == "Figure 10: Throughput using Spark TeraSort, Soft RoCE"
    assert figure.tables[0].head == ("Time", "node1", "node2")
    assert figure.tables[0].rows[1] == ("1.2 s", "11.0 Mbps", "12.0 Mbps")


def test_sorts_on_other_numbers_of_workers_are_not_mixed_into_a_line() -> None:
    larger = [dataclasses.replace(each, nodes=5, ranks=4, value=(each.value or 0.0) + 500) for each in terasort()]
    figure = drawn(model([*terasort(), *larger], "R7"))["li2019-figure-10-1"]
    assert figure.tables[0].rows[1] == ("1.2 s", "11.0 Mbps", "12.0 Mbps")


def test_each_test_has_a_table_and_the_network_no_section() -> None:
    run = model(hbase() + terasort())
    tables = {table.caption: table for table in clouds.tables(run)}
    mix = tables["HBase, YCSB MIX: median (smallest to largest)"]
    assert mix.head == ("Link, transport", "Value size", "Operations", "Get latency", "Put latency")
    assert mix.rows[0] == ("ipoib-fdr, tcp sockets, 3 workers", "1000 B", "1.00 thousand/s", "100 µs", "100 µs")
    assert "Spark, TeraSort: median (smallest to largest)" in tables
    assert gallery.sections(run) == []
