"""Tests of the network level in which pairs of programs run side by side: a step for each number of pairs and size."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.results import QUEUE_PAIRS_SETTING, SIDE_BY_SIDE_TEST
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.problems import Wrong
from rocelab.study.schema import Study
from rocelab.study.side_by_side_steps import SideBySideStep
from rocelab.study.side_by_side_tables import PAIRS_MAX, SideBySideTable, is_one_program
from rocelab.study.steps import Step
from rocelab.tools import interconnects
from rocelab.variants import setting_name


class SideBySideLevel(Level[SideBySideTable]):
    """Pairs of programs between two nodes."""

    turn = 2

    @override
    def variants(self, test: SideBySideTable, interconnect: str) -> tuple[str, Sequence[str]]:
        programs = interconnects.interconnect(interconnect).side_by_side
        # Of a stream of TCP there is nothing that many of one program would share.
        in_one = [f"{name}{peers.ONE_PROGRAM}" for name, method in programs.items() if method.has_queue_pairs]
        return f"for {SIDE_BY_SIDE_TEST}", (*programs, *in_one)

    @override
    def wrong(self, study: Study, at: int, test: SideBySideTable) -> Iterator[Wrong]:
        for number, pairs in enumerate(test.pairs):
            if pairs in test.pairs[:number]:
                yield ("test", at, "pairs"), f"{pairs} is there twice"
        for link in study.links_of(test):
            if link.rate_mbps is not None:
                text = f"{link.id} has a rate_mbps: what is measured would be the link, and not the processors"
                yield ("test", at, "links"), f"{text}; name other links here"

    @override
    def steps(
        self, study: Study, test: SideBySideTable, link: LinkProfile, repetition: int
    ) -> Iterator[SideBySideStep]:
        for pairs in sorted(test.pairs):
            for size_bytes in test.every_size_bytes():
                for name, variant in contestants(study, test):
                    in_one = is_one_program(variant)
                    program, control = peers.name_of(variant), peers.control_of(variant)
                    named = setting_name(program, {QUEUE_PAIRS_SETTING: pairs}) if in_one else program
                    step = SideBySideStep(
                        link=link,
                        interconnect=name,
                        variant=named if control is None else peers.with_control(named, control),
                        repetition=repetition,
                        time_limit_s=0.0,
                        method=interconnects.interconnect(name).side_by_side[program.removesuffix(peers.ONE_PROGRAM)],
                        pairs=1 if in_one else pairs,
                        queue_pairs=pairs if in_one else 1,
                        processors=test.processors,
                        size_bytes=size_bytes,
                        depth=test.depth,
                        measured_s=test.measured_s,
                        margin_s=test.margin_s,
                    )
                    yield dataclasses.replace(step, time_limit_s=limit_s(study, step.expected_s))

    @override
    def round_of(self, at: int, step: Step) -> int:
        assert isinstance(step, SideBySideStep)
        # Each number of pairs is a round of its own test.
        return (at + 1) * 2 * PAIRS_MAX + max(step.pairs, step.queue_pairs)
