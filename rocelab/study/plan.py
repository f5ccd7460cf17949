"""The steps of a study, in the order they are carried out. The same study always makes the same plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import product, zip_longest

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.launch import mpi
from rocelab.study.schema import (
    AnyTest,
    CloudTable,
    DfsioTable,
    MeshTable,
    MpiTestTable,
    NasTable,
    Study,
    TestTable,
    YcsbTable,
)
from rocelab.study.steps import CloudStep, JobStep, MeshStep, PairStep, Step, fitting_messages
from rocelab.tools.base import JobMethod, JobRequest, Method, Test
from rocelab.tools.cloud import CloudMethod
from rocelab.tools.hbase import Ycsb
from rocelab.tools.hdfs import TestDfsio
from rocelab.tools.interconnects import interconnect, urxe
from rocelab.tools.nas import Nas
from rocelab.tools.spark import Spark
from rocelab.tools.suites import job_method

#: What a link without a rate of its own is taken to carry, to choose a number of messages. Only the duration of a
#: point depends on it.
_ASSUMED_RATE_MBPS = 16_000.0
#: A step may take this many times what was planned for it, on top of the study's time limit.
_PATIENCE = 10


def plan(study: Study) -> list[Step]:
    """Every step of the study.

    Links follow each other. On each, a repetition runs through all sizes, and at each size all variants of all
    interconnects take turns in all tests (A B A B ...): what is compared is measured within seconds, and the
    repetitions of one point lie minutes apart, so that they show how much the machine drifts. Who goes first changes
    with the size and the repetition (and the seed), so that nobody always runs after the same neighbour. Steps that
    measure many sizes take turns in the same way, after those of their repetition that measure one, and meshes come
    last, in the order of their number of nodes.

    At the level cloud the links take turns, too, in each repetition: a link with all of its tests, then the next, for
    the daemons of a system are on one link at a time, and on each link one congestion control after the other.
    """
    steps = [step for link in study.link for step in _on_link(study, link.profile())]
    return [*steps, *_cloud_steps(study)]


def _on_link(study: Study, link: LinkProfile) -> Iterator[Step]:
    # By repetition, by the kind of step, and by the size, the test or the number of nodes.
    rounds: dict[tuple[int, int, int], list[Step]] = {}
    for at, test in enumerate(study.test):
        if test.links is not None and link.id not in test.links:
            continue
        if isinstance(test, TestTable):
            for pair in _pairs(study, test, link):
                rounds.setdefault((pair.repetition, 0, pair.size_bytes), []).append(pair)
        elif isinstance(test, MeshTable):
            for mesh in _meshes(study, test, link):
                rounds.setdefault((mesh.repetition, 2, mesh.nodes), []).append(mesh)
        elif isinstance(test, MpiTestTable | NasTable):
            for job in _jobs(study, test, link):
                rounds.setdefault((job.repetition, 1, at), []).append(job)
    for number, place in enumerate(sorted(rounds)):
        members = rounds[place]
        first = (study.seed + place[0] + number) % len(members)
        yield from members[first:] + members[:first]


def measurement_count(steps: Sequence[Step]) -> int:
    """How many measurements the steps are: each size of a start counts as one."""
    return sum(len(step.keys) for step in steps)


def _pairs(study: Study, test: TestTable, link: LinkProfile) -> Iterator[PairStep]:
    contestants = _contestants(study, test)
    point_s = test.point_ms / 1000
    for repetition in range(study.repetitions_of(test)):
        for size_bytes in test.every_size_bytes():
            for name, variant in contestants:
                method = interconnect(name).methods[test.test, peers.name_of(variant)]
                message_s = _message_s(method, test.test, size_bytes, link)
                messages = fitting_messages(method, message_s, point_s)
                yield PairStep(
                    link=link,
                    test=test.test,
                    interconnect=name,
                    variant=variant,
                    method=method,
                    size_bytes=size_bytes,
                    repetition=repetition,
                    messages=messages,
                    message_s=message_s,
                    point_s=point_s,
                    time_limit_s=_limit_s(study, method.overhead_s + messages * message_s),
                )


def _jobs(study: Study, test: MpiTestTable | NasTable, link: LinkProfile) -> Iterator[JobStep]:
    contestants = _contestants(study, test)
    nodes = study.nodes_of(test)
    ranks = nodes * test.ranks_per_node
    request = _request(test)
    for repetition in range(study.repetitions_of(test)):
        for at, (name, variant) in product(range(len(test.every_test)), contestants):
            kind, transport = mpi.transport(name, peers.name_of(variant))
            implementation = implementation_of(study, kind)
            method = _job_method(test, at, kind, ranks)
            measuring_s = method.seconds(request, link.rate_mbps, ranks)
            yield JobStep(
                link=link,
                interconnect=name,
                variant=variant,
                repetition=repetition,
                time_limit_s=_limit_s(study, implementation.start_s(ranks) + measuring_s),
                level=test.level,
                method=method,
                request=request,
                mpi=implementation,
                transport=transport,
                device=urxe() if transport.device else None,
                nodes=nodes,
                ranks_per_node=test.ranks_per_node,
                mapping=test.mapping,
                measuring_s=measuring_s,
            )


def _request(test: MpiTestTable | NasTable) -> JobRequest:
    if isinstance(test, NasTable):
        return JobRequest(())
    return JobRequest(test.every_size_bytes(), test.iterations, test.warmup, tuple(test.options))


def _job_method(test: MpiTestTable | NasTable, at: int, kind: mpi.Kind, ranks: int) -> JobMethod:
    """The method of one of the tests of a table."""
    if isinstance(test, NasTable):
        return Nas(*test.pairs[at], ranks, kind, test.suite_folder, test.suite)
    return job_method(test.suite, test.test, kind, test.suite_folder)


def _meshes(study: Study, test: MeshTable, link: LinkProfile) -> Iterator[MeshStep]:
    contestants = _contestants(study, test)
    for repetition in range(study.repetitions_of(test)):
        for nodes in sorted(test.nodes):
            for name, variant in contestants:
                step = MeshStep(
                    link=link,
                    interconnect=name,
                    variant=variant,
                    repetition=repetition,
                    time_limit_s=0.0,
                    method=interconnect(name).meshes[peers.name_of(variant)],
                    nodes=nodes,
                    size_bytes=test.size_bytes,
                    parallel=test.parallel,
                    depth=test.depth,
                    measured_s=test.measured_s,
                    margin_s=test.margin_s,
                    traffic_class=test.traffic_class,
                )
                yield dataclasses.replace(step, time_limit_s=_limit_s(study, step.expected_s))


def _cloud_steps(study: Study) -> Iterator[CloudStep]:
    tests = [test for test in study.test if isinstance(test, CloudTable)]
    for repetition in range(max((study.repetitions_of(test) for test in tests), default=0)):
        first = (study.seed + repetition) % len(study.link)
        for link in study.link[first:] + study.link[:first]:
            steps = [
                step
                for test in tests
                if repetition < study.repetitions_of(test) and link in study.links_of(test)
                for step in _of_cloud_test(study, test, link.profile(), repetition)
            ]
            # Daemons keep their connections, so they are started anew for each congestion control. What has none goes
            # with the first.
            controls = list(dict.fromkeys(control for step in steps if (control := peers.control_of(step.variant))))
            yield from sorted(steps, key=lambda step: _place_of(peers.control_of(step.variant), controls))


def _place_of(control: str | None, controls: Sequence[str]) -> int:
    return 0 if control is None else controls.index(control)


def _of_cloud_test(study: Study, test: CloudTable, link: LinkProfile, repetition: int) -> Iterator[CloudStep]:
    contestants = _contestants(study, test)
    # Nobody always runs after the same neighbour.
    first = (study.seed + repetition) % len(contestants)
    for size_bytes in test.every_size_bytes():
        for name, variant in contestants[first:] + contestants[:first]:
            for method in _cloud_methods(test, name, variant, size_bytes):
                yield CloudStep(
                    link=link,
                    interconnect=name,
                    variant=variant,
                    repetition=repetition,
                    time_limit_s=_limit_s(study, method.seconds),
                    method=method,
                    nodes=study.nodes_of(test),
                    size_bytes=size_bytes,
                )


def _cloud_methods(test: CloudTable, name: str, variant: str, size_bytes: int) -> Iterator[CloudMethod]:
    if isinstance(test, DfsioTable):
        yield TestDfsio(size_bytes, runner=test.runner)
    elif isinstance(test, YcsbTable):
        for workload in test.workloads:
            yield Ycsb(
                workload=workload,
                records=test.records,
                value_bytes=test.value_bytes,
                operations=test.operations,
                threads=test.threads,
                warmup_operations=test.warmup_operations,
                target_per_s=test.target_per_s,
            )
    else:
        yield Spark(test.test, name, peers.name_of(variant), size_bytes)


def implementation_of(study: Study, kind: mpi.Kind) -> mpi.Mpi:
    """The MPI that a study takes: the one it names, else rocelab's own."""
    named = study.mpi.openmpi if kind == "openmpi" else study.mpi.mpich
    return mpi.own(kind) if named is None else mpi.installed(kind, named)


def _limit_s(study: Study, expected_s: float) -> float:
    return round(study.time_limit_s + _PATIENCE * expected_s, 1)


def _contestants(study: Study, test: AnyTest) -> list[tuple[str, str]]:
    """Interconnect and variant of all that take part, those of each interconnect in turn."""
    return _take_turns([[(name, variant) for variant in chosen] for name, chosen in study.variants_of(test).items()])


def _take_turns(groups: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [one for turn in zip_longest(*groups) for one in turn if one is not None]


def _message_s(method: Method, test: Test, size_bytes: int, link: LinkProfile) -> float:
    """About how long one message takes: there and back for latency, there for bandwidth."""
    transfer_us = size_bytes * 8 / (link.rate_mbps or _ASSUMED_RATE_MBPS)
    if test == "latency":
        return 2 * (method.message_us + transfer_us) / 1e6
    both_ways = 2 if test == "bidirectional-bandwidth" and link.rate_mbps is None else 1
    return (method.message_us + transfer_us * both_ways) / 1e6
