"""Judges simulated runs with their draws of what profiles assume, and holds the same rules against a null model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from rocelab.claims.certainty import Certainty
from rocelab.claims.finding import Verdict
from rocelab.claims.judge import Judgement, judge, simulated_tests
from rocelab.claims.model import Claim
from rocelab.drawn import DrawnSamples
from rocelab.results import RunInfo, Sample
from rocelab.stats import SIMULATED, text


def judge_with_draws(claim: Claim, info: RunInfo, samples: Sequence[Sample], draws: DrawnSamples | None) -> Judgement:
    """Judges a claim, on a simulated run with its draws and with the null model; on others as :func:`judge` does."""
    judged = judge(claim, info, samples)
    if info.fabric != SIMULATED:
        return judged
    about = _about(claim, samples)
    held, drawn = 0, _drawn(claim, about, draws)
    if draws is not None and drawn == "all":
        verdicts = [judge(claim, info, _about(claim, of_one)).verdict for of_one in draws.samples.values()]
        held = verdicts.count(Verdict.REPRODUCED)
    certainty = Certainty(drawn, 0 if draws is None else draws.count, held, judged.verdict, null_passes=False)
    if certainty.is_decided:
        passes = judge(claim, info, alike(about)).verdict is Verdict.REPRODUCED
        certainty = dataclasses.replace(certainty, null_passes=passes)
    return dataclasses.replace(judged, verdict=certainty.verdict, certainty=certainty)


def _about(claim: Claim, samples: Iterable[Sample]) -> list[Sample]:
    tests = simulated_tests(claim)
    return [sample for sample in samples if (sample.level, sample.test) in tests]


def _drawn(claim: Claim, about: Sequence[Sample], draws: DrawnSamples | None) -> Literal["all", "some", "none"]:
    """Whether every step that the run has for a claim is there in every draw."""
    wanted = {sample.key for sample in about}
    found = [] if draws is None else [{each.key for each in _about(claim, one)} for one in draws.samples.values()]
    if not wanted or not any(found):
        return "none"
    return "all" if all(keys >= wanted for keys in found) else "some"


def alike(samples: Sequence[Sample]) -> list[Sample]:
    """The null model: at each point, every value is the geometric mean of those of all networks and ways to use them.

    Where one is not positive, such as a count, it is the arithmetic mean.
    """
    values: dict[tuple[object, ...], list[float]] = {}
    for sample in samples:
        if sample.value is not None:
            values.setdefault(_point(sample), []).append(sample.value)
    means = {point: _mean(found) for point, found in values.items()}
    return [
        sample if sample.value is None else dataclasses.replace(sample, value=means[_point(sample)])
        for sample in samples
    ]


def _point(sample: Sample) -> tuple[object, ...]:
    key = sample.key._replace(link="", interconnect="", variant="")
    return (*key, sample.metric, sample.statistic)


def _mean(values: Sequence[float]) -> float:
    how: Callable[[Sequence[float]], float] = _geometric if min(values) > 0 else _arithmetic
    return how(values)


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def _arithmetic(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def null_words(judgements: Iterable[Judgement]) -> str:
    """How many claims the null model passes; empty where none was held against it."""
    certainties = (each.certainty for each in judgements)
    decided = [each for each in certainties if each is not None and each.is_decided]
    if not decided:
        return ""
    passed = sum(each.null_passes for each in decided)
    return f"A null model, all networks alike, passes {passed} of {text.plural(len(decided), 'claim')}."
