"""What a terminal shows of a run, and of two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rocelab.claims import Verdict, null_words
from rocelab.report import (
    all_pairs,
    catalogue,
    clouds,
    difference,
    meshes,
    nas,
    sharing,
    side_by_side,
    source_tables,
    summary,
    transports,
)
from rocelab.report.bars import Held, Point
from rocelab.report.difference import Difference, SeriesDifference
from rocelab.report.gallery import DataTable
from rocelab.report.model import RunModel, StyledSeries, best_at, link_title
from rocelab.results import LinkInfo
from rocelab.stats import NO_SIZE, SIMULATED, Ratio, SeriesKey, text

_TERMINAL_SIZES_BYTES = (64, 4096, 65536, 1 << 20)
#: The levels that have tables of their own, and what these are called.
_JOB_LEVELS = {"mpi": "MPI", "program": "programs of the study"}
_WIDE_COLUMNS = 80
_BARS_WIDE_COLUMNS = 100
_VERDICT_COLOURS = {
    Verdict.REPRODUCED: "blue",
    Verdict.CONTRADICTED: "yellow",
    Verdict.NOT_CHECKABLE: "dim",
    Verdict.ANSWERED: "cyan",
}


def print_summary(console: Console, model: RunModel, page: Path | None = None) -> None:
    """Medians at chosen sizes for each link, the verdicts on the claims, failures, and where the report is."""
    _print_pairs(console, model)
    for link in model.links:
        jobs = (_jobs_table(model, link, console.width, *each) for each in _JOB_LEVELS.items())
        for table in (_link_table(model, link, console.width), *jobs):
            if table.row_count:
                console.print(table)
        # What is simulated is held against nothing else.
        simulated = summary.chosen_sizes_tables(model, link, "program") if model.info.fabric == SIMULATED else ()
        at_once = (*sharing.tables(model, link), *side_by_side.tables(model, link))
        for each in (*simulated, *nas.brief_tables(model, link), *meshes.tables(model, link), *at_once):
            console.print(_words_table(each))
    for each in (*clouds.tables(model), *source_tables.tables(model), *transports.tables(model)):
        console.print(_words_table(each))
    _print_verdicts(console, model)
    if model.failed:
        first = model.failed[0]
        count = text.plural(model.failed_step_count, "measurement")
        # The end of a log may follow the reason; the page has it.
        reason = next(iter((first.error or "").splitlines()), "")
        words = escape(" ".join(_words(first.key)))
        console.print(f"[bold red]{count} failed[/], first {words}: {escape(reason)}")
    if model.load_advice is not None:
        console.print(f"[bold yellow]This machine was busy.[/] {escape(model.load_advice)}", highlight=False)
    if page is not None:
        # A path must come out whole, to be clicked on or copied.
        console.print(f"Report: {page}", soft_wrap=True, highlight=False, markup=False)


def _print_verdicts(console: Console, model: RunModel) -> None:
    for judgement in model.judgements:
        colour = _VERDICT_COLOURS[judgement.verdict]
        console.print(
            f"[bold]{judgement.claim.id}[/] [{colour}]{judgement.verdict_words}[/]: {escape(judgement.summary)}"
        )
        if judgement.claim.by_construction:
            console.print(f"  [dim]by construction, where it holds: {escape(judgement.claim.by_construction)}[/]")
        if judgement.certainty is not None:
            console.print(f"  [dim]{escape(judgement.certainty.words)}[/]")
        if judgement.scaled:
            console.print(f"  [dim]scaled: {escape('; '.join(judgement.scaled))}[/]")
    if about_null := null_words(model.judgements):
        console.print(escape(about_null), highlight=False)


def _print_pairs(console: Console, model: RunModel) -> None:
    """Nodes and pairs that are slower than the others, and what came of all pairs."""
    pairs = all_pairs.of_run(model)
    for finding in all_pairs.findings(pairs):
        console.print(f"[bold yellow]{escape(finding.subject)} is slower than the others.[/] {escape(finding.text)}")
    for sentence in all_pairs.sentences(pairs):
        console.print(escape(sentence), highlight=False)


def _words_table(data: DataTable) -> Table:
    """A table of the report as it is."""
    table = Table(title=escape(data.caption), box=box.SIMPLE_HEAD, show_edge=False)
    table.title_justify, table.title_style = "left", "bold"
    for name in data.head:
        table.add_column(escape(name), justify="right")
    for row in data.rows:
        table.add_row(*(escape(cell) for cell in row))
    return table


def _link_table(model: RunModel, link: LinkInfo, width: int) -> Table:
    """Soft RoCE, and at each size the best TCP with its name; without the interval of the ratio in under 80 columns."""
    table = _titled(link_title(link), width)
    for test in model.tests:
        if test.level in _JOB_LEVELS:
            continue
        table.add_section()
        for size in _TERMINAL_SIZES_BYTES:
            _add_row(table, f"{test.short}, {text.size(size)}", (model, model.series(link.id, test)), size, width)
    _add_cpu_rows(table, model, link)
    return table


def _titled(title: str, width: int) -> Table:
    padding = (0, 1) if width >= _WIDE_COLUMNS else (0, 1, 0, 0)
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, show_edge=False, padding=padding)
    table.title_justify, table.title_style = "left", "bold"
    table.add_column("Message size", no_wrap=True)
    names = ("Soft RoCE", "Best TCP", "To it") if width >= _WIDE_COLUMNS else ("RoCE", "TCP", "Ratio")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Which TCP", overflow="fold")
    return table


_Found = tuple[RunModel, list[StyledSeries]]


def _add_row(table: Table, name: str, found: _Found, size: int, width: int) -> None:
    """A test at a size, if Soft RoCE or a TCP has a value there."""
    model, series = found
    subject, best = model.subject(series), best_at(model.references(series), size)
    cells = [summary.typical_words(each, size) for each in (subject, best)]
    if not any(cells):
        return
    points = {point.size_bytes: point for point in model.speed_ratios(series).get(catalogue.BEST_TCP, [])}
    ratio = _ratio_cell(points[size].ratio, width) if size in points else ""
    table.add_row(name, *cells, ratio, _short(best))


def _short(best: StyledSeries | None) -> str:
    """A TCP without what every one of them is called."""
    return "" if best is None else escape(best.label.removeprefix("TCP").lstrip(", ").replace("busy-", ""))


def _jobs_table(model: RunModel, link: LinkInfo, width: int, level: str, title: str) -> Table:
    """Jobs over Soft RoCE and over the TCP that is best at each size."""
    table = _titled(f"{link_title(link)}, {title}", width)
    for test in model.every_test:
        if test.level != level:
            continue
        table.add_section()
        for size in (NO_SIZE, *_TERMINAL_SIZES_BYTES):
            _add_row(table, summary.row_name(test, size), (model, model.series(link.id, test)), size, width)
    return table


def _add_cpu_rows(table: Table, model: RunModel, link: LinkInfo) -> None:
    """CPU time of both ends for each MiB; no ratio, because less is better here."""
    series = model.cpu(link.id, "us_per_mib")
    table.add_section()
    for size in _TERMINAL_SIZES_BYTES:
        best = best_at(model.references(series), size)
        # The label says what it is divided by.
        cells = [summary.typical_words(each, size).removesuffix("/MiB") for each in (model.subject(series), best)]
        if any(cells):
            table.add_row(f"CPU/MiB, {text.size(size)}", *cells, "", _short(best))


def _ratio_cell(ratio: Ratio, width: int) -> str:
    """A factor as short as the terminal asks for."""
    if width < _WIDE_COLUMNS:
        return text.times(ratio.estimate)
    return text.times_range(ratio).replace(text.TIMES, "").replace(" to ", "-")


def _words(key: Sequence[object]) -> list[str]:
    return [str(part) for part in key if part is not None]


def print_bars(console: Console, model: RunModel, found: Sequence[Held], *, every_size: bool = False) -> None:
    """Each ratio beside its bar; in a narrow terminal without what can be missed most."""
    console.print(f"[bold]{escape(model.info.id)}[/]: {escape(model.info.title)}", highlight=False)
    is_wide, is_narrow = console.width >= _BARS_WIDE_COLUMNS, console.width < _WIDE_COLUMNS
    names = ("Worst", "At", "Bar") if is_narrow else ("Typical", "Worst", "95 %", "At", "Bar")
    table = _bars_table((*names, ""))
    for each in found:
        cells = _bar_cells(each)
        verdict = each.verdict if is_wide else each.verdict.replace(", ", ",\n")
        table.add_row(escape(each.bar.what), *(cells[name] for name in names), verdict)
    console.print(table)
    if every_size:
        console.print(_bars_sizes(found))
    about = {
        "Typical": "Typical: geometric mean over the sizes. ",
        "Worst": "Worst: at the size where the first does least well",
        "95 %": "; its interval holds the ratio with 95 % confidence, or is the range of the repetitions where the bar "
        "is a line rate",
    }
    words = "".join(text for name, text in about.items() if name in names)
    of_iwarp = "iWARP: under the best of its congestion controls. " if _has_controls(found) else ""
    more = f" {_WIDE_COLUMNS} columns show the interval, too." if is_narrow else ""
    console.print(
        f"TCP: the best of all measured, of those that wait as named, at each size. {of_iwarp}{words}.{more} "
        "--sizes shows every size, and which TCP it is.",
        style="dim",
        highlight=False,
    )


def _has_controls(found: Sequence[Held]) -> bool:
    return any(point.control is not None for each in found for point in each.points)


def _bars_table(names: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    # Only names are wrapped: half a number is none.
    table.add_column("Ratio")
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def _bars_sizes(found: Sequence[Held]) -> Table:
    table = _bars_table(("At", "Times", "95 %"))
    table.add_column("Against", overflow="fold")
    for each in found:
        table.add_section()
        for point in each.points:
            row = (text.size(point.size_bytes), f"{point.ratio.estimate:.2f}", _bar_interval(point))
            table.add_row(escape(each.bar.what), *row, escape(point.against))
    return table


def _bar_interval(point: Point) -> str:
    low, high = point.ratio.low, point.ratio.high
    return "" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def _bar_cells(each: Held) -> dict[str, str]:
    """What can be said of a bar, by the name of the column."""
    sign = "\u2264" if each.bar.sense == "at most" else "\u2265"
    cells = dict.fromkeys(("Typical", "Worst", "95 %", "At"), "")
    cells["Bar"] = "" if each.bar.bound is None else f"{sign} {each.bar.bound:.2f}"
    if (worst := each.worst) is None:
        return cells
    measured = {
        "Typical": f"{each.typical:.2f}",
        "Worst": f"{worst.ratio.estimate:.2f}",
        "95 %": _bar_interval(worst),
        "At": text.size(worst.size_bytes),
    }
    return {**cells, **measured}


def print_comparison(
    console: Console, first: RunModel, second: RunModel, found: list[Difference], *, every_size: bool
) -> None:
    """The conditions that differ, each series in a line, and on request every size."""
    for number, model in enumerate((first, second), start=1):
        console.print(f"[bold]{number}[/] {escape(model.info.id)}: {escape(model.info.title)}", highlight=False)
    conditions = difference.other_conditions(first, second)
    if conditions:
        table = Table("Differs", "1", "2", title="What else differs", title_justify="left", title_style="bold")
        for row in conditions:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
    if not found:
        console.print("The runs have no measurement in common.")
        return
    console.print(_series_table(difference.by_series(found)))
    if every_size:
        console.print(_size_table(found))
    console.print(
        "Ratios are of medians, turned so that above 1 run 2 is better. Significant: Welch's t test on logarithms, at "
        "most 5 % false discoveries over all sizes. That is the confidence about these two runs; what changes from one "
        "run to the next on the same machine, only more runs can tell.",
        style="dim",
    )


def _series_table(rows: list[SeriesDifference]) -> Table:
    table = Table(title="Run 2 against run 1", title_justify="left", title_style="bold")
    for name in ("Link", "Test", "Series"):
        table.add_column(name)
    for name in ("Sizes", "Better", "Worse", "Typical ratio", "Most different"):
        table.add_column(name, justify="right")
    for row in rows:
        most = f"{text.times(row.extreme.goodness.estimate)} at {text.size(row.extreme.size_bytes)}"
        if row.extreme.size_bytes == NO_SIZE:
            most = text.times(row.extreme.goodness.estimate)
        colour = "green" if row.better > row.worse else "red" if row.worse > row.better else ""
        typical = text.times(row.typical)
        table.add_row(
            *_names(row.key),
            *(str(row.sizes), str(row.better), str(row.worse)),
            *(f"[{colour}]{typical}[/]" if colour else typical, most),
        )
    return table


def _size_table(found: list[Difference]) -> Table:
    table = Table(title="Every size", title_justify="left", title_style="bold")
    for name in ("Link", "Test", "Series"):
        table.add_column(name)
    for name in ("Size", "Run 1", "Run 2", "Ratio (95 % confidence)", "Significant"):
        table.add_column(name, justify="right")
    for row in found:
        table.add_row(
            *_names(row.key),
            "none" if row.size_bytes == NO_SIZE else text.size(row.size_bytes),
            text.quantity(row.first.typical, row.unit),
            text.quantity(row.second.typical, row.unit),
            text.times_range(row.goodness),
            "yes" if row.significant else "no",
        )
    return table


def _names(key: SeriesKey) -> tuple[str, str, str]:
    metric = "" if not key.metric.startswith("cpu_") else f" ({key.metric})"
    test = key.test if key.level == "network" else f"{key.level} {key.test}, {key.ranks} on {key.nodes}"
    return escape(key.link), escape(test + metric), escape(f"{key.interconnect} {key.variant}")
