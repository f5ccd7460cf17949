"""What ``urxe stat`` prints, summed up."""

from __future__ import annotations

import json

import pytest

from rocelab.tools import urxe_stat
from rocelab.tools.base import Executable


def test_counters_of_all_programs_and_devices_are_added_up() -> None:
    def process(*counters: dict[str, int]) -> object:
        return {"pid": 1, "devices": [{"device": "urxe_eth0", "counters": each, "qps": []} for each in counters]}

    printed = {
        "schema": 1,
        "processes": [process({"out_of_buffer": 2, "rx_packets": 9}, {"out_of_buffer": 1}), process({"rx_packets": 1})],
    }
    assert urxe_stat.read(json.dumps(printed)) == {"urxe.out_of_buffer": 3, "urxe.rx_packets": 10}
    assert urxe_stat.command(Executable("/opt/urxe")) == ["/opt/urxe", "stat", "--json"]


@pytest.mark.parametrize(
    "printed", ["", "no process of yours", "[]", '{"processes": [1]}', '{"processes": [{"pid": 1}]}']
)
def test_anything_else_counts_nothing(printed: str) -> None:
    assert urxe_stat.read(printed) == {}
