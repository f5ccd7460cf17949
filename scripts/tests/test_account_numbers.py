"""Every number of the documents that became data is in the data, or was left out on purpose."""

from __future__ import annotations

import subprocess

import pytest

import account_numbers


def test_numbers_of_tables_that_are_made_are_not_counted() -> None:
    text = "1,490 us.\n<!-- table bars of bars -->\n| 7 |\n<!-- end -->\nand 0.9\n"
    assert list(account_numbers.numbers(text)) == [(1, "1,490"), (5, "0.9")]
    assert account_numbers.plain("1,490") == "1490"


def test_every_old_number_is_accounted_for() -> None:
    try:
        account_numbers.old(account_numbers.DOCUMENTS[0])
    except subprocess.CalledProcessError:
        pytest.skip(f"the history of this clone does not reach to {account_numbers.COMMIT}")
    assert account_numbers.unaccounted() == []


def test_a_number_that_is_in_no_row_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_numbers, "old", lambda document: "It took 123.456 us.\n")
    named = account_numbers.unaccounted()
    assert named[0] == f"{account_numbers.DOCUMENTS[0]}:1: 123.456 is in no row, and was not left out on purpose"
    assert len(named) == len(account_numbers.DOCUMENTS)
