"""One made-up run and its report, shared by the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.report.model import RunModel
from rocelab.report.tests.synthetic import make_run
from rocelab.report.write import ReportFiles, write_report
from rocelab.results import RunStore


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """A made-up run with three repetitions and two failures."""
    return make_run(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="session")
def model(store: RunStore) -> RunModel:
    return RunModel.of(store)


@pytest.fixture(scope="session")
def files(store: RunStore) -> ReportFiles:
    return write_report(store)


@pytest.fixture(scope="session")
def html(files: ReportFiles) -> str:
    return Path(files.page).read_text(encoding="utf-8")
