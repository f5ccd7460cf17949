"""What the report says of links that lose packets on purpose."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rocelab.report import losses
from rocelab.report.model import RunModel, link_title
from rocelab.report.tests.synthetic import make_run
from rocelab.results import DROPPED_PARAM

#: How many packets each measurement over the second link is made to have lost.
EACH = 3


def with_loss(root: Path) -> RunModel:
    store = make_run(root, repetitions=2, sizes_bytes=(64, 1024), failures=False)
    links = (store.info.links[0], dataclasses.replace(store.info.links[1], loss_percent=0.1))
    samples = [
        dataclasses.replace(each, params={**each.params, DROPPED_PARAM: EACH}) if each.link == links[1].id else each
        for each in store.samples()
    ]
    return RunModel(dataclasses.replace(store.info, links=links), samples)


def test_the_packets_that_were_dropped_are_summed_up_for_each_interconnect(tmp_path: Path) -> None:
    model = with_loss(tmp_path)
    table = losses.table(model)
    assert table is not None
    steps = {each.order: each.interconnect for each in model.samples if each.link == "ethernet-1g"}
    expected = {
        name: (f"{count:,}", f"{EACH * count:,}", "0")
        for name in ("tcp", "soft-roce")
        if (count := list(steps.values()).count(name))
    }
    assert {row[1]: row[2:] for row in table.rows} == expected
    assert all("0.1 % of packets dropped on purpose" in row[0] for row in table.rows)
    assert f"{EACH * len(steps):,} packets" in table.caption


def test_a_link_that_loses_packets_says_so_in_its_title(tmp_path: Path) -> None:
    titles = {link.id: link_title(link) for link in with_loss(tmp_path).links}
    assert "0.1 % loss" in titles["ethernet-1g"]
    assert "loss" not in titles["direct"]


def test_a_run_without_such_links_has_no_table(tmp_path: Path) -> None:
    assert losses.table(RunModel.of(make_run(tmp_path, repetitions=1, sizes_bytes=(64,)))) is None
