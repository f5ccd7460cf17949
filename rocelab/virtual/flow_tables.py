"""What a study file may say of flows that arrive at random: `[[test]]` with `level = "flows"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt

from rocelab import profiles
from rocelab.study.tables import SizeBytes, Table

#: The test whose flows all have one size.
FIXED: Final = "fixed"
#: A value of a parameter that is varied.
Setting = bool | int | float | str
Load = Annotated[float, Field(gt=0, le=2, strict=False)]
_HOSTS_MAX: Final = 4096


class IncastTable(Table):
    """`test.incast`: hosts that send to one at the same time, again and again, among the other flows."""

    senders: PositiveInt
    size_bytes: SizeBytes
    """What each of them sends."""
    load: Load
    """Payload of all incasts, as a part of the rate of all hosts."""


class FlowsTable(Table):
    """`[[test]]` with `level = "flows"`."""

    level: Literal["flows"]
    test: str
    """The workload, which says how long flows are; or `fixed`."""
    size_bytes: SizeBytes | None = None
    """Of every flow of `fixed`."""
    variants: Annotated[Mapping[str, list[Literal["send", "write", "read"]]], Field(min_length=1)]
    """By adapter: what flows are sent by."""
    stacks: Mapping[str, str] = {"rdma": "verbs"}
    """By service of the adapter: the software profile."""
    links: list[str] | None = None
    repetitions: Annotated[int, Field(ge=1, le=1000)] | None = None
    nodes: Annotated[list[Annotated[int, Field(ge=2, le=_HOSTS_MAX)]], Field(min_length=1)]
    loads: Annotated[list[Load], Field(min_length=1)]
    """Payload that arrives for the busiest host, as parts of the rate of its ports."""
    flows: PositiveInt = 1000
    warmup_flows: Annotated[int, Field(ge=0)] = 0
    """Of these, so many at the beginning that do not count."""
    pattern: Literal["uniform", "permutation", "incast"] = "uniform"
    incast: IncastTable | None = None
    vary: Mapping[str, Annotated[list[Setting], Field(min_length=1)]] = {}
    """By place in the scenario, as `switch.shared_shift`: the values that it takes one after the other."""
    series_us: PositiveInt | None = None
    """How often to note queues and rates."""

    def points(self) -> tuple[tuple[float, float], ...]:
        """How long flows are: sizes in bytes, and the percentage of flows that are not longer."""
        if self.test == FIXED:
            size_bytes = float(self.size_bytes or 0)
            return ((size_bytes, 0.0), (size_bytes, 100.0))
        return profiles.workload(self.test).points

    @property
    def mean_bytes(self) -> float:
        """The mean length of a flow."""
        return float(self.size_bytes or 0) if self.test == FIXED else profiles.workload(self.test).mean_bytes

    def bins_bytes(self) -> tuple[int, ...]:
        """The greatest size of each bin, ascending: the deciles of the workload."""
        if self.test == FIXED:
            return (self.size_bytes or 0,)
        of = profiles.workload(self.test)
        return tuple(sorted({of.quantile_bytes(percent) for percent in range(10, 101, 10)}))
