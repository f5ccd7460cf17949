"""Flows that share a link: what is planned, what is started where, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError
from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.results import RunStore
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner, remaining
from rocelab.study.sharing_steps import SharingStep
from rocelab.study.tests.small import Seen, store

TEXT = """\
schema = 1
id = "shares"
title = "Shares"
repetitions = 1
time_limit_s = 20

[tcp]
congestion_control = ["cubic"]

[fabric]
nodes = 5

[[link]]
id = "shared"
kind = "bridge"
rate_mbps = 100
mtu_bytes = 4200
ecn_percent = 85

[[test]]
test = "sharing"
mixes = [{ soft-roce = 1, tcp = 2 }, { soft-roce = 2 }]
measured_s = 1
margin_s = 1

[test.variants]
soft-roce = ["write", "write-without-dcqcn"]
tcp = ["blocking"]
"""
MIBPS = 2**20 * 8 / 1e6


def steps(text: str = TEXT) -> list[SharingStep]:
    return [step for step in plan(parse(text, "shares.toml")) if isinstance(step, SharingStep)]


def mixed() -> SharingStep:
    return next(step for step in steps() if step.variant == "1xwrite+2xblocking@cubic")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "fabric" not in request.keywords:
        monkeypatch.setattr("rocelab.study.together.time.sleep", lambda _: None)


def report_of_iperf3(mbps: float) -> str:
    """Of a receiver, a second between margins of one."""
    sums = [{"start": at, "end": at + 1, "seconds": 1.0, "bytes": mbps * 1e6 / 8} for at in range(3)]
    return json.dumps({"intervals": [{"sum": each} for each in sums]})


def good(start: Start) -> Outcome:
    """Soft RoCE has 2 MiB/s, and each TCP 30 Mbps; one datagram of four is lost."""
    if "ask" in start.argv:
        return Outcome(stdout="[8.0, null, 6.0, 7.0]")
    if "--server" in start.argv:
        return Outcome(stdout=report_of_iperf3(30.0))
    return Outcome(stdout=" 65536 32 0.00 2.00 0.000032\n")


def run(
    folder: Path, answer: Callable[[Start], Outcome] = good, step: SharingStep | None = None
) -> tuple[RunStore, FakeLauncher]:
    step = step or mixed()
    made, launcher = store(folder), FakeLauncher(answer)
    Runner(made, FakeFabric((step.link,), node_count=5), launcher, Seen(), {}).run([step])
    return made, launcher


def test_each_variant_of_a_kind_is_in_each_mix() -> None:
    assert {(step.interconnect, step.variant) for step in steps()} == {
        ("soft-roce+tcp", "1xwrite+2xblocking@cubic"),
        ("soft-roce+tcp", "1xwrite-without-dcqcn+2xblocking@cubic"),
        ("soft-roce", "2xwrite"),
        ("soft-roce", "2xwrite-without-dcqcn"),
    }


def test_kinds_of_a_mix_have_one_congestion_control() -> None:
    text = TEXT.replace('["cubic"]', '["cubic", "bbr"]').replace("tcp = 2", "tcp = 1, soft-iwarp = 1")
    variants = {step.variant for step in steps(text + 'soft-iwarp = ["write"]\n') if "tcp" in step.interconnect}
    assert {variant for variant in variants if "dcqcn" not in variant} == {
        "1xwrite+1xblocking+1xwrite@cubic",
        "1xwrite+1xblocking+1xwrite@bbr",
    }


def test_each_flow_has_a_node_of_its_own_and_another_asks_for_the_queue(tmp_path: Path) -> None:
    _, launcher = run(tmp_path)
    assert launcher.controls == [("shared", "cubic", 5)]
    programs = [(start.node.name, next(w for w in start.argv if w in PROGRAMS)) for start in launcher.starts[:8]]
    assert programs == [
        *(("node0", name) for name in ("ib_write_bw", "iperf3", "iperf3")),
        *(("node1", "ib_write_bw"), ("node2", "iperf3"), ("node3", "iperf3")),
        *(("node0", "answer"), ("node4", "ask")),
    ]
    assert "10.80.0.1" in launcher.starts[7].argv
    assert launcher.running[6].stopped


PROGRAMS = ("ib_write_bw", "iperf3", "answer", "ask")


def test_without_dcqcn_both_ends_are_told_so(tmp_path: Path) -> None:
    step = next(each for each in steps() if each.variant == "2xwrite-without-dcqcn")
    _, launcher = run(tmp_path, step=step)
    ends = [start.argv for start in launcher.starts if "ib_write_bw" in start.argv]
    assert {argv[:2] for argv in ends} == {("env", "URXE_DCQCN=off")}
    assert len(ends) == 4


def test_the_samples_are_of_each_flow_and_of_the_queue(tmp_path: Path) -> None:
    made, _ = run(tmp_path)
    found = {(each.metric, each.statistic): each.value for each in made.samples() if "events" not in each.metric}
    assert found.pop(("wire_mbps", "total"))
    assert found == {
        ("throughput_mbps", "total"): pytest.approx(2 * MIBPS + 60),
        ("flow_mbps", "soft-roce 1"): pytest.approx(2 * MIBPS),
        ("flow_mbps", "tcp 1"): pytest.approx(30),
        ("flow_mbps", "tcp 2"): pytest.approx(30),
        ("round_trip_ms", "median"): 7.0,
        ("round_trip_ms", "p99"): 7.0,
        ("round_trip_ms", "min"): 6.0,
        ("round_trips_lost_percent", "total"): 25.0,
    }
    assert {(each.test, each.nodes, each.ranks, each.level) for each in made.samples()} == {
        ("sharing", 5, 6, "network")
    }


def test_a_run_goes_on_with_the_mixes_that_are_missing_or_failed(tmp_path: Path) -> None:
    made, _ = run(tmp_path)
    assert remaining([mixed()], made) == []
    assert len(remaining(steps(), made)) == 3

    def silent(start: Start) -> Outcome:
        return Outcome(stdout="[null, null]") if "ask" in start.argv else good(start)

    failed, _ = run(tmp_path / "failed", silent)
    assert [each.error for each in failed.samples()] == ["none of 2 datagrams that ask for the queue came back"]
    assert remaining([mixed()], failed) == [mixed()]


def test_a_flow_that_fails_or_hangs_fails_its_mix_and_ends_the_others(tmp_path: Path) -> None:
    def hanging(start: Start) -> Outcome:
        return Outcome(hangs=True) if start.node.name == "node2" else good(start)

    made, launcher = run(tmp_path, hanging)
    (sample,) = made.samples()
    assert (sample.error or "").startswith("1 of 3 connections failed; node2 to node0: the client hung")
    assert all(running.finished is not None for running in launcher.running)


@pytest.mark.parametrize(
    ("is_there", "bad", "key", "says"),
    [
        ("nodes = 5", "nodes = 4", "test[1].mixes[1]", "3 flows take 5 nodes: a sender for each"),
        ("{ soft-roce = 2 }", "{ soft-rose = 2 }", "test[1].mixes[2].soft-rose", "did you mean 'soft-roce'?"),
        ("{ soft-roce = 2 }", "{ soft-roce = 0 }", "test[1].mixes[2].soft-roce", "greater than or equal to 1"),
        ("{ soft-roce = 2 }", "{ tcp = 2, soft-roce = 1 }", "test[1].mixes[2]", "twice: 1 soft-roce and 2 tcp"),
        ("soft-roce = 1, tcp = 2", "soft-roce = 1", "test[1].variants.tcp", "no mix of this test has it"),
        ("rate_mbps = 100\n", "", "test[1].links", "shared has no rate_mbps"),
        ("mixes =", "mixs =", "test[1].mixs", "did you mean 'mixes'?"),
        ('tcp = ["blocking"]', 'tcp = ["spin"]', "test[1].variants.tcp", "unknown variant of tcp for sharing"),
        ("measured_s = 1\n", "measured_s = 1\nnodes = 5\n", "test[1].nodes", "unknown key 'nodes'"),
    ],
)
def test_mistakes_are_told(is_there: str, bad: str, key: str, says: str) -> None:
    without_marks = TEXT.replace("ecn_percent = 85\n", "")
    with pytest.raises(StudyError) as caught:
        parse(without_marks.replace(is_there, bad), "shares.toml")
    problems = {problem.key: problem.text for problem in caught.value.problems}
    assert says in problems[key]


def test_a_direct_link_has_too_few_nodes() -> None:
    with pytest.raises(StudyError, match="shared is a direct link, which joins the first two nodes"):
        parse(TEXT.replace("ecn_percent = 85\n", "").replace('"bridge"', '"direct"'), "shares.toml")


@pytest.mark.fabric
@pytest.mark.slow
def test_real_programs_share_a_real_link(tmp_path: Path) -> None:
    planned = steps(TEXT.replace("margin_s = 1", "margin_s = 2"))
    missing = [each.name for step in planned for each in step.executables if each.path is None]
    if missing:
        pytest.skip(f"programs are missing: {', '.join(missing)}")
    made = store(tmp_path)
    try:
        with emulated.up([planned[0].link], emulated.default_names(5)) as fabric:
            Runner(made, fabric, NamespaceLauncher(fabric), Seen(), {}).run(planned)
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    samples = made.samples()
    busy = [sample.error for sample in samples if "Give the test a larger margin_s" in (sample.error or "")]
    if busy:
        pytest.skip(f"the machine is too busy: {busy[0]}")
    assert [sample.error for sample in samples if not sample.ok] == []
    totals = [sample.value or 0.0 for sample in samples if sample.metric == "throughput_mbps"]
    # How much of the cable is for the machine to say.
    assert len(totals) == 4
    assert all(0 < total < 100 for total in totals)
    marked = {each.variant: each.value or 0.0 for each in samples if each.metric == "events_marked"}
    assert marked["2xwrite"] > 0
    assert marked["2xwrite-without-dcqcn"] == 0
