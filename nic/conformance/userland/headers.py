"""Reads the C headers of rdma-core: the functions that they declare, and what their structures begin with.

It understands the headers of rdma-core, of all its releases, not C: functions are told by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The headers whose functions a program may call.
HEADERS: Final = ("infiniband/verbs.h", "rdma/rdma_cma.h", "rdma/rdma_verbs.h")
#: What all names of functions begin with.
_PREFIXES: Final = "_?ibv|rdma|mbps|mult"
_DECORATION: Final = r"(?:(?:extern|static|inline|__attribute_const) )*"
_PROTOTYPE: Final = re.compile(rf"^(.*?[ *])((?:{_PREFIXES})_\w+) ?\((.*)\)$")
_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", re.MULTILINE)
_STRUCTURE: Final = re.compile(r"\bstruct (\w+) \{ ?([^;{]*);")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function. An array is what C makes of it, a pointer."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is declared, or defined inline."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    #: Whether a macro of that name stands before the function.
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Header:
    """What is in some headers."""

    functions: tuple[Function, ...]
    #: The first member of each structure that is defined.
    structures: dict[str, str]


def read(folder: Path) -> Header:
    """Read the headers of rdma-core in a folder for included files."""
    texts = [(folder / name).read_text(encoding="utf-8") for name in HEADERS]
    functions: dict[str, Function] = {}
    structures: dict[str, str] = {}
    for text in texts:
        clean = _without_comments(text)
        macros = set(_MACRO.findall(clean))
        functions.update({each.name: each for each in _functions(clean, macros)})
    for path in sorted((folder / "infiniband").glob("*.h")) + sorted((folder / "rdma").glob("*.h")):
        clean = " ".join(_without_comments(path.read_text(encoding="utf-8")).split())
        structures.update({name: first.strip() for name, first in _STRUCTURE.findall(clean)})
    return Header(tuple(functions.values()), structures)


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")


def _functions(text: str, macros: set[str]) -> Iterator[Function]:
    text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
    text = text.replace('extern "C" {', "").replace("BEGIN_C_DECLS", "").replace("END_C_DECLS", "")
    for statement in " ".join(_outside_of_braces(text).split()).split(";"):
        match = _PROTOTYPE.match(re.sub(f"^{_DECORATION}", "", statement.strip()))
        if match is not None:
            returns = match[1].replace("__attribute_const", "").strip()
            yield Function(match[2], returns, tuple(_parameters(match[3])), match[2] in macros)


def _outside_of_braces(text: str) -> str:
    """The text with a semicolon in place of each body of a function or structure."""
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "{":
            depth += 1
            if depth == 1:
                kept.append(";")
        elif character == "}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(character)
    return "".join(kept)


def _parameters(text: str) -> Iterator[Parameter]:
    for part in text.split(","):
        words = " ".join(part.split())
        if words in ("void", "..."):
            continue
        match = re.fullmatch(r"(.*[ *])(\w+)(\[\w*\])?", words)
        if match is None:
            raise ValueError(f"cannot read the parameter {words!r}")
        yield Parameter(match[1].strip() + (" *" if match[3] else ""), match[2])
