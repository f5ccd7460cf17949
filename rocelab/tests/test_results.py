"""The run folder: what is written is read back, and a crash or a foreign file is met with a clear answer."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import rocelab
from rocelab.results import (
    LinkInfo,
    Provenance,
    ResultsError,
    RunInfo,
    RunStore,
    Sample,
    find_run,
    list_runs,
    parse_sample,
    sample_schema,
)

SCHEMA_FILE = Path(rocelab.__file__).parent / "schemas" / "sample.v1.json"


def make_info(run_id: str = "20261121-064512-quick-3f2a", **changes: Any) -> RunInfo:
    info = RunInfo(
        id=run_id,
        study="quick",
        title="Soft RoCE against TCP",
        fabric="emulated",
        status="running",
        started_at="2026-11-21T06:45:12Z",
        seed=7,
        repetitions=3,
        links=(LinkInfo("direct", "direct", 1500), LinkInfo("ethernet-1g", "bridge", 1500, 1000.0)),
        provenance=Provenance(
            machine="x86_64",
            cpu_model="test",
            cores=2,
            memory_bytes=1 << 32,
            kernel="6.1",
            distribution="Debian 12",
            command="rocelab run studies/quick.toml",
            rocelab_version="0.1.0",
            python_version="3.11",
            tools={"perftest": "4.5"},
        ),
        planned_steps=12,
        claims=("S1",),
    )
    return dataclasses.replace(info, **changes)


def make_sample(**changes: Any) -> Sample:
    sample = Sample(
        study="quick",
        run="20261121-064512-quick-3f2a",
        fabric="emulated",
        link="direct",
        interconnect="soft-roce",
        level="network",
        test="latency",
        variant="send",
        size_bytes=64,
        params={"iterations": 1000, "pinned": True, "ratio": 0.5, "device": "urxe_eth0"},
        metric="latency_us",
        unit="us",
        statistic="median",
        value=3.25,
        repetition=0,
        ok=True,
        error=None,
        tool="ib_send_lat",
        tool_version="4.5",
        command="ib_send_lat -d urxe_eth0 -s 64",
        started_at="2026-11-21T06:45:13Z",
        duration_s=0.4,
        log="logs/0001.txt",
        order=0,
    )
    return dataclasses.replace(sample, **changes)


def make_failure(**changes: Any) -> Sample:
    return make_sample(value=None, ok=False, error="stopped after 10 s", **changes)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, make_info(), 'title = "x"\n')


def test_what_is_appended_is_read_back_equal(store: RunStore) -> None:
    samples = [make_sample(), make_sample(order=1, repetition=1, size_bytes=None, log=None), make_failure(order=2)]
    for sample in samples:
        store.append(sample)
    store.set_status("incomplete", ended_at="2026-11-21T06:50:00Z")
    again = RunStore.open(store.path)
    assert again.samples() == samples
    assert again.info == store.info
    assert again.info.status == "incomplete"
    assert again.study_text() == 'title = "x"\n'


def test_param_types_survive(store: RunStore) -> None:
    store.append(make_sample())
    params = store.samples()[0].params
    assert [type(params[key]) for key in ("iterations", "pinned", "ratio", "device")] == [int, bool, float, str]


def test_a_last_line_cut_short_is_left_out_and_spoils_no_other(store: RunStore) -> None:
    store.append(make_sample(), make_sample(order=1, repetition=1))
    store.close()
    file = store.path / "samples.ndjson"
    file.write_bytes(file.read_bytes()[:-20])
    after_crash = RunStore.open(store.path)
    assert [sample.order for sample in after_crash.samples()] == [0]
    after_crash.append(make_sample(order=2, repetition=1))
    assert [sample.order for sample in after_crash.samples()] == [0, 2]


def test_a_bad_line_in_the_middle_is_named(store: RunStore) -> None:
    store.append(make_sample())
    with (store.path / "samples.ndjson").open("ab") as file:
        file.write(b'{"study": 1}\n')
    store.append(make_sample(order=1))
    with pytest.raises(ResultsError, match=r"samples\.ndjson, line 2: study"):
        store.samples()


def test_done_keys_omits_failures_and_takes_the_last_attempt(store: RunStore) -> None:
    first = make_sample(size_bytes=1)
    store.append(first, dataclasses.replace(first, metric="cpu_client_cores", unit="cores"))
    store.append(make_failure(size_bytes=2, order=1))
    store.append(make_failure(size_bytes=4, order=2))
    assert {key.size_bytes for key in store.done_keys()} == {1}
    assert store.next_order() == 3
    store.append(make_sample(size_bytes=2, order=3))
    assert {key.size_bytes for key in store.done_keys()} == {1, 2}
    assert [(sample.size_bytes, sample.ok) for sample in store.current_samples()] == [
        (1, True),
        (1, True),
        (4, False),
        (2, True),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"value": None},
        {"value": float("nan")},
        {"value": float("inf")},
        {"ok": False},
        {"ok": False, "value": None},
        {"ok": False, "value": None, "error": ""},
    ],
)
def test_contradictory_samples_cannot_be_made(changes: dict[str, Any]) -> None:
    with pytest.raises(ResultsError):
        make_sample(**changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size_bytes": "64"}, "size_bytes"),
        ({"params": {"a": [1]}}, r"params\.a"),
        ({"ok": 1}, "ok"),
        ({"schema_version": 99}, "version 99.*newer"),
        ({"value": None}, "finite value"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], message: str, store: RunStore) -> None:
    store.append(make_sample())
    raw = json.loads((store.path / "samples.ndjson").read_text()) | change
    with pytest.raises(ResultsError, match=message):
        parse_sample(json.dumps(raw))


def test_unknown_fields_of_a_newer_writer_are_passed_over(store: RunStore) -> None:
    store.append(make_sample())
    raw = json.loads((store.path / "samples.ndjson").read_text()) | {"colour": "blue"}
    assert parse_sample(json.dumps(raw)) == make_sample()


def test_the_schema_is_current_and_accepts_what_is_written(store: RunStore) -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    assert schema == sample_schema(), "run: python -m rocelab.schemas"
    store.append(make_sample(), make_failure(order=1))
    for line in (store.path / "samples.ndjson").read_text().splitlines():
        jsonschema.validate(json.loads(line), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"study": "quick"}, schema)


def test_a_run_never_overwrites_another(store: RunStore) -> None:
    with pytest.raises(ResultsError, match="is there already"):
        RunStore.create(store.path.parent, make_info(), "")


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", ".hidden"])
def test_a_run_id_cannot_leave_its_folder(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(ResultsError, match="run id"):
        RunStore.create(tmp_path, make_info(run_id), "")


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"not a run folder: it has no run\.json"):
        RunStore.open(tmp_path)


def test_runs_are_listed_oldest_first(tmp_path: Path) -> None:
    RunStore.create(tmp_path, make_info("b", started_at="2026-01-02T00:00:00Z"), "")
    RunStore.create(tmp_path, make_info("a", started_at="2026-01-03T00:00:00Z"), "")
    (tmp_path / "other").mkdir()
    assert [run.info.id for run in list_runs(tmp_path)] == ["b", "a"]
    assert list_runs(tmp_path / "none") == []


def test_a_run_is_found_by_folder_id_part_or_as_the_latest(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no runs in"):
        find_run(tmp_path, "latest")
    RunStore.create(tmp_path, make_info("20260101-quick-aaaa", started_at="2026-01-01T00:00:00Z"), "")
    RunStore.create(tmp_path, make_info("20260102-quick-bbbb", started_at="2026-01-02T00:00:00Z"), "")
    for name in ("latest", "20260102-quick-bbbb", "20260102", "bbbb", str(tmp_path / "20260102-quick-bbbb")):
        assert find_run(tmp_path, name).info.id == "20260102-quick-bbbb"
    with pytest.raises(ResultsError, match=r"fits 2 runs: .*aaaa, .*bbbb"):
        find_run(tmp_path, "2026")
    with pytest.raises(ResultsError, match=r"no run 'zzz'.*aaaa"):
        find_run(tmp_path, "zzz")


def test_a_kept_run_reads_as_it_was_without_logs_and_folders(store: RunStore, tmp_path: Path) -> None:
    command = "A=/opt/x/y.so /srv/lab/bin/rocelab-sock client 10.80.0.2 --port 18001"
    store.append(make_sample(command=command, log="logs/1.log"), make_sample(repetition=1, order=2))
    store.keep(tmp_path / "kept")
    kept = RunStore.open(tmp_path / "kept")
    assert [dataclasses.replace(each, log=None, command="") for each in store.samples()] == [
        dataclasses.replace(each, log=None, command="") for each in kept.samples()
    ]
    assert kept.samples()[0].command == "A=y.so rocelab-sock client 10.80.0.2 --port 18001"
    assert kept.study_text() == store.study_text()
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == [
        "run.json",
        "samples.ndjson.xz",
        "study.toml",
    ]
