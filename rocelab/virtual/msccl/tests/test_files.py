"""Studies with collectives that are files: what they may say, and what runs of them tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocelab.results import Sample
from rocelab.study.problems import StudyError
from rocelab.virtual.loading import parse
from rocelab.virtual.msccl import loading
from rocelab.virtual.msccl.tests.test_reading import RING
from rocelab.virtual.scenario import scenario
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.steps import VirtualStep, plan
from rocelab.virtual.tests.test_studies import run_study

HEAD = """
schema = 1
id = "filed"
title = "A collective from a file"
fabric = { kind = "virtual", host = "xeon-scalable" }

[[link]]
id = "switch"
topology = "one-switch"
switches = ["hpcc-switch"]
path_mtu_bytes = 4096
"""
FROM_FILE = """
[[test]]
test = "msccl"
file = "ring.xml"
sizes_bytes = [65536, 1048576]
nodes = [4]

[test.variants]
roce-100g = ["send"]
"""
BUILT_IN = FROM_FILE.replace('test = "msccl"\nfile = "ring.xml"', 'test = "ring-all-reduce"')
DOCUMENT = Path(__file__).parents[4] / "docs" / "networks.md"


def written(folder: Path, text: str, name: str = "ring.xml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def loaded(folder: Path, text: str) -> VirtualStudy:
    return parse(text, str(folder / "study.toml"))


def values(samples: list[Sample], metric: str = "collective_us") -> Mapping[tuple[str, int | None], float]:
    return {(each.test, each.size_bytes): each.value or 0.0 for each in samples if each.metric == metric}


def messages(step: VirtualStep) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scenario(step)["traffic"]["messages"]
    return found


def test_a_ring_from_a_file_takes_as_long_as_the_one_that_is_built_in(tmp_path: Path) -> None:
    samples = run_study(written(tmp_path, RING), HEAD + FROM_FILE + BUILT_IN)
    for metric in ("collective_us", "algorithm_bandwidth_mbps", "bus_bandwidth_mbps"):
        found = values(samples, metric)
        for size_bytes in (65536, 1048576):
            assert found["msccl", size_bytes] == pytest.approx(found["ring-all-reduce", size_bytes], rel=1e-9)


def test_two_runs_tell_the_same(tmp_path: Path) -> None:
    runs = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        runs.append([each.value for each in run_study(written(tmp_path / name, RING), HEAD + FROM_FILE)])
    assert runs[0] == runs[1]


def test_groups_of_the_ranks_of_the_file_run_at_the_same_time(tmp_path: Path) -> None:
    grouped = FROM_FILE.replace("nodes = [4]", "nodes = [8]\nstride = 2")
    (step, *_) = plan(loaded(written(tmp_path, RING), HEAD + grouped))
    assert isinstance(step, VirtualStep)
    assert {(each["from"], each["to"]) for each in messages(step)} == {
        *[(0, 2), (2, 4), (4, 6), (6, 0)],
        *[(1, 3), (3, 5), (5, 7), (7, 1)],
    }
    samples = run_study(tmp_path, HEAD + FROM_FILE + grouped)
    times = {(each.nodes, each.size_bytes): each.value for each in samples if each.metric == "collective_us"}
    for size_bytes in (65536, 1048576):
        assert times[8, size_bytes] == pytest.approx(times[4, size_bytes], rel=1e-6)


def test_the_size_says_how_long_chunks_are(tmp_path: Path) -> None:
    (step, *_) = plan(loaded(written(tmp_path, RING), HEAD + FROM_FILE.replace("[65536, 1048576]", "[1001]")))
    assert isinstance(step, VirtualStep)
    assert {each["size_bytes"] for each in messages(step)} == {251}
    assert (step.key.variant, step.key.ranks) == ("send:file=ring", 4)


def chain(chunks: int, count: int) -> str:
    """From GPU 0 to 1, as so many chunks in one message or each in its own."""

    def steps(kind: str) -> str:
        return "".join(
            f'<step s="{at}" type="{kind}" srcbuf="i" srcoff="{at * count}" dstbuf="o" dstoff="{at * count}" '
            f'cnt="{count}" depid="-1" deps="-1" hasdep="0"/>'
            for at in range(chunks // count)
        )

    return (
        f'<algo name="chain" proto="LL" nchannels="1" nchunksperloop="{chunks}" ngpus="2" coll="custom" inplace="0">'
        f'<gpu id="0" i_chunks="{chunks}" o_chunks="0" s_chunks="0"><tb id="0" send="1" recv="-1" chan="0">{steps("s")}'
        f'</tb></gpu><gpu id="1" i_chunks="0" o_chunks="{chunks}" s_chunks="0"><tb id="0" send="-1" recv="0" chan="0">'
        f"{steps('r')}</tb></gpu></algo>"
    )


def test_chunks_of_a_connection_follow_each_other_without_a_gap(tmp_path: Path) -> None:
    written(written(tmp_path, chain(64, 1), "many.xml"), chain(64, 64), "whole.xml")
    text = FROM_FILE.replace("nodes = [4]", "nodes = [2]")
    samples = run_study(tmp_path, HEAD + "".join(text.replace("ring", name) for name in ("many", "whole")))
    times = {each.variant: each.value or 0.0 for each in samples if each.size_bytes == 1048576 and "_us" in each.metric}
    assert times["send:file=many"] == pytest.approx(times["send:file=whole"], rel=0.02)
    assert "bus_bandwidth_mbps" not in {each.metric for each in samples}, "of a custom collective it says nothing"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('file = "ring.xml"', "", 'test[1].file: msccl needs file = "NAME.xml"'),
        ("ring.xml", "rings.xml", "test[1].file: rings.xml: No such file or directory"),
        ('"ring.xml"', "7", "test[1].file: 7: this is not the path of a file, in quotes"),
        ('"msccl"', '"mesh"', "test[1].file: mesh has no file; msccl has"),
        ("nodes = [4]", "nodes = [6]", "test[1].nodes: 6 hosts are not groups of 4 ranks 1 apart"),
        ("nodes = [4]", "nodes = [4]\nranks = 4", "test[1].ranks: the file says how many ranks a group has: 4"),
        ("[65536, 1048576]", "[3]", "3 bytes have not a byte for each of the 4 chunks of ring.xml"),
        ('["send"]', '["write"]', "unknown variant 'write'"),
    ],
)
def test_what_is_wrong_in_a_study_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(StudyError, match=re.escape(said)):
        loaded(written(tmp_path, RING), HEAD + FROM_FILE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('type="rrs"', 'type="rsr"', "ring.xml: line 6: gpu 0, tb 0, step 1: type is 'rsr'; allowed: s, r, rcs"),
        ('type="s"', 'type="nop"', "ring.xml: line 22: gpu 1, tb 0, step 6: deadlock, nothing sends what it receives"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place_and_the_line_of_the_study(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    with pytest.raises(StudyError, match=rf"study\.toml:15: test\[1\]\.file: {re.escape(said)}"):
        loaded(written(tmp_path, RING.replace(old, new, 1)), HEAD + FROM_FILE)


def test_files_that_results_would_call_the_same_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    written(written(tmp_path, RING) / "other", RING.replace("four", "4"))
    twice = HEAD + FROM_FILE + FROM_FILE.replace("ring.xml", "other/ring.xml")
    with pytest.raises(StudyError, match=r"results call both ring\.xml and other/ring\.xml 'ring'"):
        loaded(tmp_path, twice)


def test_more_messages_than_there_is_memory_for_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_MESSAGES_MAX", 47)
    with pytest.raises(StudyError, match=r"test\[1\]\.nodes: 8 hosts send 48 messages; a simulation has at most 47"):
        loaded(written(tmp_path, RING), HEAD + FROM_FILE.replace("nodes = [4]", "nodes = [4, 8]"))


def test_a_run_that_goes_on_finds_the_file_beside_the_first_study(tmp_path: Path) -> None:
    study = parse(HEAD + FROM_FILE, "runs/1/study.toml", folder=str(written(tmp_path, RING)))
    (test,) = study.test
    assert getattr(test, "file").folder == str(tmp_path)  # noqa: B009


def test_the_example_of_the_documents_is_a_ring_of_two(tmp_path: Path) -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Collectives from files")[2].partition("\n## ")[0]
    xml, toml = (re.findall(rf"```{kind}\n(.*?)```", section, re.DOTALL) for kind in ("xml", "toml"))
    assert (len(xml), len(toml)) == (1, 1)
    (name,) = re.findall(r'file = "(.*)"', toml[0])
    built_in = toml[0].replace('"msccl"', '"ring-all-reduce"').replace(f'file = "{name}"', "")
    found = values(run_study(written(tmp_path, xml[0], name), HEAD + toml[0] + built_in))
    sizes_bytes = {size_bytes for _, size_bytes in found}
    assert len(sizes_bytes) > 1
    for size_bytes in sizes_bytes:
        assert found["msccl", size_bytes] == pytest.approx(found["ring-all-reduce", size_bytes], rel=1e-9)
