"""MPI programs under SimGrid: the platform, what a study may ask for, and runs of a small one."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rocelab import profiles
from rocelab.results import Provenance, RunInfo, RunStore, Sample
from rocelab.study.problems import StudyError
from rocelab.study.steps import Step
from rocelab.tools import rocelab_mpi
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.loading import parse
from rocelab.virtual.runner import VirtualRunner
from rocelab.virtual.scenario import scenario
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.simulator import simulate, simulator
from rocelab.virtual.smpi.jobs import JobSimulator
from rocelab.virtual.smpi.platform import hostfile, options, platform, rates
from rocelab.virtual.smpi.steps import SmpiStep
from rocelab.virtual.steps import VirtualStep, plan
from rocelab.virtual.under_way import UnderWay

SMALL = """
schema = 1
id = "small"
title = "Small"
fabric = { kind = "virtual", host = "sandy-bridge-ep" }

[[link]]
id = "sx6036"
topology = "one-switch"
switches = ["sx6036-infiniband", "sx6036-ethernet"]

[[test]]
level = "nas"
mpi = "mvapich2-1.8"
programs = ["is"]
classes = ["S"]
nodes = 2
ranks_per_node = 2
calibration = { adapter = "infiniband-qdr", time_s = { "is.S" = 0.01 } }

[test.variants]
infiniband-qdr = ["smpi"]
roce-10g = ["smpi"]

[[test]]
level = "mpi"
mpi = "mvapich2-1.8"
test = "latency"
sizes_bytes = [1, 2, 4, 8]

[test.variants]
infiniband-qdr = ["smpi"]
"""
#: The packet simulator's tests of the same adapters.
PACKETS = """
schema = 1
id = "packets"
title = "Packets"
fabric = { kind = "virtual", host = "sandy-bridge-ep" }

[[link]]
id = "sx6036"
topology = "one-switch"
switches = ["sx6036-infiniband", "sx6036-ethernet"]

[[test]]
test = "bandwidth"
sizes_bytes = [1048576]

[test.variants]
infiniband-qdr = ["write"]
infiniband-fdr = ["write"]
roce-10g = ["write"]
roce-40g = ["write"]

[[test]]
test = "bidirectional-bandwidth"
sizes_bytes = [131072]

[test.variants]
infiniband-qdr = ["write"]

[[test]]
test = "latency"
sizes_bytes = [1]

[test.variants]
infiniband-qdr = ["send"]
roce-10g = ["send"]
"""
ADAPTERS = ["infiniband-qdr", "infiniband-fdr", "roce-10g", "roce-40g"]


def study(text: str = SMALL) -> VirtualStudy:
    return parse(text, "study.toml")


def jobs(text: str = SMALL) -> list[SmpiStep]:
    return [step for step in plan(study(text)) if isinstance(step, SmpiStep)]


def test_a_platform_has_nodes_cables_and_memory() -> None:
    step = jobs()[0]
    root = ET.fromstring(platform(step.rates, profiles.host(step.host), step.mpi, 4, 1.5e9))
    hosts = root.findall("./zone/host")
    assert [host.get("id") for host in hosts] == ["node-0", "node-1", "node-2", "node-3"]
    assert {(host.get("speed"), host.get("core")) for host in hosts} == {("1.5e+09f", "16")}
    routes = [(route.get("src"), route.get("dst")) for route in root.findall("./zone/route")]
    assert len(set(routes)) == 4 + 6, "each with itself, and each pair once: SimGrid turns them round"
    across = root.find("./zone/route[@src='node-0'][@dst='node-2']")
    assert across is not None
    assert [(link.get("id"), link.get("direction")) for link in across] == [
        ("node-0-bus", None), ("node-0-cable", "UP"), ("node-2-cable", "DOWN"), ("node-2-bus", None)
    ]  # fmt: skip
    assert hostfile(2, 2).split() == ["node-0", "node-0", "node-1", "node-1"]


def test_the_rates_are_those_of_the_packet_simulator() -> None:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    verbs, host = profiles.stack("verbs"), profiles.host("sandy-bridge-ep")
    for step in plan(study(PACKETS)):
        assert isinstance(step, VirtualStep)
        ours = rates(step.adapter, host, verbs, step.network.switch_for(step.adapter), 25)
        outcome = simulate(scenario(step))
        if step.test.test == "latency":
            assert ours.latency_ns == pytest.approx(outcome["latencies_ns"][0], rel=0.05), step.interconnect
        else:
            rate_gbps = ours.port_gbps if step.test.test == "bandwidth" else ours.bus_gbps
            # Where both directions share a bus, the packets leave gaps that flows do not.
            assert rate_gbps == pytest.approx(outcome["throughput_gbps"], rel=0.03), step.interconnect


def test_every_rdma_adapter_has_rates_in_the_order_of_its_link() -> None:
    host, verbs = profiles.host("sandy-bridge-ep"), profiles.stack("verbs")
    link = study().link[0]
    found = [
        rates(profiles.adapter(name), host, verbs, link.switch_for(profiles.adapter(name)), 25) for name in ADAPTERS
    ]
    qdr, fdr, ten, forty = (each.port_gbps for each in found)
    assert ten < 10 < qdr < 32 < forty < 40 < fdr < 54.5
    assert 0.9 < found[1].latency_ns / 1000 < found[0].latency_ns / 1000 < found[3].latency_ns / 1000 < 2


def test_an_mpi_library_is_configuration_of_simgrid() -> None:
    chosen = options(profiles.mpi("mvapich2-1.8"))
    assert chosen["smpi/simulate-computation"] == "no", "nothing is measured, so that it says the same each time"
    assert chosen["smpi/coll-selector"] == "mvapich2"
    assert chosen["smpi/lat-factor"] == "0:1;17408:3"


@pytest.mark.parametrize(
    ("old", "new", "place", "what"),
    [
        ('programs = ["is"]', 'programs = ["is", "bt"]', "test[1].calibration.time_s", "bt.S is missing"),
        ("ranks_per_node = 2", "ranks_per_node = 3", "test[1].programs", "is runs on 1, 2, 4, 8, ..."),
        ("ranks_per_node = 2", "ranks_per_node = 32", "test[1].ranks_per_node", "more than the cores"),
        ('mpi = "mvapich2-1.8"\nprograms', 'mpi = "mvapich"\nprograms', "test[1].mpi", "did you mean 'mvapich2-1.8'?"),
        ("sandy-bridge-ep", "nehalem-ep", "test[1].mpi", "does not say how many cores"),
        ('adapter = "infiniband-qdr"', 'adapter = "qdr"', "test[1].calibration.adapter", "unknown adapter"),
        ('roce-10g = ["smpi"]', 'roce-10g = ["mpi"]', "test[1].variants.roce-10g", '"mpi" is not known'),
        ('roce-10g = ["smpi"]', 'urxe-udp = ["smpi"]', "test[1].variants.urxe-udp", "urxe-udp is software"),
        ('"sx6036-infiniband", ', "", "test[1].variants.infiniband-qdr", "has no such switch"),
        ("sizes_bytes = [1, 2, 4, 8]", "sizes_bytes = [1, 3]", "test[2].test", "rocelab-mpi"),
        ("ranks_per_node = 2", "ranks = 2", "test[1].ranks", "unknown key 'ranks'"),
        ('level = "nas"', 'level = "cloud"', "test[1].level", "there is no such level"),
        ('"one-switch"\nswitches', '"fat-tree"\nradix = 4\nswitches', "test[1].variants", "simulated on one-switch"),
    ],
)  # fmt: skip
def test_what_cannot_be_simulated_is_said_before_anything_runs(old: str, new: str, place: str, what: str) -> None:
    assert old in SMALL
    with pytest.raises(StudyError) as caught:
        study(SMALL.replace(old, new))
    assert place in str(caught.value)
    assert what in str(caught.value)


def test_only_a_program_that_does_its_work_needs_memory() -> None:
    text = SMALL.replace('["is"]', '["ft"]').replace("is.S", "ft.C").replace('["S"]', '["C"]')
    assert jobs(text)[0].memory_bytes == 0
    assert jobs(text.replace("nodes = 2", "nodes = 2\nmodel = false"))[0].memory_bytes == 6 << 30
    assert jobs()[0].memory_bytes == (1 << 20) + 3 * 8192, "is sorts its keys in any case, and each process counts them"


class _Silent:
    def started(self, step: Step) -> None: ...

    def progressed(self, step: Step, simulated_ns: int, end_ns: int) -> None: ...

    def doing(self, what: str) -> None: ...

    def ended(self, step: Step, error: str | None) -> None: ...

    def replanned(self, steps: Sequence[Step], news: str) -> None: ...


def _store(folder: Path, text: str) -> tuple[RunStore, list[VirtualStep | FlowsStep | SmpiStep]]:
    if shutil.which("smpirun") is None:
        pytest.skip("smpirun is not installed: make setup")
    if rocelab_mpi.program("smpi", None).path is None:
        pytest.skip("rocelab-mpi is not built for SimGrid: make build")
    unknown = Provenance("", "", 1, 1, "", "", "", "", "")
    steps = plan(study(text))
    info = RunInfo("run", "small", "Small", "virtual", "running", "", 1, 1, (), unknown, len(steps))
    return RunStore.create(folder, info, text), steps


def _run(folder: Path, text: str) -> tuple[int, list[Sample]]:
    store, steps = _store(folder, text)
    outcome = VirtualRunner(store, _Silent(), {}).run(steps)
    return outcome.failed, store.samples()


def test_runs_repeat_and_a_calibrated_program_takes_its_time(tmp_path: Path) -> None:
    (failed, first), (_, second) = _run(tmp_path / "a", SMALL), _run(tmp_path / "b", SMALL)

    def timeless(sample: Sample) -> Sample:
        return dataclasses.replace(sample, started_at="", duration_s=0.0)

    assert failed == 0, [sample.error for sample in first]
    assert [timeless(sample) for sample in first] == [timeless(sample) for sample in second]
    time_s = {sample.interconnect: sample.value for sample in first if sample.metric == "time_s"}
    assert time_s["infiniband-qdr"] == pytest.approx(0.01, rel=0.001)
    assert 0.01 < (time_s["roce-10g"] or 0) < 0.011
    latency_us = {sample.size_bytes: sample.value for sample in first if sample.metric == "latency_us"}
    # 1.25 us of verbs, and a quarter at each end.
    assert 1.5 < (latency_us[1] or 0) < 1.9
    assert {sample.params.get("calibrated_on") for sample in first if sample.level == "nas"} == {"infiniband-qdr"}


def test_a_calibration_that_cannot_be_says_so(tmp_path: Path) -> None:
    failed, samples = _run(tmp_path, SMALL.replace("= 0.01", "= 0.00001"))
    assert failed == 2
    errors = {sample.error for sample in samples if not sample.ok}
    assert len(errors) == 1
    assert "is.S cannot be calibrated: on infiniband-qdr its messages alone take" in str(errors.pop())


def test_simulated_work_takes_as_long_as_work_that_is_done(tmp_path: Path) -> None:
    text = SMALL[: SMALL.rindex("[[test]]")].replace('["is"]', '["ft", "mg", "bt", "lu"]')
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(("calibration", "roce")))
    times_s = []
    for model in ("true", "false"):
        failed, samples = _run(tmp_path / model, text.replace("nodes = 2", f"nodes = 2\nmodel = {model}"))
        assert failed == 0, [sample.error for sample in samples]
        times_s.append({sample.test: sample.value for sample in samples if sample.metric == "time_s"})
        assert {sample.params["modelled"] for sample in samples} == {model == "true"}
    assert times_s[0] == times_s[1]
    assert len(times_s[0]) == 4


def test_what_is_under_way_ends_with_an_interruption(tmp_path: Path) -> None:
    text = SMALL.replace('["is"]', '["bt"]').replace('["S"]', '["C"]').replace("is.S", "bt.C")
    store, steps = _store(tmp_path, text)
    assert isinstance(steps[0], SmpiStep)
    under_way = UnderWay()
    simulator = JobSimulator(store, {}, under_way)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(simulator.execute, steps[0], 0)
        while not under_way.count:
            time.sleep(0.01)
        under_way.stop()
        _, error = job.result(timeout=20)
    assert "killed by signal 9" in str(error)
    assert "interrupted" in str(simulator.execute(steps[0], 1)[1])
