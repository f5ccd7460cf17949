"""Thresholds: what may be asked for, what passes, and the files that other programs read."""

from __future__ import annotations

import dataclasses
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rocelab.acceptance import formats
from rocelab.acceptance.criteria import load
from rocelab.acceptance.judging import Check, checks
from rocelab.report.tests.synthetic import make_info, make_run
from rocelab.report.tests.test_all_pairs import pairs
from rocelab.results import LinkInfo, RunStore, Sample
from rocelab.study.problems import StudyError

HEAD = 'schema = 1\nstudy = "quick"\nbaseline = "before"\n'
BANDWIDTH = 'test = "bandwidth"\ninterconnect = "tcp"\nvariant = "blocking"\nlink = "ethernet-1g"\nsize_bytes = 65536\n'


def criteria(tmp_path: Path, threshold: str, head: str = HEAD) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(f"{head}[[threshold]]\n{threshold}")
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return make_run(tmp_path_factory.mktemp("runs"), failures=False)


def judged(tmp_path: Path, store: RunStore, threshold: str, before: RunStore | None = None) -> list[Check]:
    samples = store.current_samples()
    baseline = [] if before is None else before.current_samples()
    return checks(load(criteria(tmp_path, threshold)).threshold, store.info, samples, baseline)


@pytest.mark.parametrize(
    ("threshold", "head", "problem"),
    [
        ('test = "latency"\n', HEAD, "nothing is asked for; give one or more of: at_least, at_most"),
        ('test = "latency"\nwithin_of_median = 0.1\n', HEAD, 'it is for level = "pairs"'),
        ('test = "latency"\nwithin_of_baseline = 0.1\n', 'schema = 1\nstudy = "quick"\n', "give `baseline`"),
        ('test = "latency"\nat_most = -1\n', HEAD, "greater than 0"),
        ('test = "latency"\nat_least_of_rate = 90\n', HEAD, "less than or equal to 1"),
        ('test = "latency"\nat_mots = 1\n', HEAD, "unknown key 'at_mots'; did you mean 'at_most'"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(tmp_path: Path, threshold: str, head: str, problem: str) -> None:
    with pytest.raises(StudyError, match=re.escape(problem)) as error:
        load(criteria(tmp_path, threshold, head))
    assert re.match(rf"{tmp_path}/site.toml:\d+: threshold\[1\]", str(error.value))


def test_a_number_is_a_bound_in_the_unit_of_the_metric(tmp_path: Path, store: RunStore) -> None:
    (good,) = judged(tmp_path, store, BANDWIDTH + "at_least = 100\n")
    assert good.passed
    (bad,) = judged(tmp_path, store, BANDWIDTH + "at_least = 5000\n")
    assert bad.violation is not None
    assert re.fullmatch(r"\d+ Mbps; wanted: at least 5.00 Gbps", bad.violation)
    assert bad.subject == "ethernet-1g tcp blocking bandwidth 64 KiB"


def test_a_part_of_the_rate_is_one_of_the_link(tmp_path: Path, store: RunStore) -> None:
    (good,) = judged(tmp_path, store, BANDWIDTH + "at_least_of_rate = 0.5\n")
    assert good.bound == 500.0
    assert good.passed
    (bad,) = judged(tmp_path, store, BANDWIDTH.replace("ethernet-1g", "direct") + "at_least_of_rate = 0.5\n")
    assert bad.violation == "the rate of direct is not known: ask for a number with at_least"


def test_a_baseline_is_another_run(tmp_path: Path, store: RunStore) -> None:
    faster = make_run(tmp_path / "faster", failures=False, speed_up=2.0)
    of_roce = 'test = "latency"\ninterconnect = "soft-roce"\nvariant = "send"\nlink = "direct"\n'
    now = judged(tmp_path, store, of_roce + "within_of_baseline = 0.2\n", faster)
    assert len(now) > 5
    assert not any(check.passed for check in now if check.place and check.place.size_bytes < 1024)
    assert all(check.passed for check in judged(tmp_path, faster, of_roce + "within_of_baseline = 0.2\n", store))
    (missing, *_) = judged(tmp_path, store, of_roce + "within_of_baseline = 0.2\n")
    assert missing.violation == "the baseline has no such measurement"


def test_a_variant_of_iwarp_is_meant_under_each_control_or_under_one(tmp_path: Path) -> None:
    store = make_run(tmp_path, failures=False, sizes_bytes=(64,), controls=True)
    asked = 'test = "latency"\ninterconnect = "soft-iwarp"\nlink = "direct"\nat_most = 1000\n'
    every = judged(tmp_path, store, asked + 'variant = "send"\n')
    assert [check.passed for check in every] == [True, True]
    assert len(judged(tmp_path, store, asked + 'variant = "send@cubic"\n')) == 1


def test_what_was_not_measured_does_not_pass(tmp_path: Path, store: RunStore) -> None:
    (check,) = judged(tmp_path, store, 'test = "latency"\ninterconnect = "roce"\nat_most = 3\n')
    assert check.violation == "nothing of the kind was measured"


def test_what_failed_does_not_pass(tmp_path: Path) -> None:
    failing = make_run(tmp_path / "runs", failures=True)
    failed = next(sample for sample in failing.samples() if not sample.ok)
    found = judged(
        tmp_path, failing, f'test = "{failed.test}"\ninterconnect = "{failed.interconnect}"\nat_least = 0.001\n'
    )
    assert any("a measurement failed" in (check.violation or "") for check in found)


def of_pairs(tmp_path: Path, samples: list[Sample] | None = None) -> RunStore:
    info = dataclasses.replace(make_info("pairs", 2, 1, 8), links=(LinkInfo("rail", "rail", 1500, 1000.0),), claims=())
    store = RunStore.create(tmp_path / "pairs", info, "")
    store.append(*(pairs("node7") if samples is None else samples))
    store.close()
    return store


def test_a_node_that_receives_slowly_does_not_pass_as_a_sender(tmp_path: Path) -> None:
    def slow(sample: Sample) -> Sample:
        if sample.value is None or sample.params["server"] != "node3":
            return sample
        return dataclasses.replace(sample, value=sample.value * 0.8)

    store = of_pairs(tmp_path, [slow(sample) for sample in pairs(None)])
    found = judged(tmp_path, store, 'level = "pairs"\ntest = "bandwidth"\nwithin_of_median = 0.15\n')
    (bad,) = [check for check in found if not check.passed and check.place and check.place.node]
    assert bad.subject.endswith("node3 receiving")


def test_latency_that_was_measured_one_way_has_no_roles(tmp_path: Path) -> None:
    one_way = [each for each in pairs("node7") if str(each.params["client"]) < str(each.params["server"])]
    store = of_pairs(tmp_path, one_way)
    found = judged(tmp_path, store, 'level = "pairs"\ntest = "bandwidth"\nwithin_of_median = 0.1\n')
    nodes = [check.place for check in found if check.place and check.place.node]
    assert {place.role for place in nodes} == {""}
    assert len(nodes) == 12


def test_a_node_is_held_against_the_median_node(tmp_path: Path) -> None:
    found = judged(tmp_path, of_pairs(tmp_path), 'level = "pairs"\ntest = "bandwidth"\nwithin_of_median = 0.1\n')
    bad = [check for check in found if not check.passed]
    of_nodes = [(check.place.node, check.place.role) for check in bad if check.place and check.place.node]
    assert of_nodes == [("node7", "sending"), ("node7", "receiving")]
    assert sum(check.place is not None and check.place.node != "" for check in found) == 2 * 12
    (failed,) = [check for check in bad if check.place and check.place.client]
    assert failed.subject.endswith("node1 to node12")
    assert failed.violation == "a measurement failed: node12: its agent is gone"


def test_each_pair_is_held_against_the_rate(tmp_path: Path) -> None:
    found = judged(tmp_path, of_pairs(tmp_path), 'level = "pairs"\ntest = "bandwidth"\nat_least_of_rate = 0.9\n')
    slow = {check.subject.rpartition(", ")[2] for check in found if not check.passed}
    assert len(slow) == 2 * 11 + 1
    assert {"node7 to node1", "node1 to node7"} <= slow


def test_junit_json_and_prometheus_say_the_same(tmp_path: Path) -> None:
    store = of_pairs(tmp_path)
    found = judged(tmp_path, store, 'level = "pairs"\ntest = "bandwidth"\nwithin_of_median = 0.1\n')
    bad = sum(not check.passed for check in found)
    root = ET.fromstring(formats.junit(found, store.info).encode())
    assert len(root.findall(".//failure")) == bad == int(root[0].attrib["failures"])
    read = json.loads(formats.as_json(found, store.info))
    assert read["passed"] is False
    assert sum(not each["passed"] for each in read["checks"]) == bad
    text = formats.prometheus(found, store.info)
    assert f"\nrocelab_acceptance_violations {bad}\n" in text
    label = r'[a-z_]+="(?:[^"\\]|\\.)*"'
    line = re.compile(rf"[a-z_]+(?:\{{{label}(?:,{label})*\}})? -?[0-9.e+-]+")
    assert all(line.fullmatch(each) for each in text.splitlines() if not each.startswith("#"))


def test_labels_of_prometheus_are_escaped(tmp_path: Path, store: RunStore) -> None:
    (check,) = judged(tmp_path, store, BANDWIDTH + "name = 'a \"quoted\" \\ name'\nat_least = 1\n")
    assert r'threshold="a \"quoted\" \\ name"' in formats.prometheus([check], store.info)
