"""Results of each release are read and reported by this one.

The runs in ``rocelab/tests/results`` were written by the code of each release, and are never written
anew: 0.1.0-early is of its first commits, whose samples have fewer fields. Their values mean nothing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import rocelab
from rocelab.cli.compare import compare
from rocelab.cli.report import report
from rocelab.results import RunStore

KEPT = Path(rocelab.__file__).parent / "tests" / "results"
#: How many samples each has.
RUNS = {"0.1.0-early": 88, "0.1.0": 56, "0.2.0": 56}

app = typer.Typer()
app.command()(report)
app.command()(compare)


def invoke(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, " ".join(done.output.split())


def test_every_release_so_far_has_a_run() -> None:
    assert {path.name for path in KEPT.iterdir()} == set(RUNS)
    assert rocelab.__version__ in RUNS, "keep a small run of this version, written by it"


@pytest.mark.parametrize("name", RUNS)
def test_all_samples_of_a_release_are_read(name: str) -> None:
    store = RunStore.open(KEPT / name)
    assert store.info.provenance.rocelab_version == name.removesuffix("-early")
    samples = store.current_samples()
    assert len(samples) == RUNS[name]
    assert {sample.interconnect for sample in samples} == {"tcp", "soft-roce"}
    # Fields that came later have a value.
    assert {(sample.nodes, sample.ranks, sample.part) for sample in samples} == {(2, 2, 0)}
    assert all(sample.ok and sample.value is not None and sample.value >= 0 for sample in samples)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_a_release_is_reported(name: str, tmp_path: Path) -> None:
    status, said = invoke("report", KEPT / name, "--output", tmp_path)
    assert status == 0, said
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    version = name.removesuffix("-early")
    of_older = "" if version == rocelab.__version__ else f" of rocelab {version}"
    run = RunStore.open(KEPT / name).info.id
    assert f"Made by rocelab {rocelab.__version__} from the run <code>{run}</code>{of_older}." in page
    assert (tmp_path / "summary.csv").read_text(encoding="utf-8").count("\n") > len({"latency", "bandwidth"})


def test_runs_of_two_releases_are_compared() -> None:
    status, said = invoke("compare", KEPT / "0.1.0-early", KEPT / "0.2.0")
    assert status == 0, said
    assert "latency" in said.lower()


def test_a_run_of_a_later_format_is_explained_and_hides_no_other(tmp_path: Path) -> None:
    for name, run in (("0.2.0", "old"), ("0.2.0", "new")):
        shutil.copytree(KEPT / name, tmp_path / run)
    info = json.loads((tmp_path / "new" / "run.json").read_text(encoding="utf-8"))
    info["schema_version"] = 2
    info["provenance"] = {"rocelab_version": "9.1.0", "a later form": True}
    (tmp_path / "new" / "run.json").write_text(json.dumps(info), encoding="utf-8")
    explained = (
        f"written by rocelab 9.1.0 in format version 2, and this rocelab ({rocelab.__version__}) reads 1: "
        "use a newer rocelab"
    )
    for name in ("new", "latest"):
        status, said = invoke("compare", name, "old", "--results", tmp_path)
        assert status == 1
        assert explained in said, said
        assert str(Path("new") / "run.json") in said, said
    status, said = invoke("compare", "old", "old", "--results", tmp_path)
    assert status == 0, said
