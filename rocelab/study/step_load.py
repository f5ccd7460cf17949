"""What others took of the processors during steps, as samples state it, and summed up for a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from rocelab.launch.load_meter import NAMES_KEPT, Taken
from rocelab.load import Load
from rocelab.results import ParamValue, Sample

#: Part of the cores that others and the hypervisor may take before a measurement is marked as
#: disturbed.
DISTURBED_SHARE: Final = 0.1


class Meter(Protocol):
    """What looks at the machine, or machines, at the beginning and the end of each step."""

    @property
    def cores(self) -> int:
        """How many are looked at."""

    def begin(self) -> None:
        """A step begins."""

    def end(self) -> Taken | None:
        """The step has ended. None if nothing is known of it."""

    def note_names(self) -> None:
        """Between steps: look which programs others run."""

    def top(self) -> Mapping[str, float]:
        """The other programs that used most so far: name to CPU seconds."""


def params(taken: Taken) -> Mapping[str, ParamValue]:
    """For the samples of a step."""
    found: dict[str, ParamValue] = {
        "others_cores": round(taken.others_cores, 3),
        "steal_cores": round(taken.steal_cores, 3),
    }
    if taken.others_cores + taken.steal_cores > DISTURBED_SHARE * taken.cores:
        found["disturbed"] = True
    return found


def summed_up(samples: Sequence[Sample], cores: int, top: Mapping[str, float]) -> Load:
    """The load during a run, from what its samples say; a step counts once, whatever it measured."""
    steps = {sample.order: sample for sample in samples if "others_cores" in sample.params}.values()
    total_s = sum(step.duration_s for step in steps)

    def mean(name: str) -> float:
        weighted = sum(float(step.params[name]) * step.duration_s for step in steps)
        return round(weighted / total_s, 3) if total_s > 0 else 0.0

    return Load(
        cores=cores,
        others_cores=mean("others_cores"),
        steal_cores=mean("steal_cores"),
        measured=len(steps),
        disturbed=sum(bool(step.params.get("disturbed")) for step in steps),
        top=top,
    )


def merged(before: Mapping[str, float], now: Mapping[str, float]) -> Mapping[str, float]:
    """The names of a run that went on, with those of its first part."""
    return dict((Counter(before) + Counter(now)).most_common(NAMES_KEPT))
