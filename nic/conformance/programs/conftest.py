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
from .running import LINK, LINK_MTU_BYTES, Outcome, run, worker_count


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Future[Outcome]]]:
    """The outcome of each selected entry, by its id; waits for none."""
    entries = [entry for item in request.session.items if (entry := _entry_of(item)) is not None]
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

        def on_a_free_fabric(entry: Entry) -> Outcome:
            fabric = fabrics.get()
            try:
                return run(entry, fabric)
            finally:
                fabrics.put(fabric)

        yield {entry.id: pool.submit(on_a_free_fabric, entry) for entry in entries}


def _entry_of(item: pytest.Item) -> Entry | None:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    entry = item.callspec.params.get("entry")
    return entry if isinstance(entry, Entry) else None
