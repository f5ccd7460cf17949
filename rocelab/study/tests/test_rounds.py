"""The tournament: each pair once, and no node twice in a round."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from rocelab.study.rounds import both_ways, in_parts, in_turns, tournament


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 15, 16, 64])
def test_every_pair_meets_once_and_a_node_once_in_a_round(nodes: int) -> None:
    rounds = tournament(nodes)
    assert sorted(pair for each in rounds for pair in each) == list(combinations(range(nodes), 2))
    for each in rounds:
        taking_part = [node for pair in each for node in pair]
        assert len(taking_part) == len(set(taking_part)) == 2 * (nodes // 2)


def test_a_thousand_hosts_take_as_many_rounds_as_one_has_others() -> None:
    assert len(tournament(1000)) == 999


def test_both_ways_follow_each_other() -> None:
    assert both_ways(tournament(3)) == [[(1, 2)], [(2, 1)], [(0, 2)], [(2, 0)], [(0, 1)], [(1, 0)]]


def test_rounds_can_be_of_fewer_pairs() -> None:
    parts = in_parts(tournament(16), 3)
    assert max(map(len, parts)) == 3
    assert sorted(pair for each in parts for pair in each) == list(combinations(range(16), 2))
    assert in_parts(tournament(5), None) == tournament(5)


def test_the_limit_of_a_switch_counts_pairs_that_leave_it_only() -> None:
    def switch_of(node: int) -> str:
        return f"switch{node // 4}"

    rounds = tournament(16)
    made = in_turns(rounds, switch_of, 1)
    assert sorted(pair for part in made for pair in part) == sorted(pair for each in rounds for pair in each)
    for part in made:
        nodes = [node for pair in part for node in pair]
        assert len(nodes) == len(set(nodes))
        leaving = Counter(
            switch
            for one, other in part
            for switch in {switch_of(one), switch_of(other)}
            if switch_of(one) != switch_of(other)
        )
        assert max(leaving.values(), default=0) <= 1
    assert in_turns([[(0, 1), (2, 3), (4, 5)]], switch_of, 1) == [[(0, 1), (2, 3), (4, 5)]]
    assert in_turns([[(0, 4), (1, 5), (2, 3)]], switch_of, 1) == [[(0, 4), (2, 3)], [(1, 5)]]


def test_without_switches_or_a_limit_rounds_stay_as_they_are() -> None:
    rounds = tournament(8)
    assert in_turns(rounds, lambda _: None, 1) == rounds
    assert in_turns(rounds, str, None) == rounds
