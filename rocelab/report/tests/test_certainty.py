"""How certain verdicts on simulated runs are, as the page and the terminal say it."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from rocelab.claims.tests.simulated import VIRTUAL
from rocelab.claims.tests.test_simulated_claims import lanl, two_nodes
from rocelab.drawn import DrawStore
from rocelab.report.model import RunModel
from rocelab.report.page import make_page
from rocelab.report.terminal import print_summary
from rocelab.results import RunStore

# L4 says that two networks are comparable, so that networks that are alike bear it out.
HOLDS = [*two_nodes("network", {}), *lanl({})]
DOES_NOT = [*two_nodes("network", {"r40_mbps": 40_000.0}), *lanl({})]


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore.create(tmp_path, dataclasses.replace(VIRTUAL, claims=("V2", "L4")), "a study")
    store.append(*HOLDS)
    return store


def drawn(store: RunStore, held: int) -> None:
    draws = DrawStore(store.path)
    draws.begin([{"hosts/sandy-bridge-ep.posted_ns": 100.0 + draw} for draw in range(10)])
    for draw in range(10):
        draws.append(draw, HOLDS if draw < held else DOES_NOT)


def said(store: RunStore) -> tuple[str, str]:
    """By the page, and in the terminal."""
    model, written = RunModel.of(store), io.StringIO()
    print_summary(Console(file=written, width=200), model, None)
    page = make_page(model, "a study", [], [], {}, pairs=[])
    return " ".join(page.split()), " ".join(written.getvalue().split())


def test_draws_in_which_a_claim_held_stand_beside_its_verdict(store: RunStore) -> None:
    drawn(store, held=9)
    for words in said(store):
        assert "The rule holds in 9 of 10 draws of what the profiles assume." in words
        assert "no draws" not in words.lower()
    assert "</span> Reproduced</span></p>" in said(store)[0]


def test_a_claim_that_holds_in_too_few_draws_is_not_called_reproduced(store: RunStore) -> None:
    drawn(store, held=8)
    for words in said(store):
        assert "holds in 8 of 10 draws of what the profiles assume. With the profiles as they are it holds" in words
    assert "V2 not checkable here:" in said(store)[1]


def test_a_run_without_draws_says_so_and_what_a_null_model_passes(store: RunStore) -> None:
    for words in said(store):
        assert words.count("No draws of what the profiles assume.") == 2
        assert "A null model, all networks alike, passes 1 of 2 claims." in words
        assert words.count("It also holds where all networks are alike") == 1
