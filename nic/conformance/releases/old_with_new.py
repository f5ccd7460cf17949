"""Each release of urxe with the urxe that is built here, on one network: part of `make test-distros`.

What the two tell each other beyond RoCE has to be understood by both: what arrives early is kept, a queue pair that
ends says so, a WRITE goes as several, and an acknowledgement stands in the header of a reply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

import pytest
from programs.matrix import Entry, read
from programs.running import LINK, LINK_MTU_BYTES, run
from programs.test_matrix import judge

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.fabric.emulated import EmulatedFabric
from rocelab.tools.interconnects import urxe

from .builds import HERE, MissingError, Release, program
from .builds import read as read_releases

ENTRIES: Final = read(HERE / "matrix")
#: Of what both ends send. With loss, what arrives early is kept for what is missing.
NETWORKS: Final = {"clean": (), "loss": ("--loss", "1%"), "disorder": ("--loss", "0.5%", "--reorder", "1%")}

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def fabric() -> Iterator[EmulatedFabric]:
    """Two nodes."""
    try:
        with emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)]) as made:
            yield made
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")


@pytest.fixture(params=["server", "client"])
def ends(request: pytest.FixtureRequest, release: Release) -> tuple[str, str]:
    """The command urxe of the server and that of the client: one is the release's, the other is today's."""
    try:
        old = str(program(release))
    except MissingError as error:
        pytest.skip(str(error))
    return (old, urxe().name) if request.param == "server" else (urxe().name, old)


EACH_RELEASE: Final = pytest.mark.parametrize("release", read_releases(), ids=lambda release: release.version)


@EACH_RELEASE
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_a_release_and_today(fabric: EmulatedFabric, ends: tuple[str, str], entry: Entry, network: str) -> None:
    options = NETWORKS[network]
    if options and entry.ready == "cm":
        # A client's word that it disconnects may be lost, and it has ended then: its server waits.
        entry = dataclasses.replace(entry, server_stays=True, server_proves=())
    server, client = ((end, "run", *options) for end in ends)
    judge(run(entry, fabric, devices=(server, client)))
