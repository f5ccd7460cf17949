"""The steps of tests of flows: one simulation for each load, and each value of what is varied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from typing_extensions import override

from rocelab import profiles
from rocelab.fabric.base import LinkKind, LinkProfile
from rocelab.results import FLOWS_LEVEL, StepKey
from rocelab.variants import setting_name
from rocelab.virtual.flow_tables import FlowsTable, Setting
from rocelab.virtual.packets import PacketStep
from rocelab.virtual.schema import Topology, VirtualStudy
from rocelab.virtual.variants import variants_of

#: Packets of flows that are simulated in a second, through six cables; for planning only.
_PACKETS_PER_S = 250_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsStep(PacketStep):
    """One simulation of flows that arrive at random."""

    test: FlowsTable
    load: float
    settings: Mapping[str, Setting]
    """By place in the scenario: what it has instead of what the study and the profiles say."""

    @property
    @override
    def test_name(self) -> str:
        return self.test.test

    @property
    def key(self) -> StepKey:
        """What identifies what is of all flows together."""
        return self.key_of(None)

    def key_of(self, size_bytes: int | None) -> StepKey:
        """What identifies what is of the flows of a bin, by its greatest size."""
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level=FLOWS_LEVEL,
            test=self.test.test,
            variant=self.variant,
            size_bytes=size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=self.nodes,
        )

    @property
    @override
    def keys(self) -> tuple[StepKey, ...]:
        return tuple(self.key_of(size_bytes) for size_bytes in (None, *self.test.bins_bytes()))

    @property
    @override
    def expected_s(self) -> float:
        mtu_bytes = self.network.path_mtu_bytes or self.adapter.port.mtu_bytes
        packets = self.test.flows * (self.test.mean_bytes / mtu_bytes + 1)
        return 0.1 + packets / _PACKETS_PER_S

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (FLOWS_LEVEL, self.test.test, self.nodes, self.load)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, self.test.test, self.interconnect, self.variant, f"{self.nodes}-nodes")


def plan_flows(study: VirtualStudy, test: FlowsTable, kinds: Mapping[Topology, LinkKind]) -> Iterator[FlowsStep]:
    """The steps of a test: what is compared follows each other."""
    repetitions = study.repetitions if test.repetitions is None else test.repetitions
    each_setting = [dict(zip(test.vary, values, strict=True)) for values in itertools.product(*test.vary.values())]
    for nodes, load, settings in itertools.product(sorted(test.nodes), sorted(test.loads), each_setting):
        for link, (name, chosen) in itertools.product(study.links_of(test), test.variants.items()):
            adapter = profiles.adapter(name)
            for variant, repetition in itertools.product(chosen, range(repetitions)):
                yield FlowsStep(
                    link=LinkProfile(link.id, kinds[link.topology]),
                    interconnect=name,
                    variant=setting_name(variant, {"load": load, **settings}),
                    repetition=repetition,
                    time_limit_s=0.0,
                    network=link,
                    test=test,
                    host=study.fabric.host,
                    adapter=adapter,
                    how=variants_of(test.test, adapter.service)[variant],
                    nodes=nodes,
                    seed=study.seed + repetition,
                    load=load,
                    settings=settings,
                )
