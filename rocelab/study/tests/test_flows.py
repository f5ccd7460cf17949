"""Which nodes send to which."""

from __future__ import annotations

import itertools

import pytest

from rocelab.study.flows import FLOW_TESTS, FlowTest, flows


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_a_mesh_has_each_pair_both_ways(nodes: int) -> None:
    assert sorted(itertools.chain(*flows("mesh", nodes))) == sorted(itertools.permutations(range(nodes), 2))


def test_an_incast_goes_to_the_first() -> None:
    assert flows("incast", 4) == [[(1, 0), (2, 0), (3, 0)]]


def test_each_flow_of_a_bisection_crosses_the_middle() -> None:
    (batch,) = flows("bisection", 6)
    assert sorted(batch) == [(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)]


@pytest.mark.parametrize("test", FLOW_TESTS)
def test_no_node_sends_twice_in_a_batch_or_to_itself(test: FlowTest) -> None:
    for batch in flows(test, 8):
        senders = [sender for sender, _ in batch]
        assert len(senders) == len(set(senders))
        assert all(sender != receiver for sender, receiver in batch)
