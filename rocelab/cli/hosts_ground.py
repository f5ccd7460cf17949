"""Studies on machines of one's own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from rocelab.cli.grounds import Ground, Opened, say_missing
from rocelab.cli.problems import fail, say
from rocelab.fabric.base import LaunchError
from rocelab.hosts import programs, studies
from rocelab.hosts.check import findings
from rocelab.hosts.fabric import HostsFabric, ask_programs
from rocelab.hosts.inventory import folded
from rocelab.hosts.launcher import HostsLauncher
from rocelab.hosts.load import HostsMeter
from rocelab.results import LinkInfo, Provenance, RunStore
from rocelab.study.adaptive import Course
from rocelab.study.plan import plan
from rocelab.study.provenance import provenance
from rocelab.study.runner import Outcome, Runner
from rocelab.study.schema import Study
from rocelab.study.steps import Step
from rocelab.virtual.runner import SimulationWatcher


class HostsGround(Ground[Study]):
    """Hosts that are there, for all studies of a command."""

    kind = "hosts"

    def __init__(self, fabric: HostsFabric, *, stage: bool, named: str | None) -> None:
        """`stage`: copy rocelab's own programs to hosts that lack them. `named`: how a person named the hosts."""
        self._named = named
        self._fabric = fabric
        self._stage = stage
        self._places: programs.Places = {}

    @override
    def fitting(self, study: Study) -> tuple[Study, tuple[str, ...]]:
        hosts, site = self._fabric, self._fabric.inventory.table.mpi
        return studies.adapted(study, [*hosts.rails.values()], len(hosts.nodes), site, hosts.switches)

    @override
    def steps(self, study: Study) -> list[Step]:
        return studies.on_hosts(plan(study))

    @override
    def check(self, steps: Sequence[Step], *, skip_missing: bool) -> None:
        wanted = studies.programs_of(steps, self._fabric.inventory.table.mpi.start)
        self._places, missing = programs.find(self._fabric, wanted)
        ours = {program: hosts for program, hosts in missing.items() if programs.can_be_staged(program)}
        if self._stage and ours:
            try:
                programs.stage(self._fabric, self._places, ours)
            except LaunchError as failure:
                fail("run", failure)
            missing = {program: hosts for program, hosts in missing.items() if program not in ours}
        lines = []
        for program, hosts in missing.items():
            advice = "--stage copies this machine's for the time of the run" if program in ours else wanted[program]
            lines.append(f"  {Path(program).name} on {folded(hosts)}: {advice}")
        say_missing(lines, skip_missing=skip_missing)

    @override
    @contextlib.contextmanager
    def open(self, study: Study) -> Iterator[Opened]:
        chosen = {link.id for link in study.link}
        links = tuple(studies.link_info(rail) for rail in self._fabric.rails.values() if rail.id in chosen)
        yield _OnHosts(self._fabric, self._places, links, self._named)


@dataclass
class _OnHosts:
    """The hosts, for one study."""

    fabric: HostsFabric
    places: programs.Places
    links: tuple[LinkInfo, ...]
    hosts: str | None

    def provenance(self, command: str, steps: Sequence[Step]) -> Provenance:
        """The first host's, with what differs on others as notes."""
        found = provenance(command, [], HostsGround.kind)
        system = next(iter(self.fabric.facts.values()))["system"]
        clocks = {name: session.clock for name, session in self.fabric.sessions.items()}
        names = folded([node.name for node in self.fabric.nodes])
        notes = [
            f"Hosts, by {self.fabric.inventory.launcher}: {names}. Machine and system are those of the first.",
            *(f"{each}." for each in findings(self.fabric.facts, [*self.fabric.rails.values()], clocks)),
        ]
        return dataclasses.replace(
            found,
            machine=system["machine"],
            cpu_model=system.get("cpu_model", "unknown"),
            cores=system["cores"],
            memory_bytes=round(system["memory_gib"] * 2**30),
            kernel=system["kernel"],
            distribution=system.get("distribution", "unknown"),
            governor=system.get("governor"),
            tools=self._tools(steps),
            notes=tuple(notes),
            network={
                "address_family": "IPv4",
                "may_send_frames": system["may_send_frames"],
                **(
                    {"net.ipv4.tcp_congestion_control": system["congestion_control"]}
                    if "congestion_control" in system
                    else {}
                ),
            },
        )

    def _tools(self, steps: Sequence[Step]) -> Mapping[str, str]:
        """Versions on the first host, by the names that samples have."""
        first = self.fabric.nodes[0].name
        executables = {step.tool: step.executables[0].name for step in steps}
        at = {tool: self.places[first].get(name, name) for tool, name in executables.items()}
        said = ask_programs(self.fabric.sessions[first], sorted(set(at.values())))
        return {tool: said.get(place, {}).get("version", "unknown") for tool, place in sorted(at.items())}

    def run(self, store: RunStore, steps: Sequence[Step], watcher: SimulationWatcher, course: Course | None) -> Outcome:
        tools = self._tools(steps)
        launcher = HostsLauncher(self.fabric, self.places)
        try:
            meter = HostsMeter(self.fabric.sessions)
            return Runner(store, self.fabric, launcher, watcher, tools, course=course, meter=meter).run(steps)
        finally:
            for session in self.fabric.sessions.values():
                if session.lost is not None:
                    say(session.lost)
