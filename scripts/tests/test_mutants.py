"""The list of mutants is true."""

from __future__ import annotations

import pytest

from mutants import MUTANTS, NIC, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_is_an_edit_of_the_source_as_it_is(mutant: Mutant) -> None:
    assert (NIC / mutant.path).read_text(encoding="utf-8").count(mutant.old) == 1
