"""What stands out among all pairs: told from values that are made up, so that the truth is known."""

from __future__ import annotations

import random
from itertools import permutations

import pytest

from rocelab.stats.pairs import NODES_MIN, Pair, switches_apart, taken_apart

NODES = [f"node{at:02}" for at in range(1, 17)]


def made_up(seed: int, *, noise: float = 0.02, nodes: list[str] = NODES) -> dict[Pair, float]:
    """Bandwidths of every pair, both ways, with a part of noise."""
    drawn = random.Random(seed)
    return {
        (one, other): 940.0 * drawn.gauss(1.0, noise) for one in nodes for other in nodes if one != other
    }  # fmt: skip


def repeated(values: dict[Pair, float]) -> dict[Pair, list[float]]:
    """Twice the same."""
    return {pair: [value, value] for pair, value in values.items()}


@pytest.mark.parametrize("seed", range(50))
def test_nothing_stands_out_where_all_are_alike(seed: int) -> None:
    found = taken_apart(repeated(made_up(seed, noise=0.01 * (seed % 10))), better="higher")
    assert found is not None
    assert found.outliers == ()
    assert found.typical == pytest.approx(940, rel=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_cable_is_named_once_and_its_pairs_are_not(seed: int) -> None:
    values = made_up(seed)
    slow = random.Random(seed).choice(NODES)
    slowed = {pair: value * (0.6 if slow in pair else 1.0) for pair, value in values.items()}
    found = taken_apart(repeated(slowed), better="higher")
    assert found is not None
    (outlier,) = found.outliers
    assert (outlier.nodes, outlier.end) == ((slow,), "both")
    assert outlier.factor == pytest.approx(0.6, rel=0.05)


def test_a_node_that_receives_slowly_is_not_said_to_send_slowly() -> None:
    values = {pair: value * (0.61 if pair[1] == "node07" else 1.0) for pair, value in made_up(1).items()}
    found = taken_apart(repeated(values), better="higher")
    assert found is not None
    (outlier,) = found.outliers
    assert (outlier.nodes, outlier.end) == (("node07",), "receives")
    assert outlier.factor == pytest.approx(0.61, rel=0.05)


def test_a_single_slow_pair_is_named_with_its_direction() -> None:
    values = made_up(1)
    values["node03", "node05"] *= 0.5
    found = taken_apart(repeated(values), better="higher")
    assert found is not None
    (outlier,) = found.outliers
    assert outlier.nodes == ("node03", "node05")
    assert outlier.factor == pytest.approx(0.5, rel=0.1)


def test_a_pair_that_was_slow_once_is_not_said_to_be_slow() -> None:
    values = repeated(made_up(1))
    values["node03", "node05"][0] *= 0.2
    values["node06", "node05"] = [values["node06", "node05"][0] * 0.3]
    found = taken_apart(values, better="higher")
    assert found is not None
    assert found.outliers == ()


def test_latency_measured_one_way_names_the_node_of_either_end() -> None:
    both = made_up(3)
    values = {
        pair: value * (1.5 if "node09" in pair else 1.0) for pair, value in both.items() if pair[0] < pair[1]
    }  # fmt: skip
    found = taken_apart(repeated(values), better="lower")
    assert found is not None
    (outlier,) = found.outliers
    assert (outlier.nodes, outlier.end) == (("node09",), "both")
    assert outlier.factor == pytest.approx(1.5, rel=0.05)


def test_two_slow_nodes_are_both_named_the_slower_first() -> None:
    factors = {"node02": 0.7, "node11": 0.4}
    values = {
        pair: value * min(factors.get(node, 1.0) for node in pair) for pair, value in made_up(4).items()
    }  # fmt: skip
    found = taken_apart(repeated(values), better="higher")
    assert found is not None
    assert [each.nodes for each in found.outliers] == [("node11",), ("node02",)]


def test_pairs_that_failed_are_missing_and_the_others_count() -> None:
    values = made_up(5)
    for node in NODES[1:]:
        values.pop(("node01", node))
        values.pop((node, "node01"))
    values.pop(("node02", "node03"))
    slowed = {pair: value * (0.5 if "node04" in pair else 1.0) for pair, value in values.items()}
    found = taken_apart(repeated(slowed), better="higher")
    assert found is not None
    assert [each.nodes for each in found.outliers] == [("node04",)]


def test_of_few_nodes_none_is_said_to_be_slow() -> None:
    assert taken_apart(repeated(made_up(1, nodes=NODES[: NODES_MIN - 1])), better="higher") is None


def racks(slow: tuple[str, ...], factor: float = 0.5) -> tuple[dict[tuple[str, str], list[float]], dict[str, str]]:
    """Five switches with three nodes each; what crosses between `slow` ones, or leaves the only one, is slower."""
    switch_of = {f"n{at}": f"leaf{at // 3}" for at in range(15)}
    values = {}
    for at, (one, other) in enumerate(permutations(switch_of, 2)):
        ends = {switch_of[one], switch_of[other]}
        within = len(ends) == 1
        is_slow = not within and (set(slow) == ends if len(slow) == 2 else set(slow) <= ends)
        typical = (1200.0 if within else 1000.0) + at % 5
        values[one, other] = [typical * (factor if is_slow and slow else 1.0)] * 2
    return values, switch_of


def test_a_switch_with_a_slow_uplink_stands_out() -> None:
    (found,) = switches_apart(*racks(("leaf2",)), better="higher")
    assert (found.nodes, found.end) == (("leaf2",), "both")
    assert found.factor == pytest.approx(0.5, rel=0.02)


def test_a_slow_path_between_two_switches_stands_out_both_ways() -> None:
    found = switches_apart(*racks(("leaf1", "leaf3")), better="higher")
    assert {each.nodes for each in found} == {("leaf1", "leaf3"), ("leaf3", "leaf1")}


def test_one_slow_pair_or_one_within_a_switch_is_no_slow_path() -> None:
    values, switch_of = racks(())
    values["n0", "n4"] = [400.0, 400.0]
    assert switches_apart(values, switch_of, better="higher") == ()


def test_paths_that_were_measured_one_way_count_for_both() -> None:
    values, switch_of = racks(("leaf2",), 2.0)
    one_way = {pair: each for pair, each in values.items() if pair[0] < pair[1]}
    (found,) = switches_apart(one_way, switch_of, better="lower")
    assert (found.nodes, found.end) == (("leaf2",), "both")
