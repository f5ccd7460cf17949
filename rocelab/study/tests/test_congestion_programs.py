"""Every kind of program really has the congestion control of its step, at both ends, as the kernel lists it.

Of iWARP the server's end, too, which is accepted and not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError
from rocelab.launch.congestion import CongestionControls
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.study.execution import Setting
from rocelab.study.jobs import JobExecutor
from rocelab.study.loading import parse
from rocelab.study.pairs import PairExecutor
from rocelab.study.plan import plan
from rocelab.study.runner import Runner
from rocelab.study.steps import JobStep, PairStep, Step
from rocelab.study.tests import small
from rocelab.study.tests.watching import connections, controls_in

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(300)]

#: No machine's default, and in every kernel.
CONTROL = "reno"
TEXT = f"""\
schema = 1
id = "controls"
title = "Every TCP under one congestion control"
repetitions = 1
time_limit_s = 120

[tcp]
congestion_control = ["{CONTROL}"]

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "latency"
sizes_bytes = [1024]
point_ms = 500

[test.variants]
tcp = ["blocking", "busy-poll", "blocking-qperf"]
soft-iwarp = ["send", "write", "read", "send-events"]

[[test]]
test = "bandwidth"
sizes_bytes = [65536]
point_ms = 500

[test.variants]
tcp = ["blocking", "busy-poll", "no-delay", "blocking-iperf3"]
soft-iwarp = ["send", "write"]

[[test]]
level = "mpi"
test = "latency"
sizes_bytes = [1024]
iterations = 20000

[test.variants]
tcp = ["openmpi-ob1", "openmpi-ucx", "mpich-ofi", "mpich-ucx"]
soft-iwarp = ["mpich-ofi", "openmpi-ofi"]
"""
STEPS = plan(parse(TEXT, "controls.toml"))


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        made = emulated.up([STEPS[0].link])
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.test_name} {step.interconnect} {step.variant}")
def test_both_ends_have_the_congestion_control_of_the_step(fabric: emulated.EmulatedFabric, step: Step) -> None:
    missing = next((each for each in step.executables if each.path is None), None)
    if missing is not None:
        pytest.skip(f"{missing.name} is missing: {missing.advice}")
    launcher = NamespaceLauncher(fabric)
    CongestionControls(fabric.nodes, launcher).choose("direct", CONTROL)
    with connections(launcher, fabric.nodes) as seen:
        if isinstance(step, PairStep):
            pair = PairExecutor(Setting(fabric, launcher)).execute(step, None)
            assert pair.error is None
        else:
            assert isinstance(step, JobStep)
            job = JobExecutor(Setting(fabric, launcher)).execute(step, None)
            assert job.reading is not None
            assert job.reading.values, job.error
        assert seen.controls() == {node.name: {CONTROL} for node in fabric.nodes}


def test_iwarp_that_connects_while_tcp_is_measured_has_its_own_control(
    fabric: emulated.EmulatedFabric, tmp_path: Path
) -> None:
    steps = plan(parse(TEXT.replace(f'["{CONTROL}"]', f'["{CONTROL}", "cubic"]'), "controls.toml"))
    found = {(step.test_name, step.variant): step for step in steps if isinstance(step, PairStep)}
    # ib_write_bw sleeps for a second after it has connected: it is started before the first is
    # measured.
    turns = [found["bandwidth", name] for name in ("blocking@cubic", f"write@{CONTROL}", "no-delay@cubic")]
    missing = next((each for step in turns for each in step.executables if each.path is None), None)
    if missing is not None:
        pytest.skip(f"{missing.name} is missing: {missing.advice}")
    launcher = NamespaceLauncher(fabric)
    with connections(launcher, fabric.nodes) as seen:
        runner = Runner(small.store(tmp_path), fabric, launcher, small.Seen(), {})
        assert runner.run(turns).failed == 0
        assert seen.controls_of("ib_write_bw") == {node.name: {CONTROL} for node in fabric.nodes}
        assert seen.controls_of("rocelab-sock") == {node.name: {"cubic"} for node in fabric.nodes}


def test_connections_within_a_node_are_not_of_its_link() -> None:
    listing = """\
ESTAB 0      0           127.0.0.1:43908      127.0.0.1:48977 bbr wscale:10,10 rto:204
ESTAB 0      0           10.80.0.1:40001      10.80.0.1:9000  bbr wscale:10,10 rto:204
ESTAB 0      0  [::ffff:10.80.0.1]:40001 [::ffff:10.80.0.1]:9000  bbr wscale:10,10 rto:204
ESTAB 0      0  [::ffff:10.80.0.1]:40001 [::ffff:10.80.0.2]:9000  reno wscale:10,10 rto:204
ESTAB 0      0      [fd52:6f63::1]:35971 [fd52:6f63::2]:1024  cubic wscale:10,10 rto:204
"""
    assert controls_in(listing) == {"reno", "cubic"}
