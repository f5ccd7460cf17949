"""Draws of what profiles assume."""

from __future__ import annotations

import threading

import pytest

from rocelab import profiles
from rocelab.profiles import ProfileError
from rocelab.profiles.drawing import AssumedName, drawn, draws
from rocelab.profiles.freeze import current
from rocelab.profiles.model import find

USED = [("hosts", "nehalem-ep"), ("adapters", "roce-40g"), ("adapters", "infiniband-fdr"), ("stacks", "mpi-verbs")]
POSTED = AssumedName("hosts", "nehalem-ep", "posted_ns")


def part(draw: dict[AssumedName, float], name: AssumedName) -> float:
    low, high = find(name.kind, name.profile).assumed[name.key]
    return (draw[name] - low) / (high - low)


def test_a_hypercube_has_each_part_of_each_range_once() -> None:
    made = [dict(draw) for draw in draws(USED, 10, 1)]
    of_host = sorted(part(draw, POSTED) for draw in made)
    assert all(index <= 10 * each + 0.1 and 10 * each - 0.1 <= index + 1 for index, each in enumerate(of_host))


def test_values_of_one_name_are_at_the_same_part_of_their_ranges() -> None:
    for draw in draws(USED, 5, 1):
        roce, infiniband = (part(dict(draw), AssumedName("adapters", *each)) for each in ROCE_AND_INFINIBAND)
        assert roce == pytest.approx(infiniband, abs=0.01)
        assert dict(draw)[AssumedName("stacks", "mpi-verbs", "inline_bytes")] % 1 == 0


ROCE_AND_INFINIBAND = (("roce-40g", "send_ns"), ("infiniband-fdr", "send_ns"))


def test_draws_are_the_same_for_the_same_seed_alone() -> None:
    assert draws(USED, 5, 1) == draws(reversed(USED), 5, 1)
    assert draws(USED, 5, 1) != draws(USED, 5, 2)


def test_a_drawn_value_is_that_of_the_profile_meanwhile_and_in_this_thread_alone() -> None:
    before, digests = profiles.host("nehalem-ep"), current()
    elsewhere = []
    with drawn({POSTED: 77}):
        assert profiles.host("nehalem-ep").posted_ns == profiles.hosts()["nehalem-ep"].posted_ns == 77
        assert profiles.host("nehalem-ep").read_latency_ns == before.read_latency_ns
        thread = threading.Thread(target=lambda: elsewhere.append(profiles.host("nehalem-ep")))
        thread.start()
        thread.join()
    assert elsewhere == [before] == [profiles.host("nehalem-ep")]
    assert current() == digests


def test_a_value_out_of_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"assumed\.posted_ns: 9000 is not from"), drawn({POSTED: 9000}):
        pass


def test_names_are_read_as_they_are_written() -> None:
    name = AssumedName("mpis", "mvapich2-1.8", "copy_gbps")
    assert AssumedName.read(str(name)) == name
    with pytest.raises(ValueError, match="posted_ns"):
        AssumedName.read("posted_ns")
    with pytest.raises(ProfileError, match="there is no profile hosts/abacus"):
        draws([("hosts", "abacus")], 2, 1)
    assert draws([("workloads", "websearch")], 2, 1) == [{}, {}]
