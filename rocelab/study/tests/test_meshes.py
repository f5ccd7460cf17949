"""Meshes: what is planned, what is started and in which order, and what a reading is worth."""

from __future__ import annotations

import dataclasses
import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LaunchError
from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.results import Sample
from rocelab.study.execution import Execution, Setting
from rocelab.study.loading import parse
from rocelab.study.meshes import MeshExecutor, MeshReading
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner
from rocelab.study.tests.small import Seen, store
from rocelab.study.together_steps import MeshStep

TEXT = """\
schema = 1
id = "meshes"
title = "Meshes"
repetitions = 1
time_limit_s = 20

[tcp]
congestion_control = ["cubic"]

[fabric]
nodes = 4

[[link]]
id = "racks"
kind = "two-level"
rate_mbps = 20
nodes_per_switch = 2

[[test]]
test = "mesh"
nodes = [3, 2]
size_bytes = 16384
depth = 1
measured_s = 1
margin_s = 1

[test.variants]
tcp = ["blocking"]
soft-roce = ["write"]
"""


def steps(text: str = TEXT) -> list[MeshStep]:
    return [step for step in plan(parse(text, "meshes.toml")) if isinstance(step, MeshStep)]


def soft_roce(nodes: int) -> MeshStep:
    return next(step for step in steps() if step.interconnect == "soft-roce" and step.nodes == nodes)


def good(start: Start) -> Outcome:
    """A client of a connection that moves 2 MiB/s."""
    return Outcome(stdout=" 16384 256 0.00 2.00 0.000128\n", cpu_user_s=0.25, cpu_system_s=0.25)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "fabric" not in request.keywords:
        monkeypatch.setattr("rocelab.study.together.time.sleep", lambda _: None)


def execute(
    answer: Callable[[Start], Outcome], step: MeshStep, log: Path | None = None, **launcher: object
) -> tuple[FakeLauncher, Execution[MeshReading]]:
    fake = FakeLauncher(answer, **launcher)  # type: ignore[arg-type]
    return fake, MeshExecutor(Setting(FakeFabric((step.link,), node_count=4), fake)).execute(step, log)


def test_meshes_grow_and_variants_take_turns() -> None:
    assert [(step.nodes, step.interconnect) for step in steps()] in (
        [(2, "tcp"), (2, "soft-roce"), (3, "soft-roce"), (3, "tcp")],
        [(2, "soft-roce"), (2, "tcp"), (3, "tcp"), (3, "soft-roce")],
    )
    assert soft_roce(3).key.ranks == 12


def test_every_node_sends_to_every_other_after_servers_are_there() -> None:
    launcher, done = execute(good, soft_roce(3))
    assert done.error is None
    servers, clients = launcher.starts[:6], launcher.starts[6:12]
    assert {(client.node.name, client.argv[-1]) for client in clients} == {
        (f"node{one}", f"10.80.0.{other + 1}") for one, other in itertools.permutations(range(3), 2)
    }
    ports = {(server.node.name, server.argv[server.argv.index("-p") + 1]) for server in servers}
    assert len(ports) == 6


def test_programs_are_held_until_all_are_there_and_start_together() -> None:
    launcher, _ = execute(good, soft_roce(3))
    for running in launcher.running[:12]:
        assert running.signals[:2] == [signal.SIGSTOP, signal.SIGCONT]
    tcp = next(step for step in steps() if step.interconnect == "tcp")
    launcher, _ = execute(good, tcp)
    for running in launcher.running[2:]:
        assert running.start.argv[:3] == ("sh", "-c", 'kill -STOP $$; exec "$@"')
        assert running.signals[0] == signal.SIGCONT


def test_a_reading_sums_up_what_each_node_sent_and_received() -> None:
    def uneven(start: Start) -> Outcome:
        columns = "4.00 0.000256" if start.node.name == "node1" else "2.00 0.000128"
        return Outcome(stdout=f" 16384 256 0.00 {columns}\n")

    _, done = execute(uneven, soft_roce(3))
    assert done.reading is not None
    mbps = 2 * 2**20 * 8 / 1e6
    assert done.reading.sent_mbps == pytest.approx((2 * mbps, 4 * mbps, 2 * mbps))
    assert done.reading.received_mbps == pytest.approx((3 * mbps, 2 * mbps, 3 * mbps))


def test_more_than_left_the_nodes_was_not_measured_at_once() -> None:
    _, done = execute(good, soft_roce(3), counters=itertools.repeat(0))
    assert done.reading is None
    assert done.error is not None
    assert "they did not all measure at the same time" in done.error


def test_a_connection_that_fails_fails_the_mesh_and_is_named(tmp_path: Path) -> None:
    def broken(start: Start) -> Outcome:
        if start.node.name == "node2" and start.argv[-1] == "10.80.0.1":
            return Outcome(exit_status=1, stderr="Unable to init the socket connection")
        return good(start)

    _, done = execute(broken, soft_roce(3), tmp_path / "log")
    assert done.reading is None
    assert done.error is not None
    assert done.error.startswith("1 of 6 connections failed; node2 to node0: the client ended with exit status 1")


def test_a_connection_that_waited_is_idle_and_many_fail_the_mesh() -> None:
    def waiting(start: Start, nodes: int = 1) -> Outcome:
        if start.node.index < nodes and start.argv[-1] == "10.80.0.4":
            return Outcome(stdout=" 16384 0 0.00 0.00 0.000000\n")
        return good(start)

    step = dataclasses.replace(soft_roce(3), nodes=4)
    _, done = execute(lambda start: waiting(start, 3), step)
    assert done.error == "3 of 12 connections moved nothing in 1 s"
    step = dataclasses.replace(step, nodes=8)
    fabric = FakeFabric((step.link,), node_count=8)
    reading = MeshExecutor(Setting(fabric, FakeLauncher(waiting))).execute(step, None).reading
    assert reading is not None
    assert reading.moved.idle == 1


def test_a_hang_ends_with_everything_stopped() -> None:
    def hanging(start: Start) -> Outcome:
        return Outcome(hangs=True) if start.argv[-1] == "10.80.0.1" else good(start)

    launcher, done = execute(hanging, soft_roce(2))
    assert done.hung
    assert "the client hung and was stopped" in (done.error or "")
    assert all(running.finished is not None for running in launcher.running)


def test_the_samples_are_of_the_mesh_and_of_every_node(tmp_path: Path) -> None:
    step = soft_roce(3)
    run = store(tmp_path)
    Runner(run, FakeFabric((step.link,), node_count=4), FakeLauncher(good), Seen(), {}).run([step])
    samples = run.samples()
    assert {(sample.nodes, sample.test, sample.level, sample.ok) for sample in samples} == {
        (3, "mesh", "network", True)
    }
    by_name = {(sample.metric, sample.statistic): sample.value for sample in samples}
    total = by_name["throughput_mbps", "total"]
    assert total == pytest.approx(6 * 2 * 2**20 * 8 / 1e6)
    assert by_name["node_throughput_mbps", "mean"] == pytest.approx(by_name["sent_mbps", "node2"])
    assert samples[0].params["connections"] == 6
    assert samples[0].params["cpu_s"] == pytest.approx(12 * 0.5)


def test_in_an_incast_all_send_to_the_first_and_it_is_not_slow(tmp_path: Path) -> None:
    step = dataclasses.replace(soft_roce(3), test="incast")
    run = store(tmp_path)
    launcher = FakeLauncher(good)
    Runner(run, FakeFabric((step.link,), node_count=4), launcher, Seen(), {}).run([step])
    assert [start.node.name for start in launcher.starts[:4]] == ["node0", "node0", "node1", "node2"]
    assert {start.argv[-1] for start in launcher.starts[2:4]} == {"10.80.0.1"}
    samples = run.samples()
    assert {(sample.test, sample.nodes, sample.ranks) for sample in samples} == {("incast", 3, 4)}
    by_name = {(sample.metric, sample.statistic): sample.value for sample in samples}
    mbps = 2 * 2**20 * 8 / 1e6
    assert by_name["received_mbps", "node0"] == pytest.approx(2 * mbps)
    assert by_name["sent_mbps", "node0"] == 0
    assert by_name["node_throughput_mbps", "min"] == pytest.approx(mbps)


def test_counters_that_grew_tell_what_happened_to_packets(tmp_path: Path) -> None:
    def counting(start: Start) -> Outcome:
        if "stat" not in start.argv:
            return good(start)
        counters = {"out_of_buffer": 4, "rx_packets": 1000} if start.node.name == "node0" else {}
        return Outcome(stdout=json.dumps({"processes": [{"devices": [{"counters": counters}]}]}))

    step = dataclasses.replace(soft_roce(3), test="incast")
    run = store(tmp_path)
    readings = [{"tcp.RetransSegs": 5, "interface.rx_dropped": 1}, {"tcp.RetransSegs": 7, "interface.rx_dropped": 1}]
    launcher = FakeLauncher(counting, events={"node2": iter(readings)})
    Runner(run, FakeFabric((step.link,), node_count=4), launcher, Seen(), {}).run([step])
    found = {(each.metric, each.statistic): each.value for each in run.samples() if each.metric.startswith("events_")}
    assert found == {
        ("events_paused", "total"): 0,
        ("events_marked", "total"): 0,
        ("events_resent", "total"): 2,
        ("events_lost", "total"): 4,
        ("events_resent.tcp.RetransSegs", "node2"): 2,
        ("events_lost.urxe.out_of_buffer", "node0"): 4,
    }


def test_a_mesh_counts_where_nothing_is_known_of_its_packets() -> None:
    def without_stat(start: Start) -> Outcome:
        if "stat" in start.argv:
            raise LaunchError(f"{start.node.name}: there is no urxe")
        return good(start)

    _, done = execute(without_stat, soft_roce(3))
    assert done.reading is not None
    assert done.reading.moved.events == ({}, {}, {})


@pytest.mark.parametrize(
    ("good_text", "bad", "key", "says"),
    [
        ("nodes = [3, 2]", "nodes = [5]", "test[1].nodes", "5 is more than the fabric has"),
        ("nodes = [3, 2]", "nodes = [1]", "test[1].nodes[1]", "greater than or equal to 2"),
        (
            '"mesh"\nnodes = [3, 2]',
            '"bisection"\nnodes = [2, 3]',
            "test[1].nodes",
            "3 nodes have not: take an even",
        ),
        ("nodes = [3, 2]", "nods = [3]", "test[1].nods", "did you mean 'nodes'?"),
        (
            'soft-roce = ["write"]',
            'soft-roce = ["send"]',
            "test[1].variants.soft-roce",
            "Allowed: write, write-",
        ),
        (
            'kind = "two-level"\nrate_mbps = 20\nnodes_per_switch = 2',
            'kind = "direct"',
            "test[1].links",
            "racks is a direct link, which joins the first two nodes, and this test is about 3",
        ),
    ],
)
def test_mistakes_in_a_mesh_are_told(good_text: str, bad: str, key: str, says: str) -> None:
    with pytest.raises(StudyError) as caught:
        parse(TEXT.replace(good_text, bad), "meshes.toml")
    problems = {problem.key: problem.text for problem in caught.value.problems}
    assert says in problems[key]


@pytest.mark.fabric
@pytest.mark.slow
def test_real_programs_fill_a_small_mesh(tmp_path: Path) -> None:
    study = parse(TEXT.replace("nodes = [3, 2]", "nodes = [4]").replace("margin_s = 1", "margin_s = 2"), "meshes.toml")
    planned = plan(study)
    missing = [each.name for step in planned for each in step.executables if each.path is None]
    if missing:
        pytest.skip(f"programs are missing: {', '.join(missing)}")
    run = store(tmp_path)
    try:
        with emulated.up([link.profile() for link in study.link], emulated.default_names(4)) as fabric:
            Runner(run, fabric, NamespaceLauncher(fabric), Seen(), {}).run(planned)
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    _check_real(run.samples())


def _check_real(samples: list[Sample]) -> None:
    busy = [sample.error for sample in samples if "Give the test a larger margin_s" in (sample.error or "")]
    if busy:
        pytest.skip(f"the machine is too busy: {busy[0]}")
    assert [sample.error for sample in samples if not sample.ok] == []
    totals = {sample.interconnect: sample.value for sample in samples if sample.metric == "throughput_mbps"}
    assert set(totals) == {"tcp", "soft-roce"}
    counted = {(sample.interconnect, sample.metric) for sample in samples if sample.statistic == "total"}
    kinds = ("lost", "paused", "marked", "resent")
    assert counted >= {(name, f"events_{kind}") for name in totals for kind in kinds}
    # Four cables of 20 Mbps; how much of it is for the machine to say.
    assert all(0 < (total or 0.0) < 80 for total in totals.values())
