"""Verdicts on simulated runs that have draws of what profiles assume, and the null model."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from rocelab.claims import Judgement, Verdict, claims_by_id, judge, judge_with_draws, null_words
from rocelab.claims.drawing import alike
from rocelab.claims.tests.simulated import VIRTUAL, series
from rocelab.claims.tests.test_claims import INFO
from rocelab.claims.tests.test_simulated_claims import two_nodes
from rocelab.drawn import DrawnSamples
from rocelab.results import Sample

V2 = claims_by_id(["V2"])[0]
HOLDS = two_nodes("network", {})
DOES_NOT = two_nodes("network", {"r40_mbps": 40_000.0})


def judged(samples: list[Sample], draws: DrawnSamples | None) -> Judgement:
    return judge_with_draws(V2, VIRTUAL, samples, draws)


def drawn(held: int, count: int = 20) -> DrawnSamples:
    return DrawnSamples(count, {draw: HOLDS if draw < held else DOES_NOT for draw in range(count)})


def words(of: Judgement) -> str:
    assert of.certainty is not None
    return of.certainty.words


@pytest.mark.parametrize(
    ("held", "verdict"), [(20, Verdict.REPRODUCED), (18, Verdict.REPRODUCED), (17, Verdict.NOT_CHECKABLE)]
)
def test_what_is_reproduced_holds_in_nine_of_ten_draws(held: int, verdict: Verdict) -> None:
    found = judged(HOLDS, drawn(held))
    assert found.verdict is verdict
    assert words(found).startswith(f"The rule holds in {held} of 20 draws of what the profiles assume.")
    assert ("18 draws are needed" in words(found)) == (verdict is Verdict.NOT_CHECKABLE)


def test_what_is_contradicted_with_the_profiles_as_they_are_stays_so() -> None:
    found = judged(DOES_NOT, drawn(19))
    assert found.verdict is Verdict.CONTRADICTED
    assert words(found) == "The rule holds in 19 of 20 draws of what the profiles assume."


def test_a_run_without_draws_is_judged_as_it_is_and_says_so() -> None:
    for samples in (HOLDS, DOES_NOT):
        found = judged(samples, None)
        assert dataclasses.replace(found, certainty=None) == judge(V2, VIRTUAL, samples)
        assert words(found) == "No draws of what the profiles assume."


def test_draws_of_which_a_step_is_missing_decide_nothing() -> None:
    half = DrawnSamples(2, {0: DOES_NOT, 1: [each for each in DOES_NOT if each.interconnect != "roce-40g"]})
    found = judged(HOLDS, half)
    assert found.verdict is Verdict.REPRODUCED
    assert words(found) == "Not all of the 2 draws of what the profiles assume have been simulated."
    elsewhere = DrawnSamples(1, {0: [dataclasses.replace(each, test="scatter") for each in DOES_NOT]})
    assert words(judged(HOLDS, elsewhere)) == "No draws of what the profiles assume."


def test_a_draw_whose_simulation_failed_does_not_hold() -> None:
    failed = [dataclasses.replace(each, value=None, ok=False, error="it hung") for each in HOLDS]
    assert words(judged(HOLDS, DrawnSamples(2, {0: HOLDS, 1: failed}))).startswith("The rule holds in 1 of 2 draws")


def test_measured_runs_have_no_draws_and_no_null_model() -> None:
    found = judge_with_draws(V2, INFO, HOLDS, drawn(0))
    assert found == judge(V2, INFO, HOLDS)
    assert null_words([found]) == ""


def test_alike_networks_have_the_geometric_mean_at_every_point() -> None:
    def at_one_byte(samples: list[Sample]) -> list[float]:
        return [each.value or 0.0 for each in samples if (each.test, each.size_bytes) == ("latency", 1)]

    before, made = at_one_byte(HOLDS), at_one_byte(alike(HOLDS))
    assert made == pytest.approx([math.prod(before) ** 0.25] * 4)
    one, none = HOLDS[0], dataclasses.replace(HOLDS[0], interconnect="other", value=0.0)
    assert [each.value for each in alike([none, one])] == [(one.value or 0.0) / 2] * 2


def test_the_null_model_passes_what_does_not_tell_networks_apart() -> None:
    times = {1 << bit: 1.0 + (1 << bit) / 3000 for bit in range(28)}
    of: dict[str, Any] = {"level": "mpi", "link": "cable", "test": "latency", "metric": "latency_us", "variant": "mpi"}
    steady = [each for name in ("roce-25g", "roce-10g-lx") for each in series(times, **of, interconnect=name)]
    apart = judged(HOLDS, None)
    not_apart = judge_with_draws(claims_by_id(["R1"])[0], VIRTUAL, steady, None)
    assert not_apart.verdict is Verdict.REPRODUCED, not_apart.summary
    assert words(not_apart).endswith("It also holds where all networks are alike, so it says little.")
    assert "alike" not in words(apart)
    assert null_words([apart, not_apart]) == "A null model, all networks alike, passes 1 of 2 claims."
