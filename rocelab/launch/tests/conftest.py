"""A fabric to launch programs on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile


@pytest.fixture(scope="session")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        made = emulated.up([LinkProfile("direct", "direct")])
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made
