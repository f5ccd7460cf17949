"""What took processors away from a run while it measured, summed up, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: The part of the measurements, of the cores, and of what the busiest program took, from which on a
#: person is told.
_WORTH_SAYING: Final = 0.1


@dataclass(frozen=True, slots=True)
class Load:
    """Means over the measurements of a run, by their duration."""

    cores: int
    """How many the run could use."""
    others_cores: float
    """Taken by programs outside the run: 0.5 is half of one core."""
    steal_cores: float
    """Kept back by the hypervisor."""
    measured: int
    """Measurements during which this was looked at."""
    disturbed: int
    """Those of them during which others and the hypervisor took more than a tenth of the cores."""
    top: Mapping[str, float] = field(default_factory=dict)
    """The three other programs that used most: name to CPU seconds."""


def advice(load: Load) -> str | None:
    """What took the cores and what to do, for a person; None where there was little of it."""
    if load.measured == 0 or load.disturbed < _WORTH_SAYING * load.measured:
        return None
    of = "the core" if load.cores == 1 else f"the {load.cores} cores"
    causes, remedies = [], []
    if load.others_cores >= load.steal_cores:
        most = max(load.top.values(), default=0.0)
        names = [name for name, time_s in load.top.items() if time_s >= _WORTH_SAYING * most]
        named = f", most of it {_listing(names)}," if names else ""
        causes.append(f"other programs took {_percent(load.others_cores, load)} of {of}{named}")
        remedies.append("close them")
    if load.steal_cores > load.others_cores or load.steal_cores >= _WORTH_SAYING * load.cores:
        causes.append(f"the hypervisor kept back {_percent(load.steal_cores, load)} of {of} for other guests")
        remedies.append("use a machine that is not shared")
    cause = " and ".join(causes)
    return (
        f"{cause[:1].upper()}{cause[1:]} while this was measured; {load.disturbed:,} of {load.measured:,} measurements "
        f"were disturbed. To change that, {' or '.join(remedies)}, or give more time with --minutes."
    )


def _percent(cores: float, load: Load) -> str:
    return f"{100 * cores / load.cores:.0f} %"


def _listing(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
