"""What is wrong with a test that SimGrid is to run, beyond what a single key shows."""

from __future__ import annotations

from collections.abc import Iterator

from rocelab import profiles
from rocelab.study.problems import Wrong, unknown
from rocelab.tools import mpi_tests, nas
from rocelab.tools.rocelab_mpi import RocelabMpi
from rocelab.virtual.schema import SmpiNasTable, SmpiTable, SmpiTestTable, VirtualStudy


def wrong_job(study: VirtualStudy, at: int, test: SmpiTable) -> Iterator[Wrong]:
    """Each with the key that it is about."""
    links = [link.id for link in study.link]
    for link in test.links or ():
        if link not in links:
            yield ("test", at, "links"), unknown("link", link, links)
    if test.mpi not in profiles.mpis():
        yield ("test", at, "mpi"), unknown("MPI library", test.mpi, profiles.mpis())
    for service, name in test.stacks.items():
        if name not in profiles.stacks():
            yield ("test", at, "stacks", service), unknown("stack profile", name, profiles.stacks())
    yield from _wrong_nodes(study, at, test)
    for name in test.variants:
        for what in _wrong_adapter(study, test, name):
            yield ("test", at, "variants", name), what
    if isinstance(test, SmpiNasTable):
        yield from _wrong_nas(study, at, test)
    elif isinstance(test, SmpiTestTable):
        yield from _wrong_benchmark(at, test)


def _wrong_nodes(study: VirtualStudy, at: int, test: SmpiTable) -> Iterator[Wrong]:
    host = profiles.hosts().get(study.fabric.host)
    if host is None:
        return  # which has been reported
    if host.cores is None or host.memory_gbps is None:
        fitting = [name for name, each in profiles.hosts().items() if each.cores and each.memory_gbps]
        what = f"the profile {study.fabric.host} does not say how many cores it has, and how fast its memory is"
        yield ("test", at, "mpi"), f"{what}; those that do: {', '.join(fitting)}"
    elif test.ranks_per_node > host.cores:
        what = f"{test.ranks_per_node} processes are more than the cores of {study.fabric.host}: {host.cores}"
        yield ("test", at, "ranks_per_node"), what


def _wrong_adapter(study: VirtualStudy, test: SmpiTable, name: str) -> Iterator[str]:
    if name not in profiles.adapters():
        yield unknown("adapter profile", name, profiles.adapters())
        return
    adapter = profiles.adapter(name)
    if adapter.service not in test.stacks:
        yield f"{name} needs stacks.{adapter.service}: {', '.join(profiles.stacks())}"
    if adapter.software is not None:
        yield f"{name} is software, which SimGrid knows nothing of; tests without mpi = ... simulate it"
    for link in study.link:
        if test.links is not None and link.id not in test.links:
            continue
        kinds = [profiles.switches()[each].kind for each in link.switches if each in profiles.switches()]
        if link.topology != "one-switch":
            yield f"link {link.id} is {link.topology}: MPI programs are simulated on one-switch"
        elif adapter.port.kind not in kinds:
            yield f"{name} is {adapter.port.kind}, and link {link.id} has no such switch"


def _wrong_benchmark(at: int, test: SmpiTestTable) -> Iterator[Wrong]:
    sizes_bytes = test.every_size_bytes()
    if not sizes_bytes:
        yield ("test", at, "sizes_bytes"), "the range is empty: 'from' is larger than 'to'"
    elif not mpi_tests.has_sizes(test.test):
        yield ("test", at, "sizes_bytes"), f"{test.test} has no message size, and only tests with sizes are simulated"
    elif (problem := RocelabMpi(test.test, "smpi", None).problem(sizes_bytes, test.ranks)) is not None:
        yield ("test", at, "test"), f"rocelab-mpi: {problem}"


def _wrong_nas(study: VirtualStudy, at: int, test: SmpiNasTable) -> Iterator[Wrong]:
    for key, chosen in (("programs", test.programs), ("classes", test.classes)):
        if len(set(chosen)) < len(chosen):
            yield ("test", at, key), "the same is there twice"
    for program in dict.fromkeys(test.programs):
        if (problem := nas.ranks_problem(program, test.ranks)) is not None:
            yield ("test", at, "programs"), problem
    if test.calibration is None:
        return
    for what in _wrong_adapter(study, test, test.calibration.adapter):
        yield ("test", at, "calibration", "adapter"), what
    tests = {f"{program}.{problem_class}" for program, problem_class in test.pairs}
    for name in sorted(tests - set(test.calibration.time_s)):
        yield ("test", at, "calibration", "time_s"), f"{name} is missing: how long does it take?"
    for name in sorted(set(test.calibration.time_s) - tests):
        yield ("test", at, "calibration", "time_s", name), f"this test does not run {name}"
