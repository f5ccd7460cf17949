"""Tests of the network level in which many nodes send at once: full mesh, incast, bisection."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.problems import Wrong
from rocelab.study.schema import MeshTable, Study
from rocelab.study.steps import Step
from rocelab.study.together_steps import MeshStep
from rocelab.tools import interconnects


class MeshLevel(Level[MeshTable]):
    """Full mesh, incast and bisection."""

    turn = 2

    @override
    def variants(self, test: MeshTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return f"for {test.test}", tuple(interconnects.interconnect(interconnect).meshes)

    @override
    def wrong(self, study: Study, at: int, test: MeshTable) -> Iterator[Wrong]:
        odd = [nodes for nodes in test.nodes if nodes % 2]
        if test.test == "bisection" and odd:
            yield ("test", at, "nodes"), f"a bisection has two halves, and {odd[0]} nodes have not: take an even number"

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
                    test=test.test,
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
