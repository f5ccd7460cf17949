"""Runs that were never made: values of simulated series, for tests of what a claim makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rocelab.claims import Judgement, claims_by_id, judge
from rocelab.claims.tests.test_claims import INFO, sample
from rocelab.results import RunInfo, Sample

VIRTUAL: Final[RunInfo] = dataclasses.replace(INFO, fabric="virtual", repetitions=1)


def series(values: Mapping[int, float] | Callable[[int], float], sizes: Sequence[int] = (), **of: Any) -> list[Sample]:
    """A simulated series: a value for each size, or a function of it."""
    points = {size: values(size) for size in sizes} if callable(values) else values
    return [sample(value, size_bytes=size, fabric="virtual", **of) for size, value in points.items()]


def verdict_of(claim_id: str, samples: Sequence[Sample], info: RunInfo = VIRTUAL) -> Judgement:
    """What a claim makes of samples, as those of a simulation."""
    return judge(claims_by_id([claim_id])[0], info, samples)
