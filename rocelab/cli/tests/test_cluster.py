"""``rocelab run --cluster`` as a person calls it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rocelab.cli.app import app
from rocelab.results import list_runs
from rocelab.virtual.simulator import simulator
from rocelab.virtual.tests.test_studies import SMALL


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL[: SMALL.rindex("[[test]]")].replace("roce-25g = ", "roce-10g = "), encoding="utf-8")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments), "--no-report"], env={"COLUMNS": "300"})


def test_without_dask_the_error_says_how_to_install_it(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rocelab.cli.cluster_ground", "rocelab.virtual.cluster.crew"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    made = run(study, "--cluster", "tcp://127.0.0.1:9")
    assert made.exit_code == 1
    assert "pip install 'rocelab[cluster]'" in made.output


@pytest.mark.filterwarnings("default")
def test_a_study_runs_on_a_cluster_and_one_that_is_measured_does_not(study: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: make setup")
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as workers:
        place = ("--cluster", workers.scheduler_address, "--results", tmp_path)
        made = run(study, *place)
        assert made.exit_code == 0, made.output
        wrong = run("quick", *place)
    (store,) = list_runs(tmp_path)
    assert store.info.status == "complete"
    assert len(store.done_keys()) == store.info.planned_steps
    assert "simulated by 1 worker of a Dask cluster, at its start" in store.info.provenance.notes
    assert {sample.tool_version for sample in store.samples()} == set(store.info.provenance.tools.values())
    assert wrong.exit_code == 1
    assert "quick is measured on the fabric 'emulated'. --cluster is for studies that are simulated" in wrong.output
