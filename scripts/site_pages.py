"""Builds the documents as a site, and refuses broken links, broken anchors and pages that no list names.

Usage: scripts/site_pages.py [--to FOLDER]

The pages of docs/ are the site's pages. What they link to outside docs/ is put under project/: Markdown as a page,
any other file as text, and a folder as the list of its files, so that each link works without the repository. The
order of the pages is in mkdocs.yml.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = ROOT / "mkdocs.yml"
SOURCE = ROOT / ".build" / "site-source"
SITE = ROOT / ".build" / "site"
DOCS = PurePosixPath("docs")
#: Where on the site that is which lies outside docs/.
PROJECT = PurePosixPath("project")
#: The pages outside docs/ that need no link to them.
ROOTS = tuple(PurePosixPath(name) for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))
#: What a page may show, or have beside it.
COPIED = frozenset({".css", ".csv", ".js", ".md", ".png", ".svg"})

_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)(?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=[^)]*\))")


def _with_plain_pipes(row: re.Match[str]) -> str:
    # In code of a table, GitHub wants pipes escaped, and Python-Markdown shows what stands there.
    return re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0])


@dataclass
class Tree:
    """The tracked files, and what of them the site has."""

    files: frozenset[PurePosixPath]
    texts: Mapping[PurePosixPath, str]
    #: The site's files: where each is, and its content.
    made: dict[PurePosixPath, str | Path] = field(default_factory=dict)

    def add(self, path: PurePosixPath) -> PurePosixPath:
        """Put a file or folder of the tree on the site, with all it links to, and return where it is there."""
        if path not in self.files:
            return self._add_folder(path)
        place = site_path(path)
        if place in self.made:
            return place
        if path.suffix != ".md":
            self.made[place] = ROOT / path
            return place
        self.made[place] = ""
        parts = _CODE.split(_ROW.sub(_with_plain_pipes, self.texts[path]))
        self.made[place] = "".join(
            part if index % 2 else _LINK.sub(lambda link: self._rewritten(path, place, link), part)
            for index, part in enumerate(parts)
        )
        return place

    def _add_folder(self, path: PurePosixPath) -> PurePosixPath:
        if path / "README.md" in self.files:
            return self.add(path / "README.md")
        place = PROJECT / path / "files.txt"
        names = sorted(str(each.relative_to(path)) for each in self.files if path in each.parents)
        self.made[place] = f"The files of {path}:\n\n" + "".join(f"{name}\n" for name in names)
        return place

    def _rewritten(self, page: PurePosixPath, place: PurePosixPath, link: re.Match[str]) -> str:
        target = _normal(page.parent / link["target"])
        if target not in self.files and not any(target in each.parents for each in self.files):
            return link[0]  # which is broken, as the builder will say
        to = os.path.relpath(self.add(target), place.parent)
        return f"{to}{link['anchor'] or ''}"


def site_path(path: PurePosixPath) -> PurePosixPath:
    """Where a tracked file is on the site."""
    if DOCS in path.parents:
        return path.relative_to(DOCS)
    # Browsers show text, and ask what to do with most other files.
    return PROJECT / (path if path.suffix in COPIED else path.with_name(f"{path.name}.txt"))


def gathered(files: frozenset[PurePosixPath], texts: Mapping[PurePosixPath, str]) -> dict[PurePosixPath, str | Path]:
    """The files of the site before it is built: where each is, and its text or where to copy it from."""
    tree = Tree(files, texts)
    kept = (path for path in files if DOCS in path.parents and path.suffix in COPIED)
    for path in [*sorted(kept), *(path for path in ROOTS if path in files)]:
        tree.add(path)
    return tree.made


def write(made: Mapping[PurePosixPath, str | Path], folder: Path) -> None:
    """Make `folder` hold these files, and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    for place, content in made.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, path)
        else:
            path.write_text(content, encoding="utf-8")


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the files in `source`. Its output says what is wrong, by the pages' names on the site."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "-"]
    # Without this the theme prints a notice about MkDocs 2, which concerns the choice of versions.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*command, "--site-dir", str(site)],
        cwd=ROOT,
        env=environment,
        input=CONFIGURATION.read_text(encoding="utf-8").replace(".build/site-source", str(source)),
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _normal(path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(os.path.normpath(path))


def tracked() -> tuple[frozenset[PurePosixPath], dict[PurePosixPath, str]]:
    """The tracked files that are there, and the text of the Markdown among them."""
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    paths = [PurePosixPath(name) for name in out.split("\0") if name and (ROOT / name).is_file()]
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths if path.suffix == ".md"}
    return frozenset(paths), texts


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Build the documents as a site.")
    parser.add_argument("--to", type=Path, default=SITE, help="the folder to write it to (.build/site)")
    site = parser.parse_args().to.resolve()
    write(gathered(*tracked()), SOURCE)
    built = build(SOURCE, site)
    if built.returncode:
        print(built.stdout, file=sys.stderr)
        print("The site was not built. Pages outside docs/ stand under project/ above.", file=sys.stderr)
        return 1
    print(f"Open {site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
