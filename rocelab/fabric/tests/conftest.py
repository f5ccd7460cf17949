"""What the tests of the emulated fabric share: one fabric with both kinds of link, and when it is possible."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile

DIRECT = LinkProfile("direct", "direct")
ETHERNET_1G = LinkProfile("ethernet-1g", "bridge", mtu_bytes=1500, rate_mbps=1000)


@pytest.fixture(scope="session")
def can_emulate() -> None:
    """Skip, saying why, where this machine cannot make an emulated fabric at all."""
    try:
        emulated.up([DIRECT]).close()
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")


@pytest.fixture(scope="module")
def fabric(can_emulate: None) -> Iterator[emulated.EmulatedFabric]:
    with emulated.up([DIRECT, ETHERNET_1G]) as made:
        yield made
