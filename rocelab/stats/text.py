"""Sizes, values and ratios in words, the same everywhere a person reads them."""

from __future__ import annotations

from rocelab.stats.centre import Spread
from rocelab.stats.comparison import Ratio

TIMES = "\u00d7"
#: Factors beyond these are not told apart in an interval. Three repetitions, one of which waited
#: for a timer, give intervals of any width.
_TIMES_MIN, _TIMES_MAX = 0.01, 1000
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size(size_bytes: int) -> str:
    """``8192`` as ``8 KiB``; sizes that are no whole number of a unit stay in bytes."""
    for unit_bytes, name in _BINARY:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {name}"
    return f"{size_bytes} B"


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    if magnitude >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "us": ((1e6, "s"), (1e3, "ms"), (1.0, "µs")),
    "Mbps": ((1e3, "Gbps"), (1.0, "Mbps"), (1e-3, "kbps")),
    "us/MiB": ((1e6, "s/MiB"), (1e3, "ms/MiB"), (1.0, "µs/MiB")),
    "1/s": ((1e6, "million/s"), (1e3, "thousand/s"), (1.0, "/s")),
}


def scale_for(value: float, unit: str) -> tuple[float, str]:
    """What to divide by, and the name of the unit then, for a value that reads well."""
    scales = _SCALES.get(unit)
    if scales is None:
        return 1.0, unit
    return next(((factor, name) for factor, name in scales if abs(value) >= factor), scales[-1])


def quantity(value: float, unit: str) -> str:
    """A value with a unit that suits it: ``12,300 Mbps`` as ``12.3 Gbps``."""
    factor, name = scale_for(value, unit)
    return f"{number(value / factor)} {name}"


def quantity_range(summary: Spread, unit: str) -> str:
    """What stands for its repetitions, with their range, in one unit: ``2.10 µs (2.05 to 2.31)``."""
    factor, name = scale_for(summary.typical, unit)
    text = f"{number(summary.typical / factor)} {name}"
    if summary.count == 1:
        return text
    return f"{text} ({number(summary.low / factor)} to {number(summary.high / factor)})"


def times(estimate: float) -> str:
    """A factor as people write it, with a multiplication sign behind: 1.9, 0.45, 12 times."""
    if estimate >= 9.95:
        return f"{estimate:,.0f}{TIMES}"
    return f"{estimate:.2f}{TIMES}" if estimate < 1.995 else f"{estimate:.1f}{TIMES}"


def times_range(comparison: Ratio) -> str:
    """A factor with its confidence interval: 1.90 times (1.81 to 2.02)."""
    if comparison.low is None or comparison.high is None or comparison.method == "exact":
        return times(comparison.estimate)
    return f"{times(comparison.estimate)} ({_end(comparison.low)} to {_end(comparison.high)})"


def _end(bound: float) -> str:
    """An end of an interval: beyond some factor it says only that little is known."""
    if bound > _TIMES_MAX:
        return f"over {_TIMES_MAX:,}"
    return f"under {_TIMES_MIN}" if bound < _TIMES_MIN else times(bound)[:-1]


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 size``, ``3 sizes``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listing(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def size_list(sizes: list[int]) -> str:
    """Sizes with runs of successive powers of two drawn together: ``1 B to 64 B and 4 KiB``."""
    runs: list[list[int]] = []
    for size_bytes in sorted(sizes):
        if runs and size_bytes == 2 * runs[-1][-1]:
            runs[-1].append(size_bytes)
        else:
            runs.append([size_bytes])
    parts: list[str] = []
    for run in runs:
        parts += [f"{size(run[0])} to {size(run[-1])}"] if len(run) > 2 else [size(each) for each in run]
    return listing(parts)


def upper_first(words: str) -> str:
    """A sentence's first letter in upper case, the rest as it is."""
    return words[:1].upper() + words[1:]


def lower_first(words: str) -> str:
    """The first letter in lower case, to go on within a sentence; an abbreviation such as MPI stays as it is."""
    return words if words[1:2].isupper() else words[:1].lower() + words[1:]
