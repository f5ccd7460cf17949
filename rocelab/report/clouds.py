"""Tables of the level cloud: one for each test, with a line for each link and each way to use it."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.report.gallery import DataTable
from rocelab.report.model import RunModel
from rocelab.stats import SeriesKey, text

_TITLES = {"testdfsio": "HDFS, TestDFSIO", "terasort": "Spark, TeraSort", "shuffle": "Spark, shuffle alone"}
#: By the beginning of a test's name: what is shown of it, and what it is called.
_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "testdfsio": (("write_mib_per_s", "Write"), ("read_mib_per_s", "Read")),
    "ycsb": (
        ("throughput_per_s", "Operations"),
        ("read_latency_us", "Get latency"),
        ("update_latency_us", "Put latency"),
        ("insert_latency_us", "Insert latency"),
        ("scan_latency_us", "Scan latency"),
        ("read_modify_write_latency_us", "Get and put latency"),
    ),
    "terasort": (
        ("terasort_s", "Sort"),
        ("terasort_reduce_stage_s", "Reduce stage"),
        ("terasort_fetch_wait_s", "Waiting for blocks, all tasks"),
        ("node_throughput_mbps", "Sent by a worker"),
    ),
    "shuffle": (
        ("shuffle_s", "Shuffle"),
        ("shuffle_reduce_stage_s", "Reduce stage"),
        ("shuffle_fetch_wait_s", "Waiting for blocks, all tasks"),
        ("node_throughput_mbps", "Sent by a worker"),
    ),
}


def tables(model: RunModel) -> list[DataTable]:
    """One for each test that was run."""
    keys = [key for key in model.series_keys if key.level == "cloud"]
    return [
        _table(model, test, [key for key in keys if key.test == test]) for test in dict.fromkeys(k.test for k in keys)
    ]


def _table(model: RunModel, test: str, keys: Sequence[SeriesKey]) -> DataTable:
    known = _COLUMNS[test.partition("-")[0]]
    columns = [(metric, name) for metric, name in known if any(key.metric == metric for key in keys)]
    rows = []
    for key in dict.fromkeys(key._replace(metric=columns[0][0]) for key in keys):
        series = [model.series_of(key._replace(metric=metric)) for metric, _ in columns]
        for size in series[0].sizes if series[0] else ():
            cells = (
                text.quantity_range(each.spread(size), each.unit) if each and size in each.values else "none"
                for each in series
            )
            how = f"{key.link}, {key.interconnect} {key.variant}, {text.plural(key.ranks, 'worker')}"
            rows.append((how, text.size(size), *cells))
    title = _TITLES.get(test, f"HBase, {test.upper().replace('YCSB-', 'YCSB ')}")
    what = {"testdfsio": "File size", "terasort": "Records", "shuffle": "Data"}.get(test, "Value size")
    head = ("Link, transport", what, *(name for _, name in columns))
    return DataTable(f"{title}: median (smallest to largest)", head, tuple(rows))
