"""A small study, and a fake machine that answers it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.results import LinkInfo, Provenance, RunInfo, RunStore
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.schema import Study
from rocelab.study.steps import PairStep, Step

TEXT = """\
schema = 1
id = "small"
title = "A small study"
claims = ["S1"]
repetitions = 2
time_limit_s = 5

[tcp]
congestion_control = ["cubic"]

[fabric]
kind = "emulated"

[[link]]
id = "direct"
kind = "direct"

[[link]]
id = "slow"
kind = "bridge"
rate_mbps = 100

[[test]]
test = "latency"
sizes_bytes = { from = 1, to = 4 }
point_ms = 10

[test.variants]
tcp = ["blocking", "busy-poll"]
soft-roce = ["send"]

[[test]]
test = "bandwidth"
sizes_bytes = [1024]
links = ["direct"]
repetitions = 1

[test.variants]
tcp = ["blocking"]
soft-roce = ["write"]

[[test]]
test = "cpu-use"
sizes_bytes = [1024]
links = ["direct"]
repetitions = 1

[test.variants]
tcp = ["blocking"]
soft-roce = ["send"]
"""


def study(text: str = TEXT) -> Study:
    return parse(text, "small.toml")


def steps(text: str = TEXT) -> list[PairStep]:
    """The plan of a study of the network level alone."""
    return [step for step in plan(study(text)) if isinstance(step, PairStep)]


def store(root: Path, run_id: str = "run") -> RunStore:
    of = study()
    info = RunInfo(
        id=run_id,
        study=of.id,
        title=of.title,
        fabric="emulated",
        status="running",
        started_at="2026-01-01T00:00:00.000Z",
        seed=of.seed,
        repetitions=of.repetitions,
        links=tuple(LinkInfo(link.id, link.kind, link.mtu_bytes, link.rate_mbps) for link in of.link),
        provenance=Provenance("m", "cpu", 2, 1, "k", "d", "rocelab run", "0", "3"),
        planned_steps=len(plan(of)),
    )
    return RunStore.create(root, info, TEXT)


def fabric() -> FakeFabric:
    return FakeFabric(tuple(link.profile() for link in study().link))


def good(start: Start, elapsed_s: float = 0.01) -> Outcome:
    """What the programs of the small study print when all is well. The client is on node0."""
    argv = list(start.argv)
    if start.node.index == 1:
        return Outcome(cpu_user_s=0.02, cpu_system_s=0.0)
    if "client" in argv:
        return Outcome(stdout=_sock(argv, elapsed_s))
    size, messages = argv[argv.index("-s") + 1], argv[argv.index("-n") + 1]
    if "ib_send_lat" in argv:
        return Outcome(stdout=f" {size} {messages} 2.0 9.0 2.5 3.0 0.5 4.0 5.0\n")
    rate = 1e6 * int(size) / 2**20
    return Outcome(stdout=f" {size} {messages} 0.00 {rate:.2f} 1.000000\n", cpu_user_s=0.3, cpu_system_s=0.1)


def _sock(argv: list[str], elapsed_s: float) -> str:
    option = {name: argv[argv.index(f"--{name}") + 1] for name in ("size", "messages", "warmup")}
    end = {"elapsed_s": elapsed_s, "cpu_s": elapsed_s / 2}
    return json.dumps(
        {
            "size_bytes": int(option["size"]),
            "messages": int(option["messages"]),
            "warmup_messages": int(option["warmup"]),
            "latency_us": {"min": 1, "mean": 3, "p50": 2, "p99": 9, "max": 10},
            "bandwidth_mbps": 800.0,
            "message_rate_per_s": 1e5,
            "client": end,
            "server": end,
        }
    )


def launcher(answer: Callable[[Start], Outcome] = good) -> FakeLauncher:
    return FakeLauncher(answer)


@dataclass
class Seen:
    """A watcher that keeps what it is told, and may act on it."""

    on_start: Callable[[Step], None] = field(default=lambda step: None)
    names: list[tuple[str, ...]] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    phases: list[str] = field(default_factory=list)
    news: list[str] = field(default_factory=list)

    def started(self, step: Step) -> None:
        self.names.append(step.series)
        self.on_start(step)

    def doing(self, what: str) -> None:
        self.phases.append(what)

    def ended(self, step: Step, error: str | None) -> None:
        self.errors.append(error)

    def replanned(self, steps: Sequence[Step], news: str) -> None:
        self.news.append(news)
