"""Claims that give numbers: what is computed, and when it counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from rocelab.claims import Verdict, all_claims, claims_by_id, judge
from rocelab.claims.parts import judge_parts
from rocelab.claims.rules import APART_PERCENT, Parts
from rocelab.claims.sides import Sides
from rocelab.profiles.series import sources
from rocelab.results import Provenance, RunInfo, Sample
from rocelab.stats import SeriesTable

A = {"name": "A", "link": "l", "interconnect": "a", "variant": "v"}
B = {"name": "B", "link": "l", "interconnect": "b", "variant": "v"}


def _samples(interconnect: str, values: dict[int, float], test: str = "bandwidth") -> list[Sample]:
    made = []
    for at, value in values.items():
        made.append(
            Sample(
                study="s",
                run="r",
                fabric="virtual",
                link="l",
                interconnect=interconnect,
                level="network",
                test=test,
                variant="v",
                size_bytes=at,
                params={},
                metric="m",
                unit="Mbps",
                statistic="mean",
                value=value,
                repetition=0,
                ok=True,
                error=None,
                tool="t",
                tool_version="1",
                command="",
                started_at="",
                duration_s=0.0,
                log=None,
                order=0,
                nodes=at if test == "mesh" else 2,
            )
        )
    return made


def _judge(samples: Sequence[Sample], **part: Any) -> tuple[Verdict, str]:
    whole = {"name": "part", "test": "bandwidth", "metric": "m", "subject": A, "how": "value", "of": "most"} | part
    finding = judge_parts(Parts.model_validate({"kind": "parts", "parts": [whole]}), Sides(SeriesTable(samples)))
    return finding.verdict, finding.summary


BOTH = [*_samples("a", {1: 10.0, 2: 30.0, 4: 40.0}), *_samples("b", {1: 10.0, 2: 10.0, 4: 20.0})]
MESH = _samples("a", {2: 20.0, 4: 38.0, 8: 64.0}, "mesh")


@pytest.mark.parametrize(
    ("part", "number"),
    [
        ({"reference": B, "how": "ratio"}, 3.0),
        ({"reference": B, "how": "ratio", "of": "largest"}, 2.0),
        ({"reference": B, "how": "ratio", "better": "lower", "of": "least"}, 1 / 3),
        ({"reference": B, "how": "difference", "from": 4}, 20.0),
        ({"subject": B, "reference": A, "how": "reduction"}, 200 / 3),
        ({"how": "growth"}, 3.0),
        ({"how": "growth", "from": 4, "to": 4}, 4 / 3),
        ({"factor": 0.001, "to": 2}, 0.03),
        ({"test": "mesh", "how": "each", "of": "least"}, 8.0),
        ({"test": "mesh", "how": "linearity", "of": "least"}, 0.8),
    ],
)
def test_the_number_of_a_part(part: dict[str, Any], number: float) -> None:
    samples = MESH if part.get("test") == "mesh" else BOTH
    within = {"at_least": number * 0.999, "at_most": number * 1.001}
    assert _judge(samples, **part, **within)[0] is Verdict.REPRODUCED
    assert _judge(samples, **part, at_least=number * 1.001)[0] is Verdict.CONTRADICTED
    assert _judge(samples, **part, at_most=number * 0.999)[0] is Verdict.CONTRADICTED


@pytest.mark.parametrize(("better", "best"), [("higher", 30.0), ("lower", 10.0)])
def test_the_best_of_the_repetitions_counts_where_a_part_says_so(better: str, best: float) -> None:
    samples = [
        dataclasses.replace(_samples("a", {1: value})[0], repetition=repetition)
        for repetition, value in enumerate((10.0, 12.0, 30.0))
    ]
    for is_best, number in ((True, best), (False, 52 / 3)):
        verdict, words = _judge(samples, better=better, best_of_repetitions=is_best, at_most=1000.0)
        assert verdict is Verdict.REPRODUCED
        assert words.startswith(f"part: {number:.4g} (")


def test_a_part_may_be_about_more_than_two_processes() -> None:
    alone = [dataclasses.replace(sample, nodes=4, ranks=64) for sample in _samples("a", {1: 5.0})]
    assert _judge([*BOTH, *alone], nodes=4, ranks=64, at_most=5.0)[0] is Verdict.REPRODUCED
    assert _judge(BOTH, nodes=4, ranks=64, at_most=5.0)[0] is Verdict.NOT_CHECKABLE


def test_what_a_run_lacks_is_said() -> None:
    verdict, words = _judge(_samples("a", {1: 1.0}), reference=B, how="ratio")
    assert verdict is Verdict.NOT_CHECKABLE
    assert "no bandwidth samples of B" in words


def test_a_simulated_run_is_judged_by_the_rule_for_simulations() -> None:
    (claim,) = claims_by_id(["R4"])
    assert claim.virtual is not None
    unknown = Provenance("", "", 1, 1, "", "", "", "", "")
    info = RunInfo("r", "s", "S", "emulated", "complete", "", 1, 1, (), unknown, 1)
    emulated = judge(claim, info, [])
    simulated = judge(claim, dataclasses.replace(info, fabric="virtual"), [])
    assert simulated.claim.stand_in == claim.virtual.stand_in != emulated.claim.stand_in


def test_every_number_of_a_claim_has_a_range() -> None:
    rules = [rule for claim in all_claims() for rule in (claim.rule, claim.virtual and claim.virtual.rule)]
    parts = [part for rule in rules if isinstance(rule, Parts) for part in rule.parts]
    assert parts
    assert all(part.at_least > -float("inf") or part.at_most < float("inf") for part in parts)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(10.0, Verdict.CONTRADICTED), (10.5, Verdict.CONTRADICTED), (10.8, Verdict.REPRODUCED)],
)
@pytest.mark.parametrize("how", ["ratio", "reduction"])
def test_ahead_is_by_more_than_two_measurements_of_one_network_differ(how: str, value: float, verdict: Verdict) -> None:
    ahead, behind = _samples("a", {1: value}), _samples("b", {1: 10.0})
    subject, reference = (A, B) if how == "ratio" else (B, A)
    found = _judge([*ahead, *behind], subject=subject, reference=reference, how=how, of="least", ahead=True)
    assert found[0] is verdict


@pytest.mark.parametrize("part", [{"how": "ratio", "at_least": 1.0}, {"how": "difference"}])
def test_ahead_is_said_in_place_of_a_least_ratio(part: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'ahead' takes the place of 'at_least'"):
        _judge(BOTH, reference=B, ahead=True, **part)


def test_ahead_is_more_than_published_medians_of_the_same_message_differ() -> None:
    runs = [dict(each.points) for each in sources()["potter-2018"].series]
    assert len(runs) == 5
    apart = max(max(run[size] for run in runs) / min(run[size] for run in runs) for size in runs[0])
    assert 1 < apart < 1 + APART_PERCENT / 100
