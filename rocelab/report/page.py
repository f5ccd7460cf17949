"""The report as one HTML page, from a template and the parts that the other modules make."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

import rocelab
from rocelab.claims import Judgement, Verdict, null_words
from rocelab.profiles.series import held_out_errors
from rocelab.report import all_pairs, catalogue, clouds, losses, nas, render, source_tables, summary, transports
from rocelab.report.all_pairs import AllPairs
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.model import RunModel
from rocelab.results import LinkInfo, Sample
from rocelab.stats import SIMULATED, text

MARKS = {"better": "\u25b2", "worse": "\u25bc", "unclear": "\u25c6"}
_VERDICT_CLASS = {
    Verdict.REPRODUCED: "reproduced",
    Verdict.CONTRADICTED: "contradicted",
    Verdict.NOT_CHECKABLE: "open",
    Verdict.ANSWERED: "answered",
}
_VERDICT_MARK = {
    Verdict.REPRODUCED: "\u2713",
    Verdict.CONTRADICTED: "\u2717",
    Verdict.NOT_CHECKABLE: "?",
    Verdict.ANSWERED: "i",
}
_SYMBOLS = {
    "circle": "M15 2a4 4 0 1 0 0 8a4 4 0 1 0 0-8z",
    "square": "M11.5 2.5h7v7h-7z",
    "triangle-up": "M15 1.5l4.5 8.5h-9z",
    "triangle-down": "M15 10.5l4.5-8.5h-9z",
    "triangle-left": "M19.5 1.5v9l-9-4.5z",
    "triangle-right": "M10.5 1.5v9l9-4.5z",
    "diamond": "M15 1l4 5l-4 5l-4-5z",
    "cross": "M13.5 2h3v2.500h2.500v3h-2.500v2.500h-3v-2.500h-2.500v-3h2.500z",
}
_FAILED_LIMIT = 200


class Banner(NamedTuple):
    """Something a reader must know before the numbers."""

    title: str
    text: str
    href: str = ""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rocelab.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["plural"] = text.plural
    return environment


def _asset(name: str) -> Markup:
    # Ours, not a user's: it goes into <style> and <script> as it is.
    return Markup(resources.files("rocelab.report").joinpath("templates", name).read_text(encoding="utf-8"))  # noqa: S704


def make_page(
    model: RunModel,
    study_text: str,
    overviews: list[Figure],
    sections: list[Section],
    svgs: Mapping[str, str],
    *,
    pairs: Sequence[AllPairs],
) -> str:
    """The whole page. ``svgs`` holds a picture of each figure for readers without JavaScript."""
    figures = overviews + [figure for section in sections for _, made in section.links for figure in made]
    context: dict[str, Any] = {
        "info": model.info,
        "version": rocelab.__version__,
        "css": _asset("style.css"),
        "js": _asset("page.js"),
        "vega": Markup(render.javascript()),  # noqa: S704
        "started": _moment(model.info.started_at),
        "duration": _duration(model.info.started_at, model.info.ended_at),
        "step_count": model.step_count,
        "contents": _contents(model, sections),
        "banners": _banners(model, pairs),
        "marks": MARKS,
        "summaries": summary.link_summaries(model),
        "pairs": all_pairs.sentences(pairs),
        "overviews": overviews,
        "chosen": [
            *source_tables.tables(model),
            *(
                table
                for link in model.links
                for table in (*nas.brief_tables(model, link), *summary.chosen_sizes_tables(model, link))
            ),
            *clouds.tables(model),
            *transports.tables(model),
        ],
        "levels": {test.level for test in model.every_test},
        "level_words": catalogue.level_words({test.level for test in model.every_test}),
        "judgements": model.judgements,
        "null_words": null_words(model.judgements),
        "verdict_class": _VERDICT_CLASS,
        "verdict_mark": _VERDICT_MARK,
        "evidence_table": _evidence_table,
        "sections": sections,
        "symbols": _SYMBOLS,
        "failed": _failed_table(model),
        "failed_count": model.failed_step_count,
        "interval_words": _interval_words(model.info.repetitions),
        "provenance": _provenance_table(model),
        "losses": losses.table(model),
        "commands": _commands_table(model),
        "study_text": study_text,
        "figure_data": {
            "specs": {figure.name: figure.spec for figure in figures},
            "themes": {"light": render.theme(dark=False), "dark": render.theme(dark=True)},
        },
        "fallbacks": {name: _data_url(svg) for name, svg in svgs.items()},
    }
    return _environment().get_template("report.html.j2").render(context)


def _data_url(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _moment(iso: str) -> str:
    try:
        return f"{datetime.fromisoformat(iso):%d %B %Y, %H:%M} UTC"
    except ValueError:
        return iso


def _duration(started: str, ended: str | None) -> str:
    if ended is None:
        return ""
    try:
        seconds = round((datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds())
    except ValueError:
        return ""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _contents(model: RunModel, sections: list[Section]) -> list[tuple[str, str]]:
    found = [("summary", "Summary")]
    if model.info.claims:
        found.append(("claims", "Claims"))
    found += [(section.id, section.title) for section in sections]
    if model.failed:
        found.append(("failed", "Failed"))
    return [*found, ("method", "How to read this"), ("provenance", "Provenance")]


def _banners(model: RunModel, pairs: Sequence[AllPairs]) -> list[Banner]:
    banners = [
        Banner(f"{each.subject} is slower than the others.", each.text, "#pairs") for each in all_pairs.findings(pairs)
    ]
    unfinished = f"{text.upper_first(_progress_words(model))}."
    if model.info.status == "interrupted":
        banners.append(Banner("This run was interrupted.", unfinished))
    elif model.info.status == "running":
        banners.append(Banner("This run has not ended, or it crashed.", unfinished))
    if model.failed:
        failed = f"{text.plural(model.failed_step_count, 'measurement')} failed."
        banners.append(Banner(failed, "They are left out of everything below.", "#failed"))
    if model.load_advice is not None:
        banners.append(Banner("This machine was busy.", model.load_advice))
    banners += [Banner("Note.", note) for note in model.info.provenance.notes]
    return banners


def _progress_words(model: RunModel) -> str:
    words = f"{model.step_count:,} of {text.plural(model.info.planned_steps, 'measurement')} made"
    return f"{words}, {model.failed_step_count:,} of them failed" if model.failed else words


def _interval_words(repetitions: int) -> str:
    if repetitions < 2:
        return "with one repetition, none can be given."
    if repetitions < 5:
        return (
            f"with {repetitions} repetitions, Welch's t interval on logarithms: wide, for so few values tell little. "
            "More repetitions narrow it."
        )
    return "a percentile bootstrap of the ratio."


def _evidence_table(judgement: Judgement) -> DataTable:
    rows = tuple(
        (
            text.size(row.size_bytes),
            row.counts_as,
            text.times_range(row.ratio),
            text.quantity_range(row.subject, row.unit),
            text.quantity_range(row.reference, row.unit),
            row.reference_name,
        )
        for row in judgement.evidence
    )
    ratio = f"{judgement.subject_name} / {judgement.reference_name}"
    head = ("Message size", "Counts as", ratio, judgement.subject_name, judgement.reference_name, "Held against")
    return DataTable(f"Numbers behind claim {judgement.claim.id}", head, rows)


def _failed_table(model: RunModel) -> DataTable | None:
    if not model.failed:
        return None
    rows = tuple(_failed_row(sample) for sample in model.failed[:_FAILED_LIMIT])
    head = ("Measurement", "Message size", "Repetition", "What happened", "Log")
    return DataTable("Each failed measurement, with its log", head, rows, wrap=True)


def _test_words(sample: Sample) -> str:
    """The test, and beyond the network level also on what it ran."""
    if sample.level == "network":
        return sample.test
    return f"{sample.level.upper()} {sample.test}, {sample.ranks} processes on {sample.nodes} nodes"


def _failed_row(sample: Sample) -> tuple[str, ...]:
    return (
        f"{_test_words(sample)}, {sample.link}, {sample.interconnect} {sample.variant}",
        "none" if sample.size_bytes is None else text.size(sample.size_bytes),
        str(sample.repetition + 1),
        sample.error or "",
        sample.log or "none",
    )


def _provenance_table(model: RunModel) -> DataTable:
    info, machine = model.info, model.info.provenance
    commit = machine.git_commit or "unknown"
    if machine.git_dirty:
        commit += " with uncommitted changes"
    rows = [
        ("Run", info.id),
        ("Started", info.started_at),
        ("Ended", info.ended_at or "not recorded"),
        ("Status", f"{info.status}: {_progress_words(model)}"),
        ("Command line", machine.command),
        ("Seed of the order", str(info.seed)),
        ("Machine", machine.machine),
        ("CPU", f"{machine.cpu_model}, {text.plural(machine.cores, 'core')}"),
        ("Memory", f"{machine.memory_bytes / (1 << 30):.1f} GiB"),
        ("Kernel", machine.kernel),
        ("Distribution", machine.distribution),
        ("CPU frequency governor", machine.governor or "not known"),
        *((name, str(value)) for name, value in machine.network.items()),
        ("Fabric", info.fabric),
        *((("How far predictions are off", _bound_words()),) if info.fabric == SIMULATED else ()),
        *((f"Link {link.id}", _link_words(link)) for link in info.links),
        ("rocelab", f"{machine.rocelab_version}, Python {machine.python_version}"),
        ("urxe (Soft RoCE)", machine.urxe_version or "unknown"),
        ("Commit", commit),
        *_programs(machine.tools),
    ]
    return DataTable("Where and with what this was measured", (), tuple(rows), wrap=True)


def _bound_words() -> str:
    parts = [
        f"{error:.0%} in {metric} ({text.plural(count, 'source')})"
        for metric, (error, count) in held_out_errors().items()
    ]
    return (
        f"{text.listing(parts)}, between two idle hosts with one queue pair: the middle over published sources "
        "that were held out (rocelab validate, docs/validation.md)"
    )


def _programs(versions: Mapping[str, str]) -> list[tuple[str, str]]:
    """Programs of one version, usually of one package, in one row."""
    names: dict[str, list[str]] = {}
    for name, version in versions.items():
        names.setdefault(version, []).append(name)
    return [(", ".join(of_version), version) for version, of_version in names.items()]


def _link_words(link: LinkInfo) -> str:
    words = [link.kind, f"MTU {link.mtu_bytes} bytes"]
    words.append("unshaped" if link.rate_mbps is None else f"shaped to {text.quantity(link.rate_mbps, 'Mbps')}")
    if link.queue_bytes is not None:
        words.append(f"queue of {text.size(link.queue_bytes)}")
    if link.switch_queue_bytes is not None:
        words.append(f"queue of {text.size(link.switch_queue_bytes)} in the switch")
    if link.nodes_per_switch is not None:
        words.append(f"{text.plural(link.nodes_per_switch, 'node')} at each access switch")
    if link.gso_max_bytes is not None:
        words.append(f"BIG TCP, up to {link.gso_max_bytes} bytes at once where the kernel has it")
    if link.uplink_rate_mbps is not None:
        words.append(f"uplinks shaped to {text.quantity(link.uplink_rate_mbps, 'Mbps')}")
    if link.loss_percent is not None:
        words.append(losses.loss_words(link))
    if link.ecn_percent is not None:
        words.append(f"ECN capable packets marked from {link.ecn_percent:g} % of a port's rate on")
    words += [f"{name.replace('_', ' ')} {value}" for name, value in link.facts.items()]
    return ", ".join(words)


def _commands_table(model: RunModel) -> DataTable:
    """One command line for each program and test: those of other sizes differ in the size and the iterations."""
    found: dict[tuple[str, ...], Sample] = {}
    for sample in model.samples:
        name = (_test_words(sample), sample.link, f"{sample.interconnect} {sample.variant}")
        if name not in found or (sample.size_bytes or 0) <= 1024:
            found[name] = sample
    rows = tuple(
        (", ".join(name), f"{sample.tool} {sample.tool_version}", sample.command) for name, sample in found.items()
    )
    head = ("Measurement", "Program", "Command")
    return DataTable("One command line of each kind (client side)", head, rows, wrap=True)
