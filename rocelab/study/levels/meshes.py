"""The mesh of the network level: programs on the first so many nodes, from each to every other, all at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.schema import MeshTable, Study
from rocelab.study.steps import MeshStep, Step
from rocelab.tools import interconnects


class MeshLevel(Level[MeshTable]):
    """Meshes."""

    turn = 2

    @override
    def variants(self, test: MeshTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return f"for {test.test}", tuple(interconnects.interconnect(interconnect).meshes)

    @override
    def steps(self, study: Study, test: MeshTable, link: LinkProfile, repetition: int) -> Iterator[MeshStep]:
        for nodes in sorted(test.nodes):
            for name, variant in contestants(study, test):
                step = MeshStep(
                    link=link,
                    interconnect=name,
                    variant=variant,
                    repetition=repetition,
                    time_limit_s=0.0,
                    method=interconnects.interconnect(name).meshes[peers.name_of(variant)],
                    nodes=nodes,
                    size_bytes=test.size_bytes,
                    parallel=test.parallel,
                    depth=test.depth,
                    measured_s=test.measured_s,
                    margin_s=test.margin_s,
                    traffic_class=test.traffic_class,
                )
                yield dataclasses.replace(step, time_limit_s=limit_s(study, step.expected_s))

    @override
    def round_of(self, at: int, step: Step) -> int:
        assert isinstance(step, MeshStep)
        return step.nodes
