"""The tables of the documents are those of the samples that are kept with them."""

from __future__ import annotations

from pathlib import Path

import pytest

import doc_tables


@pytest.mark.parametrize("path", doc_tables.documents(), ids=lambda path: path.name)
def test_the_tables_of_a_document_are_those_of_its_samples(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert doc_tables.renewed(text) == text, "run `make tables`"


def test_a_table_that_was_changed_by_hand_is_put_right() -> None:
    path = next(each for each in doc_tables.documents() if "<!-- table " in each.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    at = text.index("|", text.index("<!-- table "))
    assert doc_tables.renewed(text[:at] + "9.99 " + text[at:]) == text


def test_a_table_that_is_not_known_is_named() -> None:
    with pytest.raises(SystemExit, match=r"there is no table 'nosuch'; there are conditions, bars.*, rows"):
        doc_tables.renewed("<!-- table nosuch of bars -->\n<!-- end -->")
