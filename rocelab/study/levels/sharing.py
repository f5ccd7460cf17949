"""Tests of the network level in which flows of several kinds share a link: a step for each mix."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.levels.base import Level, limit_s
from rocelab.study.problems import Wrong, unknown
from rocelab.study.schema import Study
from rocelab.study.sharing_steps import SharingStep
from rocelab.study.sharing_tables import NODES_BESIDE_SENDERS, SharingTable, mix_words
from rocelab.study.steps import Step
from rocelab.tools import interconnects
from rocelab.variants import Flows, mix_names


class SharingLevel(Level[SharingTable]):
    """Mixes of flows on one link."""

    turn = 2

    @override
    def variants(self, test: SharingTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return "for sharing", tuple(interconnects.interconnect(interconnect).meshes)

    @override
    def wrong(self, study: Study, at: int, test: SharingTable) -> Iterator[Wrong]:
        seen: list[Mapping[str, int]] = []
        for number, mix in enumerate(test.mixes):
            place = ("test", at, "mixes", number)
            for name in mix:
                if name not in test.variants:
                    yield (*place, name), unknown("interconnect among the variants of this test", name, test.variants)
            flows = sum(mix.values())
            needed = flows + NODES_BESIDE_SENDERS
            if needed > study.fabric.nodes:
                text = f"{flows} flows take {needed} nodes: a sender for each, the receiver, and one that asks for its"
                yield place, f"{text} queue; fabric.nodes is {study.fabric.nodes}"
            if mix in seen:
                yield place, f"the same mix is there twice: {mix_words(mix)}"
            seen.append(mix)
        for name in test.variants:
            if not any(name in mix for mix in test.mixes):
                yield ("test", at, "variants", name), "no mix of this test has it"
        for link in study.links_of(test):
            # That a direct link has too few nodes is told of every test.
            if link.kind != "direct" and link.rate_mbps is None:
                text = f"{link.id} has no rate_mbps: what is shared would be the processors, and not the link"
                yield ("test", at, "links"), f"{text}; name other links here"

    @override
    def steps(self, study: Study, test: SharingTable, link: LinkProfile, repetition: int) -> Iterator[SharingStep]:
        for mix in test.mixes:
            for flows in _combinations(mix, study.variants_of(test)):
                interconnect, variant = mix_names(flows)
                step = SharingStep(
                    link=link,
                    interconnect=interconnect,
                    variant=variant,
                    repetition=repetition,
                    time_limit_s=0.0,
                    mix=flows,
                    methods=tuple(
                        interconnects.interconnect(each.interconnect).meshes[peers.name_of(each.variant)]
                        for each in flows
                    ),
                    size_bytes=test.size_bytes,
                    depth=test.depth,
                    measured_s=test.measured_s,
                    margin_s=test.margin_s,
                )
                yield dataclasses.replace(step, time_limit_s=limit_s(study, step.expected_s))

    @override
    def round_of(self, at: int, step: Step) -> int:
        return at


def _combinations(mix: Mapping[str, int], variants: Mapping[str, Sequence[str]]) -> Iterator[tuple[Flows, ...]]:
    """Each variant of one interconnect with each of the others, as far as their congestion controls are the same."""
    for chosen in product(*(variants[name] for name in mix)):
        if len({control for each in chosen if (control := peers.control_of(each)) is not None}) <= 1:
            yield tuple(Flows(count, name, each) for (name, count), each in zip(mix.items(), chosen, strict=True))
