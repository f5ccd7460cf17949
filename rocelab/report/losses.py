"""What links that lose packets on purpose have dropped, as a table of the report."""

from __future__ import annotations

from rocelab.report.gallery import DataTable
from rocelab.report.model import RunModel
from rocelab.results import DROPPED_PARAM, LinkInfo
from rocelab.stats import text


def loss_words(link: LinkInfo) -> str:
    """How many packets a link loses; empty where it loses none on purpose."""
    return "" if link.loss_percent is None else f"{link.loss_percent:g} % of packets dropped on purpose"


def table(model: RunModel) -> DataTable | None:
    """The packets that were dropped while each interconnect was measured; None where no link drops any."""
    steps = {sample.order: sample for sample in model.samples if DROPPED_PARAM in sample.params}
    dropped: dict[tuple[str, str, str], list[int]] = {}
    for sample in steps.values():
        place = (sample.link, sample.level, sample.interconnect)
        dropped.setdefault(place, []).append(int(sample.params[DROPPED_PARAM]))
    if not dropped:
        return None
    words = {link.id: loss_words(link) for link in model.links}
    rows = tuple(
        (
            f"{link} ({words[link]}), {level}",
            interconnect,
            f"{len(counts):,}",
            f"{sum(counts):,}",
            f"{counts.count(0):,}",
        )
        for (link, level, interconnect), counts in dropped.items()
    )
    head = ("Link and level", "Interconnect", "Measurements", "Packets dropped", "Measurements that lost none")
    caption = f"Packets dropped on purpose: {text.plural(sum(map(sum, dropped.values())), 'packet')}"
    return DataTable(caption, head, rows, wrap=True)
