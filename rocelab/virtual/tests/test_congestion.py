"""Congestion control of simulated links: what a study says of it, and the scenario that comes of that."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

from rocelab.study.problems import StudyError
from rocelab.tools.base import ToolError
from rocelab.virtual.congestion import PARAMETERS, Algorithm
from rocelab.virtual.loading import parse
from rocelab.virtual.scenario import scenario
from rocelab.virtual.simulator import simulate, simulator
from rocelab.virtual.steps import VirtualStep, plan

STUDY = """
schema = 1
id = "marks"
title = "Marks"
fabric = { kind = "virtual", host = "sandy-bridge-ep" }

[[link]]
id = "switch"
topology = "one-switch"
switches = ["rg-s6500"]
ecn = true

[[test]]
test = "incast"
nodes = [3]
warmup_us = 0
measured_us = 50

[test.variants]
roce-25g = ["write"]
"""


def _made(said: str) -> dict[str, Any]:
    """The scenario of the study with these lines in place of `ecn = true`."""
    (step,) = plan(parse(STUDY.replace("ecn = true", said), "study.toml"))
    assert isinstance(step, VirtualStep)
    return scenario(step)


def test_marks_alone_mean_dcqcn_with_the_values_of_adapters() -> None:
    made = _made("ecn = true")
    control = made["host"]["congestion_control"]
    assert (control["algorithm"], control["raise_bytes"], control["gain_divisor"]) == ("dcqcn", 32_767_000, 205)
    assert made["switch"]["ecn"]["max_probability"] < 1
    assert "congestion_control" not in _made("")["host"]
    assert "congestion_control" not in _made('ecn = true\ncongestion_control = "none"')["host"]


def test_what_is_named_is_taken_with_its_parameters() -> None:
    made = _made(
        'congestion_control = "hpcc"\ncongestion_parameters = { additive_stages = 0, base_round_trip_ns = 9000 }'
    )
    assert made["host"]["congestion_control"] == {"algorithm": "hpcc", "additive_stages": 0}
    assert made["host"]["base_round_trip_ns"] == 9000
    assert made["switch"]["ecn"] is None


def test_dctcp_has_all_marked_from_one_length_on() -> None:
    marking = _made('ecn = true\ncongestion_control = "dctcp"')["switch"]["ecn"]
    assert marking == {"min_bytes_per_25g": 75_000, "max_bytes_per_25g": 75_000, "max_probability": 1.0}
    marking = _made("ecn = true\necn_step_bytes_per_25g = 5000")["switch"]["ecn"]
    assert (marking["min_bytes_per_25g"], marking["max_bytes_per_25g"]) == (5000, 5000)


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ('congestion_control = "dctcp"', r"study.toml:\d+: .*dctcp acts on marks.*ecn = true"),
        ('congestion_control = "hpc"', "hpcc"),
        ('ecn = true\ncongestion_control = "swift"\ncongestion_parameters = { hop_us = 1 }', "hop_us.*did you mean"),
        ("congestion_parameters = { gain = 1 }", "name the congestion_control"),
        ("ecn_step_bytes_per_25g = 5000", "without ecn = true no switch marks"),
    ],
)
def test_what_does_not_go_together_is_said(link: str, said: str) -> None:
    with pytest.raises(StudyError, match=said):
        parse(STUDY.replace("ecn = true", link), "study.toml")


@pytest.mark.parametrize(("old", "new"), [('["write"]', '["read"]'), ("roce-25g", "urxe-udp")])
def test_what_acts_on_acknowledgements_says_where_there_are_none(old: str, new: str) -> None:
    study = STUDY.replace("ecn = true", 'congestion_control = "timely"').replace(old, new)
    with pytest.raises(StudyError, match=r"acknowledgements|hardware"):
        parse(study, "study.toml")


@pytest.mark.skipif(shutil.which(simulator().name) is None, reason="rocelab-virtual is not built")
@pytest.mark.parametrize("algorithm", [name for name in PARAMETERS if name != "none"])
def test_the_simulator_knows_the_same_parameters(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    # A backtrace would be its last words.
    monkeypatch.setenv("RUST_BACKTRACE", "0")
    made = _made("ecn = true")
    made["host"]["congestion_control"] = {"algorithm": algorithm, "no_such": 1}
    with pytest.raises(ToolError, match="no_such") as error:
        simulate(made)
    assert set(re.findall(r"`(\w+)`", str(error.value))) - {"no_such"} == set(PARAMETERS[algorithm])
