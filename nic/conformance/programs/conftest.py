"""Runs all selected entries of the matrix in the background as soon as the first of their tests starts."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile

from .matrix import Entry
from .running import LINK, LINK_MTU_BYTES, Job, Outcome, rdma_core_release, run, worker_count


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the matrix run in another userland: an option of commands that name this folder."""
    parser.addoption("--distro", help="run the matrix in the userland of this distribution: trixie or sid")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is meant for another release of rdma-core."""
    other = [item for item in items if (job := _job_of(item)) and not job[1].is_for(rdma_core_release(job[0]))]
    if other:
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in other]


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Mapping[Job, Future[Outcome]]]:
    """The outcome of each selected entry, by its userland and id; waits for none."""
    entries = [job for item in request.session.items if (job := _job_of(item)) is not None]
    with contextlib.ExitStack() as stack:
        fabrics: queue.SimpleQueue[emulated.EmulatedFabric] = queue.SimpleQueue()
        for _ in range(min(worker_count(), len(entries))):
            try:
                # Two nodes to run on. The bridge is what lets packets be as long as RDMA's longest.
                fabrics.put(stack.enter_context(emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)])))
            except FabricError as error:
                pytest.skip(f"no emulated fabric on this machine: {error}")
        pool = stack.enter_context(ThreadPoolExecutor(worker_count()))
        stack.callback(pool.shutdown, cancel_futures=True)

        def on_a_free_fabric(distro: str | None, entry: Entry) -> Outcome:
            fabric = fabrics.get()
            try:
                return run(entry, fabric, distro)
            finally:
                fabrics.put(fabric)

        yield {(distro, entry.id): pool.submit(on_a_free_fabric, distro, entry) for distro, entry in entries}


@pytest.fixture
def distro(request: pytest.FixtureRequest) -> str | None:
    """The userland that was asked for."""
    return _asked_for(request.config)


def _asked_for(config: pytest.Config) -> str | None:
    """The userland that was asked for; None for this machine's."""
    name: str | None = config.getoption("--distro", None)
    return name


def _job_of(item: pytest.Item) -> tuple[str | None, Entry] | None:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    entry, distro = item.callspec.params.get("entry"), item.callspec.params.get("distro")
    if not isinstance(entry, Entry):
        return None
    return (distro if isinstance(distro, str) else _asked_for(item.config)), entry
