"""What of a claim's source is smaller or larger in a run: records, sizes, rates, repetitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rocelab.claims.model import Claim, Scale
from rocelab.results import RunInfo, Sample
from rocelab.stats import SIMULATED

_EQUAL = 0.01
"""Part by which a number may differ and still be the source's: 65 million bytes of 2^26, say."""


def scaled(claim: Claim, info: RunInfo, samples: Sequence[Sample]) -> tuple[str, ...]:
    """In words, what is not as large as in the source, of the samples that the claim's rule is about."""
    said = []
    for scale in claim.scales:
        here = _here(scale, info, samples)
        # A simulation is the same each time.
        is_exact = scale.of == "repetitions" and info.fabric == SIMULATED
        if here is not None and not is_exact and not math.isclose(here, scale.source, rel_tol=_EQUAL):
            said.append(f"{scale.what}: {_number(here)} of {in_source(scale)}")
    return tuple(said)


def in_source(scale: Scale) -> str:
    """How large it is in the source: `320,000`, `10 GB`."""
    return f"{_number(scale.source)} {scale.unit}".rstrip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def _here(scale: Scale, info: RunInfo, samples: Sequence[Sample]) -> float | None:
    """The same in a run; None where the run does not have it."""
    if scale.of == "rate":
        link = info.link(scale.name)
        return None if link is None or link.rate_mbps is None else link.rate_mbps * scale.factor
    values = [
        value for sample in samples if scale.test in ("", sample.test) and (value := _value(scale, sample)) is not None
    ]
    if not values:
        return None
    return float(len(set(values))) if scale.of == "repetitions" else max(values) * scale.factor


def _value(scale: Scale, sample: Sample) -> float | None:
    if scale.of == "param":
        value = sample.params.get(scale.name)
        return float(value) if isinstance(value, int | float) else None
    if scale.of == "repetitions":
        return sample.repetition
    return sample.size_bytes if scale.of == "size" else sample.ranks
