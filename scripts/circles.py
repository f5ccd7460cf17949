"""Circles of files within the Rust crates: files of which each needs the others, directly or in turn.

A file needs another if it has a path to an item of that, by `crate::`, by `super::` or by the name of a module. `mod`
lines and tests do not count. A path to what `lib.rs` passes on is a path to `lib.rs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

#: A module by the names on the way to it; lib.rs is the empty one.
Module = tuple[str, ...]

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{")
_INSIDE = re.compile(r"\bmod\s+\w+\s*\{")
_USE = re.compile(r"\buse\s+([^;]+);")
_PATH = re.compile(r"\b(?:crate|super|self)\s*(?:::\w+)+")


def needs(files: Mapping[str, str]) -> dict[Module, set[Module]]:
    """Which modules each needs. `files` are the texts of a crate's source, by name below `src`."""
    texts = {_module(PurePosixPath(name)): text for name, text in files.items() if not _is_test(PurePosixPath(name))}
    return {module: set(_targets(module, _code(text), frozenset(texts))) for module, text in texts.items()}


def circles(graph: Mapping[Module, set[Module]]) -> list[list[Module]]:
    """Sets of modules that reach each other, by Tarjan's algorithm."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[Module]] = []

    def visit(module: Module) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in index:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], index[target])
        if low[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(circle) > 1:
                found.append(sorted(circle))

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def name_of(module: Module) -> str:
    """As a person would say it."""
    return "::".join(module) or "lib.rs"


def _module(path: PurePosixPath) -> Module:
    parts = path.with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts


def _is_test(path: PurePosixPath) -> bool:
    return path.name == "tests.rs" or "tests" in path.parts


def _code(text: str) -> str:
    code = re.sub(r"//[^\n]*", "", _STRING.sub('""', text))
    tests = _TESTS.search(code)
    return _with_modules_inside(code[: tests.start()] if tests else code)


def _with_modules_inside(code: str) -> str:
    """The code, where `super` of a module that is written within the file is the file itself."""
    for opening in _INSIDE.finditer(code):
        depth, end = 1, opening.end()
        while depth and end < len(code):
            depth += (code[end] == "{") - (code[end] == "}")
            end += 1
        inside = code[opening.end() : end]
        # As long as before, so that what follows stays where it is.
        code = code[: opening.end()] + re.sub(r"\bsuper\b", "self ", inside) + code[end:]
    return code


def _targets(module: Module, code: str, modules: frozenset[Module]) -> Iterator[Module]:
    paths = [path for used in _USE.findall(code) for path in _expanded(" ".join(used.split()))]
    paths += _PATH.findall(_USE.sub("", code))
    for path in paths:
        place = _place(module, [name.strip() for name in path.split("::")], modules)
        if place is None:
            continue
        target = next(place[:length] for length in range(len(place), -1, -1) if place[:length] in modules)
        if target != module:
            yield target


def _place(module: Module, names: list[str], modules: frozenset[Module]) -> Module | None:
    """Where a path leads from a module; None if it leaves the crate."""
    first = names[0]
    if first == "crate":
        return tuple(names[1:])
    if first == "self":
        return (*module, *names[1:])
    if first == "super":
        base = module
        while names and names[0] == "super":
            base, names = base[:-1], names[1:]
        return (*base, *names)
    return (*module, *names) if (*module, first) in modules else None


def _expanded(tree: str) -> list[str]:
    """``a::{b, c::d}`` as ``a::b`` and ``a::c::d``."""
    head, brace, rest = tree.partition("{")
    if not brace:
        return [tree.split(" as ", maxsplit=1)[0].strip()]
    parts, depth, part = [], 0, ""
    for letter in rest[: rest.rindex("}")]:
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += letter
    return [head.strip() + path for each in (*parts, part) if each.strip() for path in _expanded(each.strip())]
