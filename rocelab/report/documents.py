"""Tables of the documents, in Markdown, made from the samples of a run that is kept with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rocelab.report.bars import BARS, BestTcp, Held, Point, held
from rocelab.report.model import RunModel
from rocelab.stats import text

#: What is shown size by size: the rows of `rocelab bars` that hold Soft RoCE against TCP.
_AHEAD: Final[Mapping[bool | None, str]] = {True: "ahead", False: "behind", None: "not clear"}


def conditions(model: RunModel) -> str:
    """Where, when and with what the run was made, in one paragraph."""
    info, machine = model.info, model.info.provenance
    commit = f"commit {machine.git_commit[:7]}" if machine.git_commit else f"rocelab {machine.rocelab_version}"
    if machine.git_dirty:
        commit += " with changes"
    words = [
        f"{info.started_at[:10]}, {commit}",
        f"study `{info.study}`, {text.plural(info.repetitions, 'repetition')}",
        f"{machine.cpu_model}, {text.plural(machine.cores, 'core')}, {machine.machine}",
        f"Linux {machine.kernel}, {machine.distribution}",
        f"default congestion control {model.default_control or 'not recorded'}",
        *(note.rstrip(".") for note in machine.notes),
    ]
    return "; ".join(words) + "."


def bars(model: RunModel) -> str:
    """Every ratio with its bar: typical, and where Soft RoCE does least well."""
    head = ("ratio", "typical", "worst", "95 %", "at", "against", "bar", "")
    return _table(head, (_bar_row(each) for each in held(model)))


def _bar_row(each: Held) -> Sequence[str]:
    bound = "" if each.bar.bound is None else f"{each.bar.sense} {each.bar.bound:.2f}"
    worst = each.worst
    if worst is None:
        return (each.bar.what, "", "", "", "", "", bound, each.verdict)
    shown = (f"{each.typical:.2f}", f"{worst.ratio.estimate:.2f}", _interval(worst), text.size(worst.size_bytes))
    return (each.bar.what, *shown, worst.reference, bound, each.verdict)


def sizes(model: RunModel) -> str:
    """Soft RoCE against the best TCP at every size: ratio, interval, which TCP, and who is ahead."""
    head = ("ratio", "at", "times", "95 %", "against", "Soft RoCE is")
    return _table(head, _size_rows(model))


def _size_rows(model: RunModel) -> Iterator[Sequence[str]]:
    for each in held(model, [bar for bar in BARS if isinstance(bar.reference, BestTcp)]):
        for point in each.points:
            yield (
                each.bar.what,
                text.size(point.size_bytes),
                f"{point.ratio.estimate:.2f}",
                _interval(point),
                point.reference,
                _AHEAD[point.is_ahead(each.bar.sense)],
            )


def balance(model: RunModel) -> str:
    """For readers in a hurry: at which sizes Soft RoCE is ahead of the best TCP, and at which behind."""
    rows = []
    for each in held(model, [bar for bar in BARS if isinstance(bar.reference, BestTcp)]):
        by_side: dict[bool | None, list[int]] = {True: [], False: [], None: []}
        for point in each.points:
            by_side[point.is_ahead(each.bar.sense)].append(point.size_bytes)
        cells = (", ".join(text.size(size) for size in by_side[side]) or "nowhere" for side in (True, False, None))
        rows.append((each.bar.what, *cells))
    return _table(("ratio", "ahead", "behind", "not clear"), rows)


def _interval(point: Point) -> str:
    low, high = point.ratio.low, point.ratio.high
    return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


#: Where what was tried for TCP is shown: test, way of waiting, size.
_TRIED_AT: Final = (
    ("latency", "busy-poll", "64"),
    ("latency", "busy-poll", "16384"),
    ("latency", "busy-poll", "65536"),
    ("bandwidth", "blocking", "1024"),
    ("bandwidth", "blocking", "16384"),
    ("bandwidth", "blocking", "65536"),
    ("bandwidth", "blocking", "1048576"),
    ("bidirectional", "blocking", "1048576"),
)


def tried(rows: Sequence[Mapping[str, str]]) -> str:
    """What was tried to make TCP faster: its ratio to plain CUBIC, a column for each test and size."""
    ratios: dict[str, dict[tuple[str, str, str], str]] = {}
    for row in rows:
        place = (row["test"], row["waiting"], row["size_bytes"])
        if row["level"] == "socket" and place in _TRIED_AT:
            words = f"{float(row['ratio_to_plain_cubic']):.2f}"
            ratios.setdefault(row["what"], {})[place] = words
    head = ("what", *(f"{test}, {text.size(int(size))}" for test, _, size in _TRIED_AT))
    return _table(head, [(what, *(found.get(place, "") for place in _TRIED_AT)) for what, found in ratios.items()])


CSV_TABLES: Final[Mapping[str, Callable[[Sequence[Mapping[str, str]]], str]]] = {"tried": tried}
"""Tables of a file of rows, by name."""
TABLES: Final[Mapping[str, Callable[[RunModel], str]]] = {
    "conditions": conditions,
    "bars": bars,
    "sizes": sizes,
    "balance": balance,
}
"""What a document may ask for, by name."""
