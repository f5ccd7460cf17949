"""Programs of one's own that are a server and a client, or one on each node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.results import Sample
from rocelab.study.loading import parse
from rocelab.study.own_steps import OwnStep
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner
from rocelab.study.tests import small

TEXT = """\
schema = 1
id = "own"
title = "Programs of one's own"
repetitions = 1
time_limit_s = 5

[tcp]
congestion_control = ["default"]

[fabric]
nodes = 3

[[link]]
id = "eth"
kind = "bridge"

[[test]]
level = "program"
test = "ask"
run = "pair"
server = ["serve", "{port}"]
command = ["ask", "{server}", "{port}", "{how}", "{device}"]
metric = { name = "rate", unit = "1/s", regex = "([0-9]+) a second" }
words = { tcp = { how = "sockets" }, soft-roce = { how = "verbs" } }

[test.variants]
tcp = ["sockets"]
soft-roce = ["verbs", "rsockets"]

[[test]]
level = "program"
test = "all"
run = "nodes"
command = ["worker", "{rank}", "{nodes}", "{first}"]

[test.variants]
tcp = ["sockets"]
"""


def good(start: Start) -> Outcome:
    return Outcome(stdout="12 a second", wall_s=2.0 + start.node.index, hangs="serve" in start.argv)


def run(tmp_path: Path, answer: Callable[[Start], Outcome]) -> tuple[list[Sample], FakeLauncher]:
    study = parse(TEXT, "own.toml")
    steps = [step for step in plan(study) if isinstance(step, OwnStep)]
    launcher = FakeLauncher(answer)
    fabric = FakeFabric(tuple(link.profile() for link in study.link), node_count=3)
    with closing(small.store(tmp_path)) as store:
        Runner(store, fabric, launcher, small.Seen(), {}).run(steps)
        return store.samples(), launcher


def test_the_client_knows_that_the_server_is_on_the_second_node(tmp_path: Path) -> None:
    samples, launcher = run(tmp_path, good)
    assert {sample.value for sample in samples if sample.test == "ask"} == {12.0}
    tcp = next(start for start in launcher.starts if start.argv[0] == "ask")
    assert tcp.node.name == "node0"
    assert tcp.argv[1] == "10.80.0.2"
    assert tcp.argv[3:] == ("sockets", "")
    server = next(start for start in launcher.starts if start.argv[0] == "serve")
    assert (server.node.name, server.argv[1]) == ("node1", tcp.argv[2])


def test_verbs_get_their_device_and_rsockets_their_library(tmp_path: Path) -> None:
    _, launcher = run(tmp_path, good)
    verbs = [start for start in launcher.starts if "ask" in start.argv and "verbs" in start.argv]
    assert all(start.argv[1:3] == ("run", "--") for start in verbs)
    assert all(start.argv[-1] == "urxe_eth0" for start in verbs)
    assert sorted("LD_PRELOAD" in start.env for start in verbs) == [False, True]


def test_on_each_node_it_runs_and_the_slowest_counts(tmp_path: Path) -> None:
    samples, launcher = run(tmp_path, good)
    (sample,) = [each for each in samples if each.test == "all"]
    assert (sample.metric, sample.unit, sample.value) == ("time_s", "s", 4.0)
    workers = [start.argv[1:] for start in launcher.starts if start.argv[0] == "worker"]
    assert workers == [("0", "3", "10.80.0.1"), ("1", "3", "10.80.0.1"), ("2", "3", "10.80.0.1")]


def test_a_worker_that_fails_is_named_with_its_node(tmp_path: Path) -> None:
    def failing(start: Start) -> Outcome:
        return Outcome(exit_status=2, stderr="no memory") if start.node.name == "node2" else good(start)

    samples, _ = run(tmp_path, failing)
    (sample,) = [each for each in samples if each.test == "all"]
    assert sample.error == "on node2 it ended with exit status 2: no memory"


def test_a_program_that_hangs_is_stopped_and_said(tmp_path: Path) -> None:
    samples, _ = run(tmp_path, lambda start: Outcome(hangs=True))
    assert all("it hung and was stopped after 5 s" in (sample.error or "") for sample in samples)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('server = ["serve", "{port}"]\n', "", r"test\[1\].server: the command line of the server"),
        ('name = "rate", ', 'name = "solve_s", ', r"metric.name: a time, and nothing else, has a name that ends"),
        ('regex = "([0-9]+) a second"', 'regex = "x", clock = "wall"', "one of regex, json and clock"),
        ('tcp = ["sockets"]\nsoft', 'tcp = ["verbs"]\nsoft', "unknown variant of tcp for a program"),
        ('run = "nodes"', 'run = "node"', 'allowed: "mpi", "pair" or "nodes"'),
    ],
)
def test_what_is_wrong_is_said(old: str, new: str, words: str) -> None:
    with pytest.raises(StudyError, match=words):
        parse(TEXT.replace(old, new, 1), "own.toml")
