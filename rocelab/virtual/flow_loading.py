"""What is wrong with a test of flows, beyond what a single key shows."""

from __future__ import annotations

from collections.abc import Iterator

from rocelab import profiles
from rocelab.study.problems import Wrong, unknown
from rocelab.virtual.flow_tables import FIXED, FlowsTable
from rocelab.virtual.schema import VirtualStudy


def wrong_flows(study: VirtualStudy, at: int, test: FlowsTable) -> Iterator[Wrong]:
    """Each with the key that it is about."""
    known = [FIXED, *profiles.workloads()]
    if test.test not in known:
        yield ("test", at, "test"), unknown("workload", test.test, known)
    if (test.test == FIXED) != (test.size_bytes is not None):
        yield ("test", at, "size_bytes"), f"flows of {FIXED} have size_bytes, and those of a workload have sizes of it"
    if test.warmup_flows >= test.flows:
        yield ("test", at, "warmup_flows"), f"with {test.warmup_flows} of {test.flows} flows, none is left that counts"
    for key in ("nodes", "loads"):
        values = getattr(test, key)
        if len(set(values)) < len(values):
            yield ("test", at, key), "the same value is there twice"
    if test.incast is not None and test.incast.senders >= min(test.nodes):
        yield ("test", at, "incast", "senders"), f"{min(test.nodes)} hosts have at most {min(test.nodes) - 1} senders"
    for at_link, link in enumerate(study.link):
        if link in study.links_of(test) and link.topology == "back-to-back" and test.nodes != [2]:
            yield ("link", at_link, "topology"), "back-to-back joins two hosts, and the test of flows has others"
