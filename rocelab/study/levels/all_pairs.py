"""The level pairs: every node with every other, in rounds of pairs that share no node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from typing_extensions import override

from rocelab.fabric.base import LinkProfile
from rocelab.study.levels.base import Level, limit_s
from rocelab.study.levels.pairs import PairLevel
from rocelab.study.rounds import both_ways, in_parts, in_turns, tournament
from rocelab.study.schema import AllPairsTable, Study, TestTable
from rocelab.study.steps import RoundStep, Step

#: Of these, a measurement of one way says nothing about the other.
_ONE_WAY = frozenset({"bandwidth"})
_PAIRS = PairLevel()


class AllPairsLevel(Level[AllPairsTable]):
    """Every pair of nodes."""

    turn = 2

    @override
    def variants(self, test: AllPairsTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return _PAIRS.variants(_of_pair(test), interconnect)

    @override
    def wrong_variant(self, test: AllPairsTable, interconnect: str, variant: str) -> str | None:
        return _PAIRS.wrong_variant(_of_pair(test), interconnect, variant)

    @override
    def steps(self, study: Study, test: AllPairsTable, link: LinkProfile, repetition: int) -> Iterator[RoundStep]:
        nodes = study.nodes_of(test)
        rounds = in_parts(in_turns(tournament(nodes), link.switch_of, test.pairs_per_switch), test.pairs_at_once)
        for part, pairs in enumerate(both_ways(rounds) if test.test in _ONE_WAY else rounds):
            for pair in _PAIRS.steps(study, _of_pair(test), link, repetition):
                # The pairs of a round may share processors, as on a machine that has all nodes.
                expected_s = len(pairs) * pair.expected_s
                step = dataclasses.replace(pair, time_limit_s=limit_s(study, expected_s))
                yield RoundStep(
                    link=link,
                    interconnect=pair.interconnect,
                    variant=pair.variant,
                    repetition=repetition,
                    time_limit_s=step.time_limit_s,
                    pair=step,
                    nodes=nodes,
                    part=part,
                    pairs=tuple(pairs),
                )

    @override
    def round_of(self, at: int, step: Step) -> int:
        assert isinstance(step, RoundStep)
        return step.part


def _of_pair(test: AllPairsTable) -> TestTable:
    """What is measured between two nodes, as a test of the network level."""
    return TestTable(
        test=test.test, variants=test.variants, sizes_bytes=[*test.every_size_bytes()], point_ms=test.point_ms
    )
