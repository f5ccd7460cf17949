"""Studies at the sizes of their sources: what is planned then, and what it is estimated to take. Nothing is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocelab.study import catalogue
from rocelab.study.loading import load, parse
from rocelab.study.needs import needs
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.scaling import switched
from rocelab.study.schema import Study
from rocelab.study.steps import CloudStep, Step
from rocelab.tools.hbase import Ycsb
from rocelab.tools.hdfs import TestDfsio
from rocelab.tools.spark import Spark

GIB = 1 << 30
TEXT = """\
schema = 1
id = "s"
title = "A small sort"
repetitions = 2
time_limit_s = 60

[full_size]
repetitions = 3
nodes = 5

[fabric]
nodes = 3

[[link]]
id = "ethernet"
kind = "bridge"
rate_mbps = 1000

[[test]]
level = "cloud"
test = "terasort"
sizes_bytes = [1000000]
repetitions = 1
full_size = { sizes_bytes = [10000000000] }
variants = { tcp = ["netty@cubic"] }
"""


def of(name: str) -> Study:
    _, text = load(catalogue.resolve(name))
    return parse(switched(text), name)


def cloud(steps: Sequence[Step]) -> list[CloudStep]:
    return [step for step in steps if isinstance(step, CloudStep)]


def test_full_size_takes_the_place_of_what_one_machine_does() -> None:
    small, full = (cloud(plan(parse(text, "s.toml"))) for text in (TEXT, switched(TEXT)))
    assert [(step.size_bytes, step.nodes) for step in small] == [(1_000_000, 3)]
    # As often as the source repeated everything, whatever a test says of itself.
    assert [(step.size_bytes, step.nodes) for step in full] == [(10_000_000_000, 5)] * 3
    assert full[0].time_limit_s > small[0].time_limit_s + 1000


def test_the_run_of_a_study_at_full_size_goes_on_as_such() -> None:
    again = parse(switched(TEXT), "s.toml")
    assert again.at_full_size
    assert again.fabric.nodes == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("sizes_bytes = [10000000000]", "records = 5"), "records"),
        (("nodes = 5", "nodes = 500"), "nodes"),
        (("nodes = 5", "servers = 5"), "servers"),
    ],
)
def test_full_sizes_that_cannot_be_are_found_when_the_study_is_read(change: tuple[str, str], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        parse(TEXT.replace(*change), "s.toml")


def test_the_middleware_has_the_files_and_records_of_its_source() -> None:
    steps = cloud(plan(of("vienne2012-cloud")))
    files = {step.method.file_bytes for step in steps if isinstance(step.method, TestDfsio)}
    records = {step.method.records for step in steps if isinstance(step.method, Ycsb)}
    assert (min(files), max(files), records) == (GIB, 10 * GIB, {320_000})
    assert {step.repetition for step in steps} == set(range(10))


def test_the_sort_has_the_records_and_servers_of_its_source() -> None:
    steps = [step for step in cloud(plan(of("li2019-spark"))) if step.method.test == "terasort"]
    assert {step.size_bytes for step in steps} == {10_000_000_000}
    # Three numbers of servers, so that the growth can be told, up to the 16 of the source.
    assert {step.nodes for step in steps} == {5, 9, 17}


def test_memory_is_what_is_stored_and_what_the_daemons_have() -> None:
    # Three replicas of two files of 10 GiB; one NameNode, three DataNodes and a client.
    dfsio = [step for step in cloud(plan(of("vienne2012-cloud"))) if step.method.test == "testdfsio"]
    assert needs(dfsio, 1.0).memory_bytes == 60 * GIB + (4 * 256 + 512 + 5 * 128) * (1 << 20)
    # Two links are not there at once, and of the sizes one is.
    (largest,) = [step for step in dfsio if step.size_bytes == 10 * GIB and step.repetition == 0][:1]
    assert needs([largest], 1.0).memory_bytes == needs(dfsio, 1.0).memory_bytes


def test_a_sort_takes_its_input_its_output_and_what_is_between() -> None:
    (step,) = cloud(plan(parse(switched(TEXT), "s.toml")))[:1]
    assert isinstance(step.method, Spark)
    larger = dataclasses.replace(step, method=dataclasses.replace(step.method, size_bytes=2 * step.method.size_bytes))
    more = needs([larger], 1.0).memory_bytes - needs([step], 1.0).memory_bytes
    assert more == 3 * step.method.size_bytes


def test_disk_grows_with_the_measurements_and_the_plan_keeps_its_time(tmp_path: Path) -> None:
    steps = plan(parse(switched(TEXT), str(tmp_path)))
    assert needs(steps, 12.5).seconds == 12.5
    assert needs(steps, 1.0).disk_bytes == len(steps) * needs(steps[:1], 1.0).disk_bytes > 0
