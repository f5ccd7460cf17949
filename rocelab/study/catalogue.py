"""Where studies are found: a file that is named, or one of the studies that come with rocelab or lie in ./studies."""

from __future__ import annotations

from pathlib import Path

from rocelab.programs import studies
from rocelab.study.problems import Problem, StudyError


def folders() -> tuple[Path, ...]:
    """Folders with studies, the nearest first: ./studies, then those of the checkout or of the installed package."""
    candidates = (Path("studies"), studies())
    found: list[Path] = []
    for folder in candidates:
        if folder.is_dir() and not any(folder.samefile(other) for other in found):
            found.append(folder)
    return tuple(found)


def files() -> dict[str, Path]:
    """Every study that can be run by its name (the file's name without .toml), in alphabetical order."""
    named: dict[str, Path] = {}
    for folder in folders():
        for path in folder.glob("*.toml"):
            named.setdefault(path.stem, path)
    return dict(sorted(named.items()))


def resolve(name: str) -> Path:
    """The file that a person means by a path or a name. Raises StudyError."""
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return path
    known = files()
    if name in known:
        return known[name]
    text = f"there is no such study; there are: {', '.join(known) or 'none'}. A path to a .toml file works too"
    raise StudyError(name, [Problem(0, "", text)])
