"""Reads a study of the virtual fabric. What is wrong in it is reported all at once, each with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

import pydantic

from rocelab import profiles
from rocelab.study.loading import problem_of
from rocelab.study.positions import line_of
from rocelab.study.problems import Problem, StudyError, Wrong, dotted, unknown
from rocelab.virtual.congestion import BY_ACKNOWLEDGEMENTS, BY_MARKS, algorithm_of, allowed_parameters
from rocelab.virtual.flow_loading import wrong_flows
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.flow_tables import FlowsTable
from rocelab.virtual.msccl.files import FOLDER
from rocelab.virtual.msccl.loading import wrong_schedule
from rocelab.virtual.scenario import scenario
from rocelab.virtual.schema import (
    COLLECTIVES,
    MANY_NODES,
    MSCCL,
    TESTS,
    TREES,
    LinkTable,
    TestTable,
    VirtualStudy,
    is_collective,
)
from rocelab.virtual.smpi.loading import wrong_job
from rocelab.virtual.steps import plan
from rocelab.virtual.variants import variants_of


def is_virtual(text: str) -> bool:
    """Whether a study file is about the virtual fabric, as far as it can be read."""
    try:
        fabric = tomllib.loads(text).get("fabric")
    except tomllib.TOMLDecodeError:
        return False
    return isinstance(fabric, dict) and fabric.get("kind") == "virtual"


def parse(text: str, source: str, known_claims: Collection[str] = (), folder: str | None = None) -> VirtualStudy:
    """The study in a text, which is valid TOML. Raises StudyError.

    Paths in it begin at ``folder``, or else where ``source`` is.
    """
    context = {FOLDER: folder or str(Path(source).parent)}
    try:
        study = VirtualStudy.model_validate(tomllib.loads(text), context=context)
    except pydantic.ValidationError as error:
        problems = [problem_of(text, detail, VirtualStudy) for detail in error.errors()]
        raise StudyError(source, problems) from None
    try:
        wrong = [*_contradictions(study, known_claims)]
    except profiles.ProfileError as error:
        raise StudyError(source, [Problem(0, "", f"a profile is not in order: {error}")]) from None
    if wrong:
        raise StudyError(source, [Problem(line_of(text, path), dotted(path), what) for path, what in wrong])
    if wrong := [*_wrong_settings(study)]:
        raise StudyError(source, [Problem(line_of(text, path), dotted(path), what) for path, what in wrong])
    return study


def _wrong_settings(study: VirtualStudy) -> Iterator[Wrong]:
    """Parameters that are varied, and that a scenario of the study does not have."""
    told = set()
    for step in plan(study):
        if not isinstance(step, FlowsStep):
            continue
        try:
            scenario(step)
        except KeyError as error:
            name = str(error.args[0])
            if name not in told:
                told.add(name)
                what = f"{name} is no number or word of this test's scenario on link {step.link.id}"
                yield (
                    ("test", study.test.index(step.test), "vary", name),
                    f"{what}; docs/networks.md tells how to see it",
                )


def _contradictions(study: VirtualStudy, known_claims: Collection[str]) -> Iterator[Wrong]:
    if study.fabric.host not in profiles.hosts():
        yield ("fabric", "host"), unknown("host profile", study.fabric.host, profiles.hosts())
    for index, claim in enumerate(study.claims):
        if known_claims and claim not in known_claims:
            yield ("claims", index), unknown("claim", claim, known_claims)
    for at, link in enumerate(study.link):
        if link.id in [other.id for other in study.link[:at]]:
            yield ("link", at, "id"), f"{link.id} is there already"
        yield from _wrong_link(at, link)
    for at, test in enumerate(study.test):
        if isinstance(test, FlowsTable):
            yield from wrong_flows(study, at, test)
            yield from _wrong_adapters(study, at, test)
        elif isinstance(test, TestTable):
            yield from _wrong_test(study, at, test)
        else:
            yield from wrong_job(study, at, test)


def _wrong_link(at: int, link: LinkTable) -> Iterator[Wrong]:
    for index, name in enumerate(link.switches):
        if name not in profiles.switches():
            yield ("link", at, "switches", index), unknown("switch profile", name, profiles.switches())
    if link.topology != "back-to-back" and not link.switches:
        yield ("link", at, "topology"), f"{link.topology} needs switches = [...]: {', '.join(profiles.switches())}"
    if link.topology == "leaf-spine" and (link.hosts_per_rack is None) == (link.racks is None):
        yield ("link", at, "topology"), "leaf-spine needs hosts_per_rack, or racks, and not both"
    yield from _wrong_congestion_control(at, link)
    needed = {
        "leaf-spine": ("spines", "uplink_gbps"),
        "fat-tree": ("radix",),
        "dragonfly": ("hosts_per_switch", "switches_per_group", "global_cables", "global_gbps"),
        "rails": ("rails", "nodes_per_group", "spines", "uplink_gbps"),
        "listed": ("cables",),
    }
    for key in needed.get(link.topology, ()):
        if not getattr(link, key):
            yield ("link", at, "topology"), f"{link.topology} needs {key}"
    for index, incident in enumerate(link.incidents):
        if (incident.host is None) == (incident.switch is None):
            yield ("link", at, "incidents", index), "an incident is at a host or at a switch"
        elif (incident.what == "switch") != isinstance(incident.switch, int):
            what = "switch = 3 for a switch as a whole, and host or switch = [3, 0] for a port"
            yield ("link", at, "incidents", index), f"an incident names its place as {what}"


def _wrong_congestion_control(at: int, link: LinkTable) -> Iterator[Wrong]:
    named = link.congestion_control
    if named in BY_MARKS and not link.ecn:
        yield ("link", at, "congestion_control"), f"{named} acts on marks of switches: set ecn = true"
    if link.ecn_step_bytes_per_25g is not None and not link.ecn:
        yield ("link", at, "ecn_step_bytes_per_25g"), "without ecn = true no switch marks"
    if named is None and link.congestion_parameters:
        yield ("link", at, "congestion_parameters"), "name the congestion_control that they are of"
        return
    for name in link.congestion_parameters:
        allowed = allowed_parameters(algorithm_of(link))
        if name not in allowed:
            key = ("link", at, "congestion_parameters", name)
            yield key, unknown(f"parameter of {algorithm_of(link)}", name, allowed)


def _wrong_test(study: VirtualStudy, at: int, test: TestTable) -> Iterator[Wrong]:
    if test.test not in TESTS[test.level]:
        yield ("test", at, "test"), f"level {test.level} has no test {test.test}; it has {', '.join(TESTS[test.level])}"
        return
    if not test.every_size_bytes():
        yield ("test", at, "sizes_bytes"), "the range is empty: 'from' is larger than 'to'"
    if test.test in MANY_NODES and len(test.every_size_bytes()) > 1:
        yield ("test", at, "sizes_bytes"), f"{test.test} runs over nodes and takes one size"
    if is_collective(test.test):
        for nodes in test.nodes:
            ranks = test.ranks_of(nodes)
            if nodes % (test.stride * ranks):
                key = "ranks" if test.file is None else "nodes"
                yield ("test", at, key), f"{nodes} hosts are not groups of {ranks} ranks {test.stride} apart"
    elif test.ranks is not None or test.stride > 1:
        yield ("test", at, "ranks"), f"{test.test} has no ranks; {', '.join((*COLLECTIVES, MSCCL))} have"
    yield from wrong_schedule(study, at, test)
    if test.chunk_bytes is not None and test.test not in TREES:
        yield ("test", at, "chunk_bytes"), f"{test.test} has no chunks; {', '.join(TREES)} has"
    if test.tap is not None and (test.tap.host is None) == (test.tap.switch is None):
        yield ("test", at, "tap"), "a tap is at a host or at a switch"
    yield from _wrong_adapters(study, at, test)


def _wrong_adapters(study: VirtualStudy, at: int, test: TestTable | FlowsTable) -> Iterator[Wrong]:
    """What is wrong with the links, stacks and adapters of a test."""
    links = [link.id for link in study.link]
    for link in test.links or ():
        if link not in links:
            yield ("test", at, "links"), unknown("link", link, links)
    for service, name in test.stacks.items():
        if name not in profiles.stacks():
            yield ("test", at, "stacks", service), unknown("stack profile", name, profiles.stacks())
    for name in test.variants:
        yield from _wrong_variants(study, at, test, name)


def _wrong_variants(study: VirtualStudy, at: int, test: TestTable | FlowsTable, name: str) -> Iterator[Wrong]:
    """What an adapter is asked for that it, or a link, does not have."""
    key = ("test", at, "variants", name)
    if name not in profiles.adapters():
        yield key, unknown("adapter profile", name, profiles.adapters())
        return
    adapter = profiles.adapter(name)
    if adapter.service not in test.stacks:
        yield key, f"{name} needs stacks.{adapter.service}: {', '.join(profiles.stacks())}"
    allowed = variants_of(test.test, adapter.service)
    for variant in test.variants[name]:
        if variant not in allowed:
            yield key, unknown("variant", variant, allowed)
    for link in study.links_of(test):
        yield from _wrong_pairing(at, name, link)
        if link.congestion_control in BY_ACKNOWLEDGEMENTS:
            named = f"link {link.id} has {link.congestion_control}, which"
            if adapter.software is not None:
                yield key, f"{named} needs an adapter in hardware, and {name} is software"
            if "read" in test.variants[name]:
                yield key, f"{named} acts on acknowledgements, and the data of a READ has none: take send or write"


def _wrong_pairing(at: int, name: str, link: LinkTable) -> Iterator[Wrong]:
    adapter = profiles.adapter(name)
    if link.topology == "back-to-back":
        return
    if adapter.service == "sockets":
        yield ("test", at, "variants", name), f"{name}: sockets are simulated between two hosts without a switch only"
    known = [profiles.switches()[each].kind for each in link.switches if each in profiles.switches()]
    if adapter.port.kind not in known:
        yield ("test", at, "variants", name), f"{name} is {adapter.port.kind}, and link {link.id} has no such switch"
