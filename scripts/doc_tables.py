"""Makes the tables of the documents again from the runs and the rows in docs/data.

Usage: scripts/doc_tables.py [--check]

A document asks for a table by a comment, and has it between that and the next, ``<!-- end -->``.
``<!-- table bars of bars -->`` is the table `bars` of the run docs/data/bars, and
``<!-- table rows of sharing -->`` the table of the rows in docs/data/sharing.csv.
``<!-- table claims of vienne2012 -->`` is that of the claims of a source, judged on all runs in
docs/data, and ``<!-- table changes of verdicts-before -->`` holds rows against the same. With
--check nothing is written: what differs is named, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

from rocelab.report.claim_tables import CLAIM_TABLES, changes, columns, draws
from rocelab.report.documents import ROW_TABLES, TABLES
from rocelab.report.model import RunModel
from rocelab.results import RunStore

ROOT = Path(__file__).resolve().parent.parent
#: Where rows are kept: those of the documents alone, and those that programs read, too.
ROWS = (ROOT / "docs" / "data", ROOT / "rocelab" / "profiles" / "validation")
#: As wide as other prose (check_tree.py).
COLUMNS = 100
#: The table of verdicts that changed.
CHANGES = "changes"
#: The table of a source with its columns held against the one that calibrates.
COLUMNS_OF_SOURCE = "columns"
#: The table of draws of a simulated run.
DRAWS = "draws"
_PLACE = re.compile(r"<!-- table (?P<table>[a-z-]+) of (?P<run>[a-z0-9-]+) -->\n.*?<!-- end -->", re.DOTALL)


@functools.cache
def _model(run: str) -> RunModel:
    return RunModel.of(RunStore.open(ROOT / "docs" / "data" / run))


@functools.cache
def _kept() -> tuple[RunModel, ...]:
    """All runs that are kept."""
    return tuple(_model(path.parent.name) for path in sorted((ROOT / "docs" / "data").glob("*/run.json")))


def _rows(kept: str) -> str:
    path = next(folder / f"{kept}.csv" for folder in ROWS if (folder / f"{kept}.csv").is_file())
    return path.read_text(encoding="utf-8")


def _made(place: re.Match[str]) -> str:
    name, kept = place["table"], place["run"]
    if name in ROW_TABLES:
        body = ROW_TABLES[name](_rows(kept))
    elif name in CLAIM_TABLES:
        body = CLAIM_TABLES[name](kept, _kept())
    elif name == CHANGES:
        body = changes(_rows(kept), _kept())
    elif name == COLUMNS_OF_SOURCE:
        body = columns(_model(kept))
    elif name == DRAWS:
        body = draws(_model(kept))
    elif name in TABLES:
        body = TABLES[name](_model(kept))
    else:
        known = (*TABLES, *ROW_TABLES, *CLAIM_TABLES, CHANGES, COLUMNS_OF_SOURCE, DRAWS)
        raise SystemExit(f"there is no table {name!r}; there are {', '.join(known)}")
    lines = [
        line
        if line.startswith(("|", "#"))
        else textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False)
        for line in body.split("\n")
    ]
    return "\n".join([f"<!-- table {place['table']} of {place['run']} -->", "", *lines, "", "<!-- end -->"])


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
