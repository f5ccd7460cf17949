"""What can be wrong with a study, as people are told."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

#: A key in a study file, from the outside in.
Path_ = tuple[str | int, ...]
#: What is wrong, and the key that it is about.
Wrong = tuple[Path_, str]
#: The type of an error of validation whose words say all: what is wrong within a file that a key
#: names.
WRONG_FILE: Final = "wrong_file"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the line (1-based) it is on; 0 if it is about the file as a whole."""

    line: int
    key: str
    text: str


class StudyError(Exception):
    """A study that cannot be used. Its text has a line for every problem: ``file:line: key: what``."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        super().__init__("\n".join(_line(source, problem) for problem in self.problems))


def _line(source: str, problem: Problem) -> str:
    place = f"{source}:{problem.line}" if problem.line else source
    return ": ".join(part for part in (place, problem.key, problem.text) if part)


def unknown(what: str, name: str, allowed: Iterable[str]) -> str:
    """Says that there is no such thing, what may be meant, and what there is."""
    allowed = sorted(allowed)
    close = difflib.get_close_matches(name, allowed, n=1)
    meant = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown {what} {name!r}{meant} Allowed: {', '.join(allowed) or 'none'}"


def dotted(path: Sequence[str | int]) -> str:
    """``link[1].rate_mbps``, counted from 1 as people count the tables of a file."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")
