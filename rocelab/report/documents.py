"""Tables of the documents, in Markdown, made from the samples of a run, or from the rows, that are kept with them."""

from __future__ import annotations

import csv
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rocelab.profiles.series import middle_of_sources
from rocelab.report.bar_list import BARS
from rocelab.report.bars import BestTcp, Held, Point, held
from rocelab.report.flows import tables as flows_tables
from rocelab.report.model import RunModel
from rocelab.report.transports import tables as transports_tables
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
    """Every ratio with its bar: typical, and where the first of the two does least well."""
    head = ("ratio", "typical", "worst", "95 %", "at", "against", "bar", "")
    return _table(head, (_bar_row(each) for each in held(model, BARS)))


def _bar_row(each: Held) -> Sequence[str]:
    bound = "" if each.bar.bound is None else f"{each.bar.sense} {each.bar.bound:.2f}"
    worst = each.worst
    if worst is None:
        return (each.bar.what, "", "", "", "", "", bound, each.verdict)
    shown = (f"{each.typical:.2f}", f"{worst.ratio.estimate:.2f}", _interval(worst), text.size(worst.size_bytes))
    return (each.bar.what, *shown, worst.against, bound, each.verdict)


def sizes(model: RunModel) -> str:
    """Soft RoCE and iWARP against the best TCP at every size: ratio, interval, which TCP, and which is ahead."""
    head = ("ratio", "at", "times", "95 %", "against", "the first is")
    return _table(head, _size_rows(model))


def _size_rows(model: RunModel) -> Iterator[Sequence[str]]:
    for each in held(model, [bar for bar in BARS if isinstance(bar.reference, BestTcp)]):
        for point in each.points:
            yield (
                each.bar.what,
                text.size(point.size_bytes),
                f"{point.ratio.estimate:.2f}",
                _interval(point),
                point.against,
                _AHEAD[point.is_ahead(each.bar.sense)],
            )


def balance(model: RunModel) -> str:
    """For readers in a hurry: at which sizes RDMA is ahead of the best TCP, and at which behind."""
    rows = []
    for each in held(model, [bar for bar in BARS if isinstance(bar.reference, BestTcp)]):
        by_side: dict[bool | None, list[int]] = {True: [], False: [], None: []}
        for point in each.points:
            by_side[point.is_ahead(each.bar.sense)].append(point.size_bytes)
        cells = (", ".join(text.size(size) for size in by_side[side]) or "nowhere" for side in (True, False, None))
        rows.append((each.bar.what, *cells))
    return _table(("ratio", "ahead", "behind", "not clear"), rows)


def transports(model: RunModel) -> str:
    """RoCE beside iWARP and the best TCP, a table for each link; a sentence where the run has no iWARP."""
    made = [f"{each.caption}\n\n{_table(each.head, each.rows)}" for each in transports_tables(model)]
    return "\n\n".join(made) or "The run that is kept has no iWARP."


def slowdowns(model: RunModel) -> str:
    """How much longer flows that arrive at random take than alone: a table for each workload and network."""
    return "\n\n".join(f"{each.caption}\n\n{_table(each.head, each.rows)}" for each in flows_tables(model))


def _interval(point: Point) -> str:
    low, high = point.ratio.low, point.ratio.high
    return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def rows(kept: str) -> str:
    """The rows of a CSV with its first comment above: a table for each set of metrics, with a column for each of them.

    The CSV has the columns what, condition, metric, unit, median, low, high and repetitions.
    """
    comment, _, body = kept.partition("\n")
    by_point: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in csv.DictReader(body.splitlines()):
        by_point.setdefault((row["what"], row["condition"]), []).append(row)
    most = max((int(row["repetitions"]) for row in itertools.chain.from_iterable(by_point.values())), default=0)
    by_metrics: dict[tuple[str, ...], dict[tuple[str, str], Sequence[str]]] = {}
    for point, found in by_point.items():
        metrics = tuple(f"{row['metric']}, {row['unit']}" for row in found)
        by_metrics.setdefault(metrics, {})[point] = [_spread(row, most) for row in found]
    tables = (_points(metrics, cells) for metrics, cells in by_metrics.items())
    often = f"Medians of {text.plural(most, 'repetition')}, with the least and the most."
    return "\n\n".join((f"{comment.removeprefix('#').strip()}. {often}", *tables))


def _points(metrics: Sequence[str], cells: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """Of what is the same, all conditions one under the other."""
    order = list(dict.fromkeys(what for what, _ in cells))
    points = sorted(cells, key=lambda point: order.index(point[0]))
    return _table(("", "", *metrics), [(*point, *cells[point]) for point in points])


def _spread(row: Mapping[str, str], most: int) -> str:
    median, low, high = (_number(row[column]) for column in ("median", "low", "high"))
    failed = most - int(row["repetitions"])
    return f"{median} ({low} to {high}{f', {failed} failed' if failed else ''})"


def _number(value: str) -> str:
    return f"{float(value):,.0f}" if float(value) >= 100 else f"{float(value):.3g}"


#: What `scripts/sharing.py --only floor` calls its streams.
_ONE_WAY: Final = "WRITE beside a bare loop"
_BOTH_WAYS: Final = f"{_ONE_WAY}, both ways"


def both_ways(kept: str) -> str:
    """What the floor says of bandwidth both ways, in one paragraph, from the rows of `scripts/sharing.py`."""
    rows = csv.DictReader(line for line in kept.splitlines() if not line.startswith("#"))
    medians = {(row["what"], row["condition"], row["metric"]): float(row["median"]) for row in rows}
    sizes = [size for what, size, metric in medians if (what, metric) == (_BOTH_WAYS, "bare loop")]
    if not sizes:
        return "**Bandwidth both ways:** the bare loop was not measured both ways."
    shares = [medians[_BOTH_WAYS, size, "WRITE / bare loop"] for size in sizes]
    gains = [medians[_BOTH_WAYS, size, "bare loop"] / medians[_ONE_WAY, size, "bare loop"] for size in sizes]
    return (
        f"**Bandwidth both ways** ({', '.join(sizes)}): WRITE has {_from_to(shares)} of the bare loop both ways, "
        f"which has {_from_to(gains)} times the bandwidth of the bare loop one way."
    )


def _from_to(values: Sequence[float]) -> str:
    low, high = (f"{value:.2g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


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


#: The same for settings of the kernel.
_SET_AT: Final = (
    ("latency", "busy-poll", "64"),
    ("latency", "busy-poll", "16384"),
    ("latency", "blocking", "64"),
    ("bandwidth", "busy-poll", "1024"),
    ("bandwidth", "blocking", "16384"),
    ("bandwidth", "busy-poll", "65536"),
    ("bandwidth", "busy-poll", "1048576"),
)


def tried(kept: str) -> str:
    """What was tried to make TCP faster, of the rows of a CSV: its ratio to plain CUBIC, by test and size."""
    return _ratios(kept, "socket", [(place, f"{place[0]}, {text.size(int(place[2]))}") for place in _TRIED_AT])


def kernel_settings(kept: str) -> str:
    """The same of the kernel's settings, by test, way of waiting and size."""
    ways = {"busy-poll": "polling", "blocking": "sleeping"}
    heads = [(place, f"{place[0]}, {ways[place[1]]}, {text.size(int(place[2]))}") for place in _SET_AT]
    return _ratios(kept, "kernel", heads)


def _ratios(kept: str, level: str, heads: Sequence[tuple[tuple[str, str, str], str]]) -> str:
    places = [place for place, _ in heads]
    ratios: dict[str, dict[tuple[str, str, str], str]] = {}
    for row in csv.DictReader(line for line in kept.splitlines() if not line.startswith("#")):
        place = (row["test"], row["waiting"], row["size_bytes"])
        if row["level"] == level and place in places:
            words = f"{float(row['ratio_to_plain_cubic']):.2f}"
            ratios.setdefault(row["what"], {})[place] = words
    head = ("what", *(name for _, name in heads))
    return _table(head, [(what, *(found.get(place, "") for place in places)) for what, found in ratios.items()])


_WITHIN: Final = ("within_10_percent", "within_20_percent")
#: The goal: no series of grade A or B is off by more than this part at any size.
_MOST: Final = 0.3


def _total(rows: Sequence[Mapping[str, str]], column: str) -> int:
    return sum(int(row[column]) for row in rows)


def _of_sources(rows: Sequence[Mapping[str, str]], column: str) -> str:
    errors = [(row["source"], float(row[column])) for row in rows if row[column]]
    return f"{middle_of_sources(errors)[0]:.0%}" if errors else "none"


def bounds(kept: str) -> str:
    """How good predictions are, from the rows of `rocelab validate --csv`."""
    found: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in csv.DictReader(kept.splitlines()):
        found.setdefault((row["part"], row["metric"]), []).append(row)
    return _table(
        (
            "sources",
            "metric",
            "how many",
            "series",
            "median error",
            "plain formula",
            "sizes within 10 %",
            "within 20 %",
            "worst error of a size",
            "series above 30 % at a size",
        ),
        [
            (
                part,
                metric,
                str(len({row["source"] for row in rows})),
                str(len(rows)),
                _of_sources(rows, "median_error"),
                _of_sources(rows, "plain_error"),
                *(f"{_total(rows, column) / _total(rows, 'sizes'):.0%}" for column in _WITHIN),
                f"{max(abs(float(row['worst_error'])) for row in rows):.0%}",
                f"{sum(abs(float(row['worst_error'])) > _MOST for row in rows)} of {len(rows)}",
            )
            for (part, metric), rows in found.items()
        ],
    )


def series(kept: str) -> str:
    """Each of the series, from the same rows."""
    return _table(
        ("series", "grade", "part", "median error", "worst", "at, bytes"),
        [
            (
                row["series"],
                row["grade"],
                row["part"],
                f"{float(row['median_error']):.0%}",
                f"{float(row['worst_error']):+.0%}",
                row["worst_bytes"],
            )
            for row in csv.DictReader(kept.splitlines())
        ],
    )


#: Which mechanisms of the NIC a page of docs/dev/experiments is about. The others stand together.
EXPERIMENTS: Final[Mapping[str, Sequence[str]]] = {
    "frames": ("frames", "long-frames", "stream-frames", "rare-looks", "receive-once", "af-xdp", "transmit-ring"),
    "batches": (
        "batch-length",
        "read-pairs",
        "divided-writes",
        "even-pieces",
        "one-piece",
        "short-last-packet",
        "mtu-1500",
    ),
    "packets": (
        "message-instructions",
        "runs",
        "crc",
        "copies",
        "prefetch-message",
        "prefetch-packet",
        "packets-in-place",
        "held-memory",
        "bare-loop",
        "splice",
        "send-before-bookkeeping",
    ),
    "acknowledgements": ("acknowledgement-in-request", "acknowledgement-spacing", "quiet-messages", "patience"),
    "streams": (
        "gather",
        "packets-of-many",
        "rounds-while-posting",
        "many-queue-pairs",
        "turns",
        "windows",
        "take-in-first",
        "memory-per-qp",
    ),
    "threads": (
        "background-thread",
        "stopping-programs",
        "step-aside",
        "looking-before-sleeping",
        "poller-waits",
        "poller-yields",
        "clock-looks",
        "threads-of-a-context",
    ),
    "ucx": ("ucx-pieces", "ucx-protocol"),
}


def experiments(kept: str, page: str | None = None) -> str:
    """What was measured of the mechanisms of a page, or of no page, and what was kept: a table for each."""
    head = ("question", "workload", "result", "before", "n", "measured", "outcome")
    of_pages = set(itertools.chain.from_iterable(EXPERIMENTS.values()))
    found: dict[str, list[Sequence[str]]] = {} if page is None else {name: [] for name in EXPERIMENTS[page]}
    for row in csv.DictReader(kept.splitlines()):
        if row["mechanism"] in (found if page is not None else {row["mechanism"]} - of_pages):
            found.setdefault(row["mechanism"], []).append(_experiment(row))
    return "\n\n".join(f"## {mechanism}\n\n{_table(head, cells)}" for mechanism, cells in found.items() if cells)


def _experiment(row: Mapping[str, str]) -> Sequence[str]:
    span = f"{row['low']} to {row['high']}" if row["low"] else ""
    figure = f"{row['value']} ({span})" if row["value"] and span else row["value"] or span
    result = f"{figure} {row['unit']}".strip()
    measured = f"{row['date']}, {row['commit']}; {row['machine']}"
    return (row["question"], row["workload"], result, row["before"], row["n"], measured, row["decision"])


TABLES: Final[Mapping[str, Callable[[RunModel], str]]] = {
    "conditions": conditions,
    "bars": bars,
    "sizes": sizes,
    "balance": balance,
    "transports": transports,
    "slowdowns": slowdowns,
}
"""What a document may ask for of a run, by name."""

ROW_TABLES: Final[Mapping[str, Callable[[str], str]]] = {
    "rows": rows,
    "both-ways": both_ways,
    "tried": tried,
    "settings": kernel_settings,
    "experiments": experiments,
    **{f"experiments-{page}": functools.partial(experiments, page=page) for page in EXPERIMENTS},
    "bounds": bounds,
    "series": series,
}
"""What a document may ask for of the rows of a script."""
