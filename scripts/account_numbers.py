"""Accounts for the numbers of the documents that docs/data/experiments.csv took the place of.

Usage: scripts/account_numbers.py

Each number of the old documents (:data:`DOCUMENTS`, at :data:`COMMIT`, generated tables apart) stands in a row of
docs/data/experiments.csv, or docs/data/experiments-dropped.csv says where it stood and why it was left out. Numbers of
which neither is true are named, and the exit status is 1.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMIT = "dc8049d"
DOCUMENTS = ("docs/performance.md", "docs/dev/limits.md", "docs/dev/hot-path.md", "nic/udp/README.md")
DATA = ROOT / "docs" / "data"
_NUMBER = re.compile(r"[0-9][0-9,.]*")
_GENERATED = re.compile(r"<!-- table .*?<!-- end -->", re.DOTALL)


def numbers(text: str) -> Iterator[tuple[int, str]]:
    """Each number of a text, with its line; those of generated tables are not among them."""
    blank = _GENERATED.sub(lambda match: "\n" * match.group().count("\n"), text)
    for line, words in enumerate(blank.splitlines(), start=1):
        for match in _NUMBER.finditer(words):
            yield line, match.group().rstrip(".,")


def plain(number: str) -> str:
    """1,490 and 1490 are one number."""
    return number.replace(",", "")


def kept() -> frozenset[str]:
    """Every number of the experiments' rows."""
    with (DATA / "experiments.csv").open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    return frozenset(plain(number) for cell in cells for _, number in numbers(cell))


def left_out() -> Counter[tuple[str, int, str]]:
    """Where a number was left out on purpose, and how often."""
    with (DATA / "experiments-dropped.csv").open(encoding="utf-8", newline="") as file:
        return Counter((row["document"], int(row["line"]), row["number"]) for row in csv.DictReader(file))


def old(document: str) -> str:
    """A document as it was; an error where the history is not there."""
    shown = ["git", "-C", str(ROOT), "show", f"{COMMIT}:{document}"]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout


def unaccounted() -> list[str]:
    """Where numbers stood of which nothing is known."""
    rows, dropped = kept(), left_out()
    return [
        f"{document}:{line}: {number} is in no row, and was not left out on purpose"
        for document in DOCUMENTS
        for line, number in numbers(old(document))
        if plain(number) not in rows and dropped[document, line, number] == 0
    ]


def main() -> int:
    """Returns the exit status."""
    missing = unaccounted()
    total = sum(len(list(numbers(old(document)))) for document in DOCUMENTS)
    print("\n".join([*missing, f"{total} numbers, {len(missing)} not accounted for"]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
