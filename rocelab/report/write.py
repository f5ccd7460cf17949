"""Writes the report of a run into its folder: the page, the figures as SVG and PNG, and a table as CSV."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocelab.report import (
    all_pairs,
    courses,
    flows,
    gallery,
    improvements,
    meshes,
    nas,
    page,
    redrawn,
    render,
    sharing,
    side_by_side,
    sizeless,
)
from rocelab.report.gallery import Figure
from rocelab.report.model import RunModel
from rocelab.results import RunStore
from rocelab.stats import SeriesTable

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """Where the parts of a report are."""

    page: Path
    figures: tuple[Path, ...]
    summary: Path


def write_report(
    store: RunStore,
    target: Path | None = None,
    *,
    beside: RunStore | None = None,
    progress: Progress | None = None,
) -> ReportFiles:
    """Makes the report of a run anew, in ``report/`` of its folder unless told otherwise.

    The series of ``beside``, another run, are drawn and judged with its own.
    ``progress`` is called with a few words before each part. Raises ResultsError on samples that cannot be read.
    """
    say = progress or (lambda _: None)
    folder = target or store.report
    say("reading the samples")
    model = RunModel.of(store, beside)
    say("comparing")
    overviews, pairs = gallery.overview_figures(model), all_pairs.of_run(model)
    sections = [
        *all_pairs.sections(pairs),
        *nas.sections(model),
        *meshes.sections(model),
        *sharing.sections(model),
        *side_by_side.sections(model),
        *flows.sections(model),
        *gallery.sections(model),
        *sizeless.sections(model),
        *redrawn.sections(model),
        *improvements.sections(model),
        *courses.sections(model, store.path),
    ]
    figures = overviews + [figure for section in sections for _, made in section.links for figure in made]
    folder.mkdir(parents=True, exist_ok=True)
    paths, svgs = _write_figures(folder / "figures", figures, say)
    say("writing the page")
    html = page.make_page(model, store.study_text(), overviews, sections, svgs, pairs=pairs)
    target_page, summary = folder / "index.html", folder / "summary.csv"
    target_page.write_text(html, encoding="utf-8")
    summary.write_text(summary_csv(model), encoding="utf-8")
    if pairs:
        (folder / "pairs.csv").write_text(all_pairs.pairs_csv(pairs), encoding="utf-8")
    return ReportFiles(target_page, paths, summary)


def _write_figures(folder: Path, figures: list[Figure], say: Progress) -> tuple[tuple[Path, ...], dict[str, str]]:
    if folder.exists():
        # Figures of an earlier report that this one no longer has would only mislead.
        shutil.rmtree(folder)
    folder.mkdir()
    svgs: dict[str, str] = {}
    paths: list[Path] = []
    for figure in figures:
        say(f"drawing {figure.name}")
        svgs[figure.name] = render.svg(figure.static_spec)
        paths += [folder / f"{figure.name}.svg", folder / f"{figure.name}.png"]
        paths[-2].write_text(svgs[figure.name], encoding="utf-8")
        paths[-1].write_bytes(render.png(svgs[figure.name]))
    return tuple(paths), svgs


def summary_csv(model: RunModel) -> str:
    """The median and range of every metric at every size (if it has one), one line each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            *("link", "level", "test", "interconnect", "variant", "metric"),
            *("unit", "statistic", "size_bytes", "repetitions", "median", "mean", "min", "max", "nodes", "ranks"),
        ]
    )
    table = SeriesTable(model.samples)
    for key in table:
        series = table.get(key)
        if series is None:
            continue
        for at, spread in series.spreads():
            size = "" if series.is_sizeless else at
            writer.writerow(
                [
                    *(key.link, key.level, key.test, key.interconnect, key.variant, key.metric),
                    *(series.unit, series.statistic, size, spread.count),
                    *(f"{value:.6g}" for value in (spread.median, spread.mean, spread.low, spread.high)),
                    *(key.nodes, key.ranks),
                ]
            )
    return out.getvalue()
