"""The steps of a study of the virtual fabric. Each is one simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from typing_extensions import override

from rocelab import profiles
from rocelab.fabric.base import LinkKind, LinkProfile
from rocelab.results import MESH_TEST, LinkInfo, StepKey
from rocelab.study.steps import SingleStep, Step
from rocelab.variants import setting_name
from rocelab.virtual.flow_steps import FlowsStep, plan_flows
from rocelab.virtual.flow_tables import FlowsTable
from rocelab.virtual.packets import PacketStep
from rocelab.virtual.schema import MANY_NODES, LinkTable, TestTable, Topology, VirtualStudy, is_collective
from rocelab.virtual.smpi.steps import SmpiStep, plan_jobs
from rocelab.virtual.variants import variants_of

_KINDS: dict[Topology, LinkKind] = {
    "back-to-back": "direct",
    "one-switch": "bridge",
    "leaf-spine": "two-level",
    "fat-tree": "two-level",
    "dragonfly": "two-level",
    "rails": "two-level",
    "listed": "two-level",
}
#: Packets that are simulated in a second, for planning only.
_PACKETS_PER_S = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStep(PacketStep, SingleStep):
    """One simulation of messages of one size."""

    test: TestTable
    size_bytes: int

    @property
    @override
    def test_name(self) -> str:
        return self.test.test

    @property
    @override
    def key(self) -> StepKey:
        ranks = self.nodes if is_collective(self.test.test) else 2
        if self.test.test in MANY_NODES:
            pairs = self.nodes * (self.nodes - 1) if self.test.test == MESH_TEST else self.nodes
            ranks = self.nodes if self.test.level == "mpi" else 2 * pairs
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level=self.test.level,
            test=self.test.test,
            variant=self.variant,
            size_bytes=self.size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=ranks,
        )

    @property
    @override
    def expected_s(self) -> float:
        packet_bytes = self.adapter.port.mtu_bytes
        if self.test.test == "latency":
            packets = 2 * self.test.iterations * self.size_bytes / packet_bytes
        elif self.test.test == MESH_TEST and self.test.level == "mpi":
            blocks = self.nodes * (self.nodes - 1) * (self.test.messages or 1)
            packets = blocks * self.size_bytes / packet_bytes
        elif is_collective(self.test.test):
            packets = sent_bytes(self) / packet_bytes
        elif self.test.test in MANY_NODES:
            time_us = self.test.warmup_us + self.test.measured_us
            packets = self.nodes * time_us * rate_gbps(self.adapter) * 125 / packet_bytes
        else:
            packets = messages_of(self) * (self.size_bytes / packet_bytes + 1)
        return 0.02 + packets / _PACKETS_PER_S

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.test.level, self.test.test, self.nodes, self.size_bytes)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        over_nodes = self.test.test in MANY_NODES or is_collective(self.test.test)
        scale = f"{self.nodes}-nodes" if over_nodes else self.test.level
        return (self.link.id, self.test.test, self.interconnect, self.variant, scale)


def sent_bytes(step: VirtualStep) -> float:
    """What all ranks of a collective send together, about."""
    test = step.test
    if test.file is not None:
        schedule = test.file.schedule
        groups = step.nodes // schedule.ranks
        chunks = sum(message.chunks for message in schedule.messages)
        return groups * chunks * schedule.chunk_bytes(step.size_bytes)
    return (test.bus_factor(step.nodes) or 0.0) * step.nodes * step.size_bytes


def rate_gbps(adapter: profiles.Adapter) -> float:
    """What all ports of an adapter carry after encoding."""
    return adapter.port.data_rate_gbps * adapter.port.ports


#: A bandwidth test moves about so much, and never fewer messages than this.
_BANDWIDTH_BYTES = 8 << 20
_MESSAGES_MIN = 16
_MESSAGES_MAX = 1000


def messages_of(step: VirtualStep) -> int:
    """Messages of each queue pair of a bandwidth test."""
    return bandwidth_messages(step.size_bytes) if step.test.messages is None else step.test.messages


def bandwidth_messages(size_bytes: int) -> int:
    """Messages of a size that a bandwidth test moves, if a study says nothing else."""
    return max(_MESSAGES_MIN, min(_MESSAGES_MAX, _BANDWIDTH_BYTES // size_bytes))


def simulations(steps: Iterable[Step]) -> list[VirtualStep | FlowsStep | SmpiStep]:
    """Those of the steps that are simulations, which are all that a study of this fabric has."""
    return [step for step in steps if isinstance(step, VirtualStep | FlowsStep | SmpiStep)]


def plan(study: VirtualStudy) -> list[VirtualStep | FlowsStep | SmpiStep]:
    """Every step of the study: what is compared follows each other, small before large."""
    steps: list[VirtualStep | FlowsStep | SmpiStep] = []
    for test in study.test:
        if isinstance(test, TestTable):
            steps += _of_test(study, test)
        elif isinstance(test, FlowsTable):
            steps += plan_flows(study, test, _KINDS)
        else:
            for link in study.links_of(test):
                steps += plan_jobs(study, test, LinkProfile(link.id, _KINDS[link.topology]), link)
    return steps


def _of_test(study: VirtualStudy, test: TestTable) -> Iterator[VirtualStep]:
    repetitions = study.repetitions if test.repetitions is None else test.repetitions
    nodes = test.nodes if test.test in MANY_NODES or is_collective(test.test) else [2]
    for link in study.links_of(test):
        for count in sorted(nodes):
            for size_bytes in test.every_size_bytes():
                for name, chosen in test.variants.items():
                    for variant in chosen:
                        for repetition in range(repetitions):
                            adapter = profiles.adapter(name)
                            yield VirtualStep(
                                link=LinkProfile(link.id, _KINDS[link.topology]),
                                interconnect=name,
                                variant=variant
                                if test.file is None
                                else setting_name(variant, {"file": test.file.name}),
                                repetition=repetition,
                                time_limit_s=0.0,
                                network=link,
                                test=test,
                                host=study.fabric.host,
                                adapter=adapter,
                                how=variants_of(test.test, adapter.service)[variant],
                                size_bytes=size_bytes,
                                nodes=count,
                                seed=study.seed + repetition,
                            )


def link_info(study: VirtualStudy, link: LinkTable) -> LinkInfo:
    """A link as results state it: with the rate of its hosts, if all have the same."""
    tests = [test for test in study.test if link in study.links_of(test)]
    adapters = [profiles.adapter(name) for test in tests for name in test.variants]
    rates = {round(rate_gbps(adapter) * 1000, 1) for adapter in adapters}
    mtus = {adapter.port.mtu_bytes for adapter in adapters}
    return LinkInfo(
        id=link.id,
        kind=link.topology,
        mtu_bytes=mtus.pop() if len(mtus) == 1 else 0,
        rate_mbps=rates.pop() if len(rates) == 1 else None,
        nodes_per_switch=link.hosts_per_rack,
        uplink_rate_mbps=None if link.uplink_gbps is None else link.uplink_gbps * 1000,
    )
