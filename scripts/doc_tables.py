"""Makes the tables of the documents again from the runs in docs/data.

Usage: scripts/doc_tables.py [--check]

A document asks for a table by a comment, and has it between that and the next: ``<!-- table bars of bars -->`` is the
table `bars` of the run docs/data/bars, up to ``<!-- end -->``, and a table of rows is of the file docs/data/NAME.csv,
whose lines that begin with # are about it. With --check nothing is written: what differs is named,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import csv
import functools
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from rocelab.report.documents import CSV_TABLES, TABLES
from rocelab.report.model import RunModel
from rocelab.results import RunStore

ROOT = Path(__file__).resolve().parent.parent
_PLACE = re.compile(r"<!-- table (?P<table>[a-z-]+) of (?P<run>[a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)


@functools.cache
def _model(run: str) -> RunModel:
    return RunModel.of(RunStore.open(ROOT / "docs" / "data" / run))


def _rows(name: str) -> list[dict[str, str]]:
    lines = (ROOT / "docs" / "data" / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _made(place: re.Match[str]) -> str:
    name = place["table"]
    if name in CSV_TABLES:
        body = CSV_TABLES[name](_rows(place["run"]))
    elif name in TABLES:
        body = TABLES[name](_model(place["run"]))
    else:
        raise SystemExit(f"there is no table {name!r}; there are {', '.join([*TABLES, *CSV_TABLES])}")
    return f"<!-- table {name} of {place['run']} -->\n\n{body}\n\n<!-- end -->"


def renewed(text: str) -> str:
    """A document with its tables made anew."""
    return _PLACE.sub(_made, text)


def documents() -> Iterable[Path]:
    """Every document that may have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the tables of the documents from the runs in docs/data.")
    parser.add_argument("--check", action="store_true", help="write nothing, only say which documents differ")
    check = parser.parse_args().check
    stale = [path for path in documents() if renewed(text := path.read_text(encoding="utf-8")) != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)}: a table is not that of its samples; run `make tables`")
        else:
            path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
