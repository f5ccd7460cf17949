"""Studies of the virtual fabric: what their files may say, the scenarios that come of them, and a run of one."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocelab.claims import all_claims
from rocelab.results import Provenance, RunInfo, RunStore, Sample
from rocelab.study import catalogue
from rocelab.study.problems import StudyError
from rocelab.study.runner import remaining
from rocelab.study.steps import Step
from rocelab.virtual.loading import is_virtual, parse
from rocelab.virtual.runner import AnyStep, Found, VirtualRunner
from rocelab.virtual.scenario import scenario
from rocelab.virtual.simulator import simulator
from rocelab.virtual.steps import VirtualStep, link_info, plan

SMALL = """
schema = 1
id = "small"
title = "Small"
fabric = { kind = "virtual", host = "sandy-bridge-ep" }

[[link]]
id = "cable"
topology = "back-to-back"

[[link]]
id = "racks"
topology = "leaf-spine"
switches = ["rg-s6500"]
ecn = true
hosts_per_rack = 2
leaves_per_rack = 2
spines = 1
uplink_gbps = 100

[[test]]
test = "latency"
sizes_bytes = [1, 65536]
links = ["cable"]

[test.variants]
infiniband-qdr = ["send"]
roce-25g = ["send"]

[[test]]
test = "mesh"
nodes = [2, 4]
queue_pairs = 4
depth = 2
warmup_us = 100
measured_us = 200
series_us = 50
links = ["racks"]

[test.variants]
roce-25g-lag = ["write"]
"""


class SilentWatcher:
    def started(self, step: Step) -> None: ...

    def doing(self, what: str) -> None: ...

    def ended(self, step: Step, error: str | None) -> None: ...

    def replanned(self, steps: Sequence[Step], news: str) -> None: ...

    def progressed(self, step: Step, simulated_ns: int, end_ns: int) -> None: ...


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("roce-25g = ", "roce-52g = ", r"study.toml:\d+: test.*roce-52g: .*did you mean"),
        ('host = "sandy-bridge-ep"', 'host = "sandy"', "host profile"),
        ("spines = 1\n", "", "leaf-spine needs spines"),
        ('test = "mesh"', 'test = "mush"', "mush.*is not known; allowed: .*incast"),
        ("series_us", "series_ms", "series_ms.*did you mean"),
        ('["send"]\nroce', '["sent"]\nroce', "sent.*did you mean"),
        ('links = ["cable"]', 'links = ["racks"]', "infiniband-qdr is infiniband, and link racks has no such switch"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(old: str, new: str, said: str) -> None:
    assert old in SMALL
    with pytest.raises(StudyError, match=said):
        parse(SMALL.replace(old, new), "study.toml")


@pytest.mark.parametrize(
    "name",
    [
        "vienne2012",
        "lanl2010-virtual",
        "li2019-virtual",
        "li2019-beyond",
        "li2019-beyond-full",
        "calibration-virtual",
        "fct-websearch",
    ],
)
def test_every_virtual_study_of_ours_is_in_order(name: str) -> None:
    text = catalogue.files()[name].read_text(encoding="utf-8")
    assert is_virtual(text)
    claims = {claim.id for claim in all_claims()}
    assert parse(text, name, claims).id == name


def test_a_study_says_whether_it_is_virtual() -> None:
    assert is_virtual(SMALL)
    assert not is_virtual(SMALL.replace('"virtual"', '"emulated"'))
    assert not is_virtual("not TOML [")


def test_the_slower_of_adapter_and_slot_is_the_bus() -> None:
    steps = plan(parse(SMALL, "study.toml"))
    rates = {
        step.interconnect: scenario(step)["host"]["pcie"]["rate_gbps"]
        for step in steps
        if isinstance(step, VirtualStep)
    }
    assert rates["infiniband-qdr"] == pytest.approx(32.0)
    assert rates["roce-25g"] == pytest.approx(63.0, rel=0.001)


def test_a_link_has_a_rate_where_all_its_hosts_have_the_same() -> None:
    study = parse(SMALL, "study.toml")
    cable, racks = (link_info(study, link) for link in study.link)
    assert cable.rate_mbps is None
    assert racks.rate_mbps == pytest.approx(50_000)


def run_study(folder: Path, text: str = SMALL) -> list[Sample]:
    """The samples of a run of a study, whose files are in the folder. It has to end well."""
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    study = parse(text, "study.toml", folder=str(folder))
    unknown = Provenance("", "", 1, 1, "", "", "", "", "")
    info = RunInfo("run", "small", "Small", "virtual", "running", "", 1, 1, (), unknown, len(plan(study)))
    store = RunStore.create(folder, info, text)
    outcome = VirtualRunner(store, SilentWatcher(), {}).run(plan(study))
    assert outcome.failed == 0, [sample.error for sample in store.samples()]
    assert store.info.status == "complete"
    return store.samples()


def test_a_run_gives_the_same_samples_each_time(tmp_path: Path) -> None:
    first, second = run_study(tmp_path / "a"), run_study(tmp_path / "b")

    def timeless(sample: Sample) -> Sample:
        return dataclasses.replace(sample, started_at="", duration_s=0.0)

    assert [timeless(sample) for sample in first] == [timeless(sample) for sample in second]
    latency = {
        sample.interconnect: sample.value
        for sample in first
        if sample.size_bytes == 1 and sample.metric == "latency_us"
    }
    assert latency["infiniband-qdr"] is not None
    # 1 us from program to program, a cable of 25 ns, and 40 bytes at 32 Gbps.
    assert 1.0 < latency["infiniband-qdr"] < 1.1
    total = next(sample for sample in first if sample.metric == "throughput_mbps" and sample.nodes == 4)
    assert total.value is not None
    assert 120_000 < total.value < 4 * 46_400
    log = json.loads((tmp_path / "a" / "run" / str(total.log)).read_text(encoding="utf-8"))
    assert len(log["outcome"]["series"]) == 6


@dataclasses.dataclass
class _Done:
    """A step of which something is there: its samples, an error, or an interruption."""

    samples: tuple[Sample, ...] = ()
    error: str | None = None
    is_interrupted: bool = False

    def done(self) -> bool:
        return not self.is_interrupted

    def result(self) -> Found:
        if self.is_interrupted:
            raise KeyboardInterrupt
        return self.samples, self.error


class _Interrupted:
    """A crew whose second step is interrupted, while the fourth fails and all others are done."""

    def __init__(self, runner: VirtualRunner) -> None:
        self.runner = runner
        self.stopped = False

    def begin(self, step: AnyStep, order: int) -> _Done:
        samples, _ = self.runner.perform(step, order)
        return [_Done(samples), _Done(is_interrupted=True), _Done(samples), _Done(samples, "it was ended")][order]

    def stop(self) -> None:
        self.stopped = True


def test_an_interruption_keeps_what_was_simulated_behind_the_step_that_was_under_way(tmp_path: Path) -> None:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    steps = plan(parse(SMALL, "study.toml"))[:4]
    unknown = Provenance("", "", 1, 1, "", "", "", "", "")
    info = RunInfo("run", "small", "Small", "virtual", "running", "", 1, 1, (), unknown, len(steps))
    store = RunStore.create(tmp_path, info, SMALL)
    runner = VirtualRunner(store, SilentWatcher(), {})
    crew = _Interrupted(runner)
    with pytest.raises(KeyboardInterrupt):
        runner.run(steps, crew)
    assert list(dict.fromkeys(sample.order for sample in store.samples())) == [0, 2]
    assert remaining(steps, store) == [steps[1], steps[3]]
    assert store.info.status == "interrupted"
    assert crew.stopped


def test_a_recorded_port_is_a_capture_that_tshark_reads(tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed: make setup")
    run_study(tmp_path, SMALL.replace("series_us = 50", "tap = { host = 1, port = 0, packets = 500 }"))
    captures = sorted((tmp_path / "run" / "logs").glob("*.pcap"))
    assert len(captures) == 2, "one of each mesh"
    argv = ["tshark", "-r", str(captures[0]), "-T", "fields", "-e", "infiniband.bth.opcode"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    opcodes = {int(line) for line in done.stdout.split()}
    # WRITE first, middle and last, and acknowledgements.
    assert {6, 7, 8, 17} <= opcodes
