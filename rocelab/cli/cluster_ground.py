"""``rocelab run --cluster``: simulated hardware, on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from rocelab.cli.grounds import Opened, VirtualGround, memory_lines, say_missing, too_large
from rocelab.cli.problems import fail, say
from rocelab.results import LinkInfo, Provenance, RunStore
from rocelab.stats import text
from rocelab.study.adaptive import Course
from rocelab.study.provenance import provenance
from rocelab.study.runner import Outcome
from rocelab.study.steps import Step
from rocelab.virtual.cluster.crew import Cluster, Named, OnCluster, reached
from rocelab.virtual.runner import AnyStep, SimulationWatcher, VirtualRunner
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.steps import link_info, simulations


@dataclass
class _OnWorkers:
    """Simulated hardware, on the workers of a cluster."""

    cluster: Cluster
    tools: Mapping[str, str]
    links: tuple[LinkInfo, ...]
    hosts: None = None

    def provenance(self, command: str, steps: Sequence[Step]) -> Provenance:
        found = provenance(command, steps, VirtualGround.kind)
        where = f"simulated by {text.plural(len(self.cluster.workers), 'worker')} of a Dask cluster, at its start"
        return dataclasses.replace(found, tools={**found.tools, **self.tools}, notes=(*found.notes, where))

    def run(
        self,
        store: RunStore,
        steps: Sequence[Step],
        watcher: SimulationWatcher,
        course: Course | None,  # noqa: ARG002, it comes out the same each time
    ) -> Outcome:
        crew = OnCluster(self.cluster, store, self.tools, watcher)
        return VirtualRunner(store, watcher, self.tools).run(simulations(steps), crew)


class ClusterGround(VirtualGround):
    """Hardware that is simulated on a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tools: Mapping[str, str] = {}

    @override
    def check(self, steps: Sequence[Step], *, skip_missing: bool) -> None:
        if self._cluster.has_jobs:
            say("Waiting for a job of Slurm to start.")
        wanted: list[AnyStep] = simulations(steps)
        facts = self._cluster.ask(wanted)
        hosts = {each.host: each for each in facts.values()}
        lines = [f"  on {host}: {line}" for host, each in sorted(hosts.items()) for line in each.missing]
        say_missing(lines, skip_missing=skip_missing)
        for tool in sorted({tool for each in hosts.values() for tool in each.tools}):
            versions = {each.tools.get(tool): host for host, each in hosts.items() if each.tools}
            if len(versions) > 1:
                found = text.listing([f"{version} on {host}" for version, host in versions.items()])
                fail("run", f"the machines of the cluster have other versions of {tool}: {found}; install the same")
        self._tools = next((each.tools for each in hosts.values() if each.tools), {})
        least = min(hosts.values(), key=lambda each: each.available_bytes)
        if lines := memory_lines(wanted, least.available_bytes):
            fail("run", too_large(lines, least.available_bytes, f" on {least.host}"))

    @override
    @contextlib.contextmanager
    def open(self, study: VirtualStudy) -> Iterator[Opened]:
        yield _OnWorkers(self._cluster, self._tools, tuple(link_info(study, link) for link in study.link))


@contextlib.contextmanager
def on_cluster(named: str) -> Iterator[ClusterGround]:
    """The cluster that a person names. Raises FabricError."""
    with reached(Named.parse(named)) as cluster:
        yield ClusterGround(cluster)
