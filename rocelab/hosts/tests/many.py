"""Sixty-four hosts on this machine, by ssh: `make test-many`, whose figures docs/hosts.md has."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rocelab.cli.tests.on_hosts import samples_in
from rocelab.fabric.base import LinkProfile
from rocelab.hosts import studies
from rocelab.hosts.fabric import up
from rocelab.hosts.inventory import find
from rocelab.hosts.launcher import HostsLauncher
from rocelab.hosts.load import HostsMeter
from rocelab.hosts.tests.cluster import ssh_cluster
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.runner import Runner
from rocelab.study.tests import small

NODES = 64
STUDY = """\
schema = 1
id = "many"
title = "All pairs of many hosts"
repetitions = 1
time_limit_s = 60

[[link]]
id = "any"
kind = "bridge"

[[test]]
level = "pairs"
test = "latency"
point_ms = 1

[test.variants]
tcp = ["blocking"]
"""


#: How many neighbours the kernel knows, of all namespaces of a machine together
#: (Documentation/networking/ip-sysctl).
NEIGHBOURS = [Path(f"/proc/sys/net/ipv4/neigh/default/gc_thresh{at}") for at in (1, 2, 3)]


@pytest.fixture
def room_for_neighbours() -> Iterator[None]:
    """Each of 64 hosts knows 63 others; the usual limit is 1024."""
    before = [path.read_text() for path in NEIGHBOURS]
    try:
        for path in NEIGHBOURS:
            path.write_text(str(4 * NODES * NODES))
    except OSError as error:
        pytest.skip(f"{path} cannot be changed: {error.strerror}")
    yield
    for path, value in zip(NEIGHBOURS, before, strict=True):
        path.write_text(value)


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")


@pytest.mark.fabric
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("room_for_neighbours")
def test_sixty_four_hosts_are_reached_asked_and_measured(tmp_path: Path) -> None:
    with ssh_cluster(tmp_path, [LinkProfile("b", "bridge")], NODES) as cluster:
        started_s = time.monotonic()
        with up(find(str(cluster.hosts_toml()))) as hosts:
            say(f"{NODES} hosts are up, with what they are: {time.monotonic() - started_s:.1f} s")
            started_s = time.monotonic()
            answers = [session.submit("sent-bytes", interface="lo") for session in hosts.sessions.values()]
            assert all("bytes" in answer.result(60) for answer in answers)
            say(f"a question to all: {1000 * (time.monotonic() - started_s):.0f} ms")
            study, _ = studies.adapted(parse(STUDY, "many"), [*hosts.rails.values()], NODES)
            with closing(small.store(tmp_path / "results")) as store:
                started_s = time.monotonic()
                steps = studies.on_hosts(plan(study))
                outcome = Runner(
                    store, hosts, HostsLauncher(hosts), small.Seen(), {}, meter=HostsMeter(hosts.sessions)
                ).run(steps)
                say(f"{len(steps)} rounds of {NODES // 2} pairs: {time.monotonic() - started_s:.1f} s")
            assert outcome.failed == 0
            samples = [*samples_in(tmp_path / "results")]
            assert len(samples) == NODES * (NODES - 1) // 2
            size_bytes = sum(each.stat().st_size for each in (tmp_path / "results").glob("*/samples.ndjson"))
            say(f"{size_bytes / len(samples):.0f} bytes of results for a pair")
            started_s = time.monotonic()
        say(f"all gone: {time.monotonic() - started_s:.1f} s")
        say(f"memory of the controller: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
