"""Makes docs/promises.md and docs/promises: what the manual pages promise of verbs, where it is tested, what differs.

Usage: scripts/promises.py [--check]

The data is in nic/conformance/promises, a file for each group of verbs, and each has a page. A promise names its tests
as `PLACE/FILE:TEST`, where PLACE is one of those in `PLACES`. A test that does not exist, or a C program that no test
runs, is an error. With --check nothing is written; the exit status is 1 if a page is not what the data gives.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "nic" / "conformance" / "promises"
PAGE = ROOT / "docs" / "promises.md"
#: The pages of the groups.
FOLDER = ROOT / "docs" / "promises"

# Where the files of tests are, by how the data names them.
PLACES = {
    "c": "nic/preload/tests/c/{}.c",
    "preload": "nic/preload/tests/{}.rs",
    "preload-src": "nic/preload/src/{}.rs",
    "device": "nic/device/tests/{}.rs",
    "device-src": "nic/device/src/{}.rs",
    "proto": "nic/proto/src/{}.rs",
    "sim": "nic/sim/tests/{}.rs",
    "cm": "nic/cm/tests/{}.rs",
}

_INTRODUCTION = """\
# What is promised, and where it is tested

Each row of these pages is a statement that a program may rely on. It comes from the manual pages of
libibverbs and librdmacm, from the InfiniBand specification (IBTA volume 1, chapters 9 to 11), or
from what Linux and its drivers do. The last column says what urxe does instead where it differs on
purpose, and **not kept** where it should do otherwise. `make tables` makes the pages from
`nic/conformance/promises`, and a test sees to it that every test named there exists.

What each verb does is in [verbs.md](verbs.md), and what RDMA-CM does in [rdmacm.md](rdmacm.md).
"""


class MistakeError(Exception):
    """The data says what is not so."""


@dataclass(frozen=True)
class Promise:
    """One statement that a program may rely on."""

    says: str
    tests: tuple[str, ...]
    differs: str
    broken: str


@dataclass(frozen=True)
class Verb:
    """Verbs that belong together, and what is promised of them."""

    name: str
    promises: tuple[Promise, ...]


@dataclass(frozen=True)
class Group:
    """A file of the data."""

    title: str
    #: The page's name in the folder of pages, without its suffix.
    name: str
    verbs: tuple[Verb, ...]

    @property
    def promises(self) -> list[Promise]:
        """All of its verbs."""
        return [promise for verb in self.verbs for promise in verb.promises]


def _promise(row: dict[str, object], where: str) -> Promise:
    unknown = row.keys() - {"says", "tests", "differs", "broken"}
    if unknown:
        raise MistakeError(f"{where}: a promise has no {', '.join(sorted(unknown))}")
    tests = row.get("tests", [])
    if not isinstance(tests, list):
        raise MistakeError(f"{where}: the tests are a list")
    promise = Promise(
        says=str(row["says"]),
        tests=tuple(str(each) for each in tests),
        differs=str(row.get("differs", "")),
        broken=str(row.get("broken", "")),
    )
    for text in (promise.says, promise.differs, promise.broken):
        if "|" in text or "\n" in text:
            raise MistakeError(f"{where}: {text!r} does not fit into a table")
    return promise


def group(path: Path) -> Group:
    """The promises of one file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    verbs = []
    for verb in data["verbs"]:
        where = f"{path.name}, {verb['name']}"
        verbs.append(Verb(verb["name"], tuple(_promise(row, where) for row in verb["promises"])))
    # Files are numbered in the order of the pages.
    name = path.stem.partition("_")[2].replace("_", "-")
    return Group(title=data["title"], name=name, verbs=tuple(verbs))


def groups() -> list[Group]:
    """All promises, in the order of the page."""
    return [group(path) for path in sorted(DATA.glob("*.toml"))]


def _file(test: str) -> tuple[Path, str, str]:
    match = re.fullmatch(r"(?P<place>[a-z-]+)/(?P<file>[a-z_/0-9]+):(?P<name>[a-z_0-9]+)", test)
    if match is None or match["place"] not in PLACES:
        raise MistakeError(f"{test}: a test is PLACE/FILE:TEST, with one of the places {', '.join(PLACES)}")
    return ROOT / PLACES[match["place"]].format(match["file"]), match["place"], match["name"]


def check_test(test: str) -> None:
    """Raise unless the test exists, and is run."""
    path, place, name = _file(test)
    if not path.is_file():
        raise MistakeError(f"{test}: there is no {path.relative_to(ROOT)}")
    text = path.read_text(encoding="utf-8")
    if place == "c":
        found = re.search(rf"^[a-z].*\b{name}\(", text, re.MULTILINE)
        runs = "".join(each.read_text(encoding="utf-8") for each in (ROOT / "nic/preload/tests").glob("*.rs"))
        if f'"{path.stem}"' not in runs:
            raise MistakeError(f"{test}: no test in nic/preload/tests runs {path.name}")
    else:
        found = re.search(rf"#\[test\](?:\s*#\[[^\]]*\]|\s*//[^\n]*)*\s*(?:pub )?fn {name}\(", text)
    if found is None:
        raise MistakeError(f"{test}: {path.relative_to(ROOT)} has no such test")


def _names(tests: Iterable[str]) -> str:
    links = []
    for test in tests:
        path, _, name = _file(test)
        links.append(f"[{name}](../../{path.relative_to(ROOT)})")
    return ", ".join(links)


def _rows(promises: Iterable[Promise]) -> Iterator[str]:
    yield "| promised | tested by | differs |"
    yield "|---|---|---|"
    for promise in promises:
        differs = f"**not kept:** {promise.broken}" if promise.broken else promise.differs
        yield f"| {promise.says} | {_names(promise.tests) or 'no test'} | {differs} |"


def _count(everything: list[Promise]) -> str:
    tested = sum(bool(each.tests) for each in everything)
    differs = sum(bool(each.differs) for each in everything)
    broken = sum(bool(each.broken) for each in everything)
    return (
        f"{len(everything)} promises: {tested} have a test, {differs} are different on purpose, and {broken} "
        f"{'is' if broken == 1 else 'are'} not kept.\n"
    )


def index(everything: list[Group]) -> str:
    """The page about all groups."""
    rows = ["| | promises | tested | different on purpose | not kept |", "|---|---|---|---|---|"]
    for part in everything:
        tested, differs, broken = (
            sum(bool(getattr(each, what)) for each in part.promises) for what in ("tests", "differs", "broken")
        )
        link = f"[{part.title}]({FOLDER.name}/{part.name}.md)"
        rows.append(f"| {link} | {len(part.promises)} | {tested} | {differs} | {broken} |")
    counted = _count([each for part in everything for each in part.promises])
    return "\n".join([_INTRODUCTION, counted, *rows]) + "\n"


def page(part: Group) -> str:
    """The page of one group."""
    parts = [f"# {part.title}\n", f"[What the columns mean](../{PAGE.name}).\n"]
    for verb in part.verbs:
        names = verb.name if " " in verb.name.replace(", ", "") else f"`{verb.name.replace(', ', '`, `')}`"
        parts.append(f"## {names}\n")
        parts.append("\n".join(_rows(verb.promises)) + "\n")
    return "\n".join(parts)


def pages(everything: list[Group]) -> dict[Path, str]:
    """All pages that the data gives."""
    return {PAGE: index(everything), **{FOLDER / f"{part.name}.md": page(part) for part in everything}}


def stale(everything: list[Group]) -> list[Path]:
    """The pages that are not what the data gives, and those that it does not give at all."""
    given = pages(everything)
    there = {path: path.read_text(encoding="utf-8") for path in (PAGE, *FOLDER.glob("*.md")) if path.is_file()}
    return sorted(path for path in given.keys() | there.keys() if given.get(path) != there.get(path))


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the pages of promises from nic/conformance/promises.")
    parser.add_argument("--check", action="store_true", help="write nothing, only say which pages differ")
    check = parser.parse_args().check
    everything = groups()
    for part in everything:
        for promise in part.promises:
            for test in promise.tests:
                check_test(test)
    given = pages(everything)
    FOLDER.mkdir(exist_ok=True)
    for path in stale(everything):
        if check:
            print(f"{path.relative_to(ROOT)} is not what nic/conformance/promises gives; run `make tables`")
        elif path in given:
            path.write_text(given[path], encoding="utf-8")
        else:
            path.unlink()
    return 1 if check and stale(everything) else 0


if __name__ == "__main__":
    sys.exit(main())
