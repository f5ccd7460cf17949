"""What stands out among all pairs of nodes: a node that is slow as one end, or a single pair.

Each value is taken apart, in logarithms, into what is common, what its sender, what its receiver and what the pair
alone have to do with it (median polish; J. W. Tukey, Exploratory Data Analysis, 1977, chapter 11). Medians keep one
slow node from making all others look fast. A node or a pair stands out if it is slower than the others by a factor that
matters and by more than the others differ among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

#: With fewer nodes, a slow one cannot be told from the others.
NODES_MIN: Final = 4
#: Part of the others' value that a node has to be away from it. Cables and ports fail by factors (a
#: lane of four, a rate of the step below: 25 % and more); a tenth is what well-kept nodes differ
#: by.
NODE_MATTERS: Final = 0.10
#: The same of a single pair, which has a value or a few where a node has those of all its pairs.
PAIR_MATTERS: Final = 0.20
#: How many times the spread of the others (as a standard deviation, from their median absolute
#: deviation).
NODE_SIGMAS: Final = 5.0
#: Of pairs there are many more, and their spread comes out too small by what nodes were given of
#: it.
PAIR_SIGMAS: Final = 8.0
#: A pair that was measured less often is never said to be slow: what came between once would be
#: taken for its path.
PAIR_REPETITIONS_MIN: Final = 2
#: Median absolute deviation to standard deviation, of a normal distribution.
_MAD_TO_SIGMA: Final = 1.4826
#: The polish has converged long before.
_ROUNDS_MAX: Final = 50
_CONVERGED: Final = 1e-9

Better = Literal["higher", "lower"]
End = Literal["sends", "receives", "both"]
Pair = tuple[str, str]
_Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A node, or a pair of them, that is slower than the others."""

    nodes: tuple[str, ...]
    """One node, or sender and receiver of a pair."""
    end: End
    """Where the node is slow: as the sender, as the receiver, or as both. Of a pair: ``both``."""
    factor: float
    """Its typical value divided by that of the others, such as 0.61 for a bandwidth or 1.6 for a latency."""
    sigmas: float
    """How far away it is in units of what the others differ by."""


@dataclass(frozen=True, slots=True)
class Effects:
    """All pairs, taken apart."""

    typical: float
    """What is common."""
    sends: Mapping[str, float]
    """By node: what it has as a sender, divided by what the others have."""
    receives: Mapping[str, float]
    outliers: tuple[Outlier, ...]
    """The slowest first."""


def taken_apart(repetitions: Mapping[Pair, Sequence[float]], *, better: Better) -> Effects | None:
    """Find what stands out; `repetitions` has positive values by sender and receiver, whose median stands for the pair.

    A pair that was measured one way alone counts for both. None if there are too few nodes to tell.
    """
    values = {pair: median(each) for pair, each in repetitions.items()}
    nodes = list(dict.fromkeys(node for pair in values for node in pair))
    if len(nodes) < NODES_MIN:
        return None
    logs = np.full((len(nodes), len(nodes)), np.nan)
    at = {node: place for place, node in enumerate(nodes)}
    for (sender, receiver), value in values.items():
        logs[at[sender], at[receiver]] = np.log(value)
    ways_agree = all(pair[::-1] not in values for pair in values)
    if ways_agree:
        logs = np.where(np.isnan(logs), logs.T, logs)
    common, rows, columns = _polished(logs)
    # More is better from here on.
    sign = 1.0 if better == "higher" else -1.0
    residuals = logs - common - rows[:, None] - columns[None, :]
    found = [*_nodes(nodes, sign * rows, sign * columns, ways_agree=ways_agree)]
    slow = {at[each.nodes[0]] for each in found}
    for pair in _pairs(nodes, sign * residuals, slow, ways_agree=ways_agree):
        one, other = pair.nodes
        measured = repetitions.get((one, other)) or repetitions[other, one]
        if _is_lasting(pair.factor, measured, better):
            found.append(pair)
    outliers = [
        Outlier(each.nodes, each.end, each.factor if better == "higher" else 1 / each.factor, each.sigmas)
        for each in sorted(found, key=lambda each: (len(each.nodes), each.factor))
    ]
    return Effects(
        float(np.exp(common)),
        dict(zip(nodes, np.exp(rows).tolist(), strict=True)),
        dict(zip(nodes, np.exp(columns).tolist(), strict=True)),
        tuple(outliers),
    )


def switches_apart(
    repetitions: Mapping[Pair, Sequence[float]], switch_of: Mapping[str, str], *, better: Better
) -> tuple[Outlier, ...]:
    """What stands out among access switches, as they are among nodes: a switch, or the path between two.

    All pairs that cross between two switches are the values of that path, so it is slow only if all of them are.
    """
    one_way = all(pair[::-1] not in repetitions for pair in repetitions)
    paths: dict[Pair, list[float]] = {}
    for (sender, receiver), values in repetitions.items():
        path = switch_of[sender], switch_of[receiver]
        if path[0] != path[1]:
            known = path[::-1] if one_way and path[::-1] in paths else path
            paths.setdefault(known, []).append(median(values))
    effects = taken_apart(paths, better=better)
    return () if effects is None else effects.outliers


def _is_lasting(factor: float, repetitions: Sequence[float], better: Better) -> bool:
    """Whether a pair was slow in each of several repetitions: in one, anything may have come between."""
    if len(repetitions) < PAIR_REPETITIONS_MIN:
        return False
    typical = median(repetitions)
    gained = max(repetitions) / typical if better == "higher" else typical / min(repetitions)
    return factor * gained < 1 - PAIR_MATTERS


def _polished(logs: _Matrix) -> tuple[float, _Matrix, _Matrix]:
    """What is common, and what each row and each column has on top of it; their medians are 0."""
    rest = logs.copy()
    rows, columns = np.zeros(len(logs)), np.zeros(len(logs))
    with np.errstate(all="ignore"):
        for _ in range(_ROUNDS_MAX):
            of_rows = np.nan_to_num(np.nanmedian(rest, axis=1))
            rest -= of_rows[:, None]
            of_columns = np.nan_to_num(np.nanmedian(rest, axis=0))
            rest -= of_columns[None, :]
            rows, columns = rows + of_rows, columns + of_columns
            if max(np.max(np.abs(of_rows)), np.max(np.abs(of_columns))) < _CONVERGED:
                break
    centres = float(np.median(rows)), float(np.median(columns))
    return sum(centres), rows - centres[0], columns - centres[1]


def _nodes(nodes: Sequence[str], rows: _Matrix, columns: _Matrix, *, ways_agree: bool) -> list[Outlier]:
    slow_rows, slow_columns = _slow(rows), _slow(columns)
    found = []
    for place, node in enumerate(nodes):
        sends, receives = slow_rows.get(place), slow_columns.get(place)
        ends: list[tuple[End, float, float]] = []
        if sends is not None and receives is not None:
            factor = float(np.exp((rows[place] + columns[place]) / 2))
            # Measured one way, a pair is slow by what its end has in both directions together.
            ends.append(("both", factor, max(sends, receives)))
        elif sends is not None:
            ends.append(("sends", float(np.exp(rows[place])), sends))
        elif receives is not None:
            ends.append(("receives", float(np.exp(columns[place])), receives))
        found += [Outlier((node,), "both" if ways_agree else end, factor, sigmas) for end, factor, sigmas in ends]
    return found


def _slow(effects: _Matrix) -> dict[int, float]:
    """The places that are slower than the others by enough, with how far away they are."""
    away = effects - np.median(effects)
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(away)))
    return {
        place: float(-value / sigma) if sigma > 0 else float("inf")
        for place, value in enumerate(away)
        if value < np.log1p(-NODE_MATTERS) and value < -NODE_SIGMAS * sigma
    }


def _pairs(nodes: Sequence[str], residuals: _Matrix, slow: set[int], *, ways_agree: bool) -> list[Outlier]:
    """Pairs that are slow beyond what their nodes are. Those of a slow node would say the same again."""
    known = residuals[~np.isnan(residuals)]
    sigma = _MAD_TO_SIGMA * float(np.median(np.abs(known - np.median(known))))
    found = []
    for sender, receiver in zip(*np.nonzero(~np.isnan(residuals)), strict=True):
        value = float(residuals[sender, receiver])
        if (ways_agree and sender > receiver) or {int(sender), int(receiver)} & slow:
            continue
        if value < np.log1p(-PAIR_MATTERS) and value < -PAIR_SIGMAS * sigma:
            sigmas = -value / sigma if sigma > 0 else float("inf")
            found.append(Outlier((nodes[sender], nodes[receiver]), "both", float(np.exp(value)), sigmas))
    return found
