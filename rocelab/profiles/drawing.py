"""What profiles may as well say: values that no publication states, drawn from the ranges that the profiles give them.

Values of the same name and kind of profile are one dimension: a draw puts all of them at the same part of their ranges.
So what is not known of adapters, say, is not known of all networks alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self

import numpy as np

from rocelab.profiles import model


class AssumedName(NamedTuple):
    """Where an assumed value stands."""

    kind: str
    """The folder of its profile: ``hosts``."""
    profile: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.profile}.{self.key}"

    @classmethod
    def read(cls, text: str) -> Self:
        """The name that is spelled so. Raises ValueError."""
        kind, _, rest = text.partition("/")
        profile, _, key = rest.rpartition(".")
        if not (kind and profile and key):
            raise ValueError(f"{text!r} is no name of an assumed value, such as hosts/nehalem-ep.posted_ns")
        return cls(kind, profile, key)


#: By name: what the values are in one draw.
Draw = Mapping[AssumedName, float]


def draws(used: Iterable[tuple[str, str]], count: int, seed: int) -> list[Draw]:
    """So many draws of all values that these profiles (kind and id) assume, by a Latin hypercube.

    Within its range each value is as likely as another. Raises ProfileError if a profile is not there.
    """
    # It takes a second to load.
    from scipy.stats import qmc  # noqa: PLC0415

    ranges = {
        AssumedName(kind, profile, key): limits
        for kind, profile in sorted(set(used))
        for key, limits in model.find(kind, profile).assumed.items()
    }
    dimensions = sorted({(name.kind, name.key) for name in ranges})
    if not dimensions:
        return [{} for _ in range(count)]
    parts = qmc.LatinHypercube(len(dimensions), seed=np.random.default_rng(seed)).random(count)
    return [
        {
            name: _between(name, limits, float(row[dimensions.index((name.kind, name.key))]))
            for name, limits in ranges.items()
        }
        for row in parts
    ]


def _between(name: AssumedName, limits: model.Range, part: float) -> float:
    low, high = limits
    value = low + part * (high - low)
    whole = isinstance(getattr(model.find(name.kind, name.profile), name.key), int)
    # As it is written down, so that what is read again is the same.
    return round(value) if whole else float(f"{value:.6g}")


@contextmanager
def drawn(draw: Draw) -> Iterator[None]:
    """While this lasts, and in this thread, profiles have these values."""
    changes: dict[tuple[str, str], dict[str, float]] = {}
    for name, value in draw.items():
        changes.setdefault((name.kind, name.profile), {})[name.key] = value
    replaced: dict[str, dict[str, model.AnyProfile]] = {}
    for (kind, profile), values in changes.items():
        before = model.find(kind, profile)
        replaced.setdefault(kind, {})[profile] = type(before).model_validate(before.model_dump() | values)
    with model.replaced(replaced):
        yield
