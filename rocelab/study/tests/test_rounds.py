"""The tournament: each pair once, and no node twice in a round."""

from __future__ import annotations

from itertools import combinations

import pytest

from rocelab.study.rounds import both_ways, in_parts, tournament


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 15, 16, 64])
def test_every_pair_meets_once_and_no_node_is_in_two_pairs_of_a_round(nodes: int) -> None:
    rounds = tournament(nodes)
    assert sorted(pair for each in rounds for pair in each) == list(combinations(range(nodes), 2))
    for each in rounds:
        taking_part = [node for pair in each for node in pair]
        assert len(taking_part) == len(set(taking_part)) == 2 * (nodes // 2)


def test_a_thousand_hosts_take_as_many_rounds_as_a_host_has_others() -> None:
    assert len(tournament(1000)) == 999


def test_both_ways_follow_each_other() -> None:
    assert both_ways(tournament(3)) == [[(1, 2)], [(2, 1)], [(0, 2)], [(2, 0)], [(0, 1)], [(1, 0)]]


def test_rounds_can_be_of_fewer_pairs() -> None:
    parts = in_parts(tournament(16), 3)
    assert max(map(len, parts)) == 3
    assert sorted(pair for each in parts for pair in each) == list(combinations(range(16), 2))
    assert in_parts(tournament(5), None) == tournament(5)
