"""The draws in the folder of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rocelab.drawn import DrawStore
from rocelab.results import ResultsError, Sample, parse_sample

VALUES = [
    {"hosts/nehalem-ep.posted_ns": 60.0, "switches/spectrum.buffer_bytes": 12_821_104},
    {"hosts/nehalem-ep.posted_ns": 123.456, "switches/spectrum.buffer_bytes": 33_554_432},
]
SAMPLE = parse_sample(
    b'{"study":"s","run":"r","fabric":"virtual","link":"cable","interconnect":"roce-10g","level":"network",'
    b'"test":"latency","variant":"send","size_bytes":64,"params":{"seed":1},"metric":"latency_us","unit":"us",'
    b'"statistic":"median","value":1.5,"repetition":0,"ok":true,"error":null,"tool":"t","tool_version":"1",'
    b'"command":"t","started_at":"2026-01-01T00:00:00Z","duration_s":1.0,"log":"logs/1.json","order":3}'
)


def again(sample: Sample, value: float) -> Sample:
    return dataclasses.replace(sample, value=value, order=sample.order + 1)


def test_a_run_without_draws_has_none(tmp_path: Path) -> None:
    assert DrawStore(tmp_path).read() is None
    assert DrawStore(tmp_path).values() == []


def test_draws_are_read_as_they_were_written_and_repeated_steps_count_once(tmp_path: Path) -> None:
    store = DrawStore(tmp_path)
    store.begin(VALUES)
    store.append(0, [SAMPLE])
    store.append(1, [SAMPLE])
    store.append(1, [again(SAMPLE, 1.7)])
    assert store.values() == VALUES
    read = store.read()
    assert read is not None
    assert read.count == 2
    assert {draw: [each.value for each in found] for draw, found in read.samples.items()} == {0: [1.5], 1: [1.7]}
    assert read.samples[0][0].params == {"seed": 1, "draw": 0}


def test_half_a_line_that_a_crash_left_is_passed_over_and_written_over(tmp_path: Path) -> None:
    store = DrawStore(tmp_path)
    store.begin(VALUES)
    store.append(0, [SAMPLE])
    with (tmp_path / "draws.ndjson").open("ab") as file:
        file.write(b'{"study": "s", "ru')
    store.append(1, [SAMPLE])
    read = store.read()
    assert read is not None
    assert [len(found) for found in read.samples.values()] == [1, 1]


def test_new_draws_replace_the_samples_of_old_ones(tmp_path: Path) -> None:
    store = DrawStore(tmp_path)
    store.begin(VALUES)
    store.append(0, [SAMPLE])
    store.begin(VALUES[:1])
    read = store.read()
    assert read is not None
    assert read.samples == {0: []}


def test_kept_draws_have_the_metrics_that_are_asked_for_and_can_be_gone_on_with(tmp_path: Path) -> None:
    store, kept = DrawStore(tmp_path), tmp_path / "kept"
    kept.mkdir()
    store.begin(VALUES)
    store.append(0, [SAMPLE, dataclasses.replace(SAMPLE, metric="pauses")])
    store.keep(kept, {"latency_us"})
    store = DrawStore(kept)
    store.append(1, [SAMPLE])
    read = store.read()
    assert read is not None
    assert [[each.metric for each in found] for found in read.samples.values()] == [["latency_us"]] * 2


def test_a_sample_of_no_draw_is_named_with_its_line(tmp_path: Path) -> None:
    store = DrawStore(tmp_path)
    store.begin(VALUES)
    store.append(2, [SAMPLE])
    with pytest.raises(ResultsError, match=r"draws\.ndjson, line 1: params\.draw is no row of draws\.csv"):
        store.read()
