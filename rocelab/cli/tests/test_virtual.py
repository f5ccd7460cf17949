"""Studies of the virtual fabric on the command line: which file is taken, and what is listed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.cli.grounds import check_memory
from rocelab.cli.run import half_for
from rocelab.virtual.loading import parse
from rocelab.virtual.steps import plan

STUDIES = Path(__file__).resolve().parents[3] / "studies"


@pytest.mark.parametrize(
    ("fabric", "name", "taken"),
    [
        (None, "li2019", "li2019"),
        ("virtual", "li2019", "li2019-virtual"),
        ("virtual", "li2019-virtual", "li2019-virtual"),
        ("virtual", "vienne2012", "vienne2012"),
        ("emulated", "lanl2010-virtual", "lanl2010"),
    ],
)
def test_each_fabric_has_its_half_of_a_study(fabric: str | None, name: str, taken: str) -> None:
    assert Path(half_for(fabric, str(STUDIES / f"{name}.toml"))) == STUDIES / f"{taken}.toml"


def test_a_half_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        half_for("virtual", str(STUDIES / "quick.toml"))
    assert "quick-virtual.toml" in "".join(capsys.readouterr().err.split())
    with pytest.raises(typer.Exit):
        half_for("moon", str(STUDIES / "quick.toml"))
    assert "emulated, virtual" in capsys.readouterr().err


def test_a_class_that_does_not_fit_is_said_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = parse((STUDIES / "vienne2012.toml").read_text(encoding="utf-8"), "study.toml")
    steps = plan(study)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 30))
    with pytest.raises(typer.Exit):
        check_memory(steps)
    said = " ".join(capsys.readouterr().err.split())
    assert "more memory than the 1.0 GiB that are available: is.C: 3.5 GiB" in said
    assert "ft.C" not in said, "its work is only simulated"
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1 << 34))
    check_memory(steps)


def test_a_simulated_study_is_shown_as_any_other() -> None:
    shown = CliRunner().invoke(app, ["studies", "show", str(STUDIES / "li2019-virtual.toml")], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "mesh, 16 nodes" in shown.output
    assert "rocelab-virtual" in shown.output
