"""Checks what no other linter sees in the tracked files.

Usage: scripts/check_tree.py

No file names a path of one machine, and no lock file depends on a mirror. No source file is longer
than 500 lines (other text: 800), and no function than 70 (of Rust, clippy counts them). Every link
from one document to another, or to a heading of one, leads somewhere.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
#: Of source files, and of other text, whose tables do not count.
LONGEST_LINES = 500
LONGEST_TEXT_LINES = 800
LONGEST_FUNCTION_LINES = 70
#: Of Markdown and of comments; code is as wide as its formatter makes it.
PROSE_COLUMNS = 100
#: Of Markdown, without tables and examples.
SENTENCE_WORDS = 35
CODE_SUFFIXES = frozenset({".c", ".h", ".java", ".py", ".rs"})
SOURCE_SUFFIXES = frozenset({".c", ".css", ".h", ".j2", ".js", ".html", ".md", ".py", ".rs", ".sh", ".toml"})

# Home and workplace folders; /tmp and /usr are on every machine.
_MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:root|work|workspace|home/\w+|Users/\w+|opt/wheels)(?:/|\b)|\.\./shared\b")
_MIRROR = re.compile(r"--(?:extra-)?index-url|--find-links|--trusted-host|^registry-index|^\s*index-url", re.MULTILINE)
_LOCK_NAMES = frozenset({"requirements.lock", "Cargo.lock", "package-lock.json"})
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?[^)]*\)")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
_LINKED_WORDS = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_C_FUNCTION = re.compile(r"^(?P<indent>)[a-z][\w *]*?\b(?P<name>\w+)\([^;{}]*\)\n?\s?\{", re.MULTILINE)
_JAVA_METHOD = re.compile(
    r"^(?P<indent> {4})(?:[\w<>\[\], ?]+ )?(?P<name>\w+)\([^;{}]*\)(?: throws [\w, .]+)? \{", re.MULTILINE
)
#: What a comment begins with, where a line has nothing else.
_COMMENTS = {
    **dict.fromkeys((".rs", ".c", ".h", ".java"), re.compile(r"^ *//[/!]? ?")),
    **dict.fromkeys((".py", ".sh"), re.compile(r"^ *#:? ")),
    ".md": re.compile(r""),
}
_UNBROKEN = re.compile(r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\]\([^)]*\)")
# A semicolon or a colon ends one as well, where a capital letter follows.
_SENTENCE_END = re.compile(r"""(?<=[.?!;:])["')*]*\s+(?=[A-Z"(\[*`])""")
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) ")
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def text_errors(path: PurePosixPath, text: str) -> Iterator[str]:
    """What is wrong with one tracked text file, as `file:line: problem`."""
    for match in _MACHINE_PATH.finditer(text):
        yield f"{path}:{_line(text, match.start())}: {match[0]!r} is a path of one machine: say how to find it"
    if path.name in _LOCK_NAMES:
        for match in _MIRROR.finditer(text):
            yield f"{path}:{_line(text, match.start())}: a lock file must not depend on a mirror ({match[0].strip()})"
    lines = len([line for line in text.splitlines() if path.suffix != ".md" or not line.startswith("|")])
    longest = LONGEST_LINES if path.suffix in CODE_SUFFIXES else LONGEST_TEXT_LINES
    if path.suffix in CODE_SUFFIXES | SOURCE_SUFFIXES and lines > longest:
        yield f"{path}: {lines} lines; the longest allowed are {longest}: split it"
    yield from wide_prose(path, text)
    yield from long_sentences(path, text)
    for name, line, length in functions(path, text):
        if length > LONGEST_FUNCTION_LINES:
            yield f"{path}:{line}: {name} has {length} lines; {LONGEST_FUNCTION_LINES} are allowed: split it"


def wide_prose(path: PurePosixPath, text: str) -> Iterator[str]:
    """Lines of Markdown and of comments that are too wide, though they could be broken: no tables, and no examples."""
    begins, in_example = _COMMENTS.get(path.suffix), False
    for number, line in enumerate(text.splitlines(), start=1):
        begin = begins.match(line) if begins else None
        if begin is None:
            in_example = False
            continue
        words = line[begin.end() :]
        in_example ^= words.lstrip().startswith("```")
        in_block = path.suffix == ".md" and line.startswith("    ") and not line.lstrip().startswith("- ")
        if len(line) <= PROSE_COLUMNS or in_example or in_block or words.lstrip().startswith(("|", "<!--", "#")):
            continue
        unbroken = _UNBROKEN.sub(lambda match: "x" * len(match[0]), words).strip().removeprefix("- ")
        if " " in unbroken:
            yield f"{path}:{number}: {len(line)} columns; {PROSE_COLUMNS} are allowed: break the line"


def long_sentences(path: PurePosixPath, text: str) -> Iterator[str]:
    """Sentences of Markdown that are too long to be read once and understood."""
    if path.suffix != ".md":
        return
    for number, paragraph in _paragraphs(text):
        # What is code, or leads somewhere, is read as one word.
        read = _LINKED_WORDS.sub(r"\1", re.sub(r"`[^`]*`", "`", paragraph))
        for sentence in _SENTENCE_END.split(read):
            if (words := len(sentence.split())) > SENTENCE_WORDS:
                begin = " ".join(sentence.split()[:6])
                yield (
                    f"{path}:{number}: {words} words in a sentence ({begin} ...);"
                    f" {SENTENCE_WORDS} are allowed: split it"
                )


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each paragraph and item of a list, with its first line's number; no headings, tables, and examples."""
    in_example, begin = False, 0
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        in_example ^= line.lstrip().startswith("```")
        in_block = not lines and line.startswith("    ") and not _ITEM.match(line)
        is_prose = bool(line.strip()) and not line.lstrip().startswith(("|", "#", "<", "```"))
        is_prose = is_prose and not in_example and not in_block
        if lines and (not is_prose or _ITEM.match(line)):
            yield begin, " ".join(lines)
            lines = []
        if is_prose:
            begin = begin if lines else number
            lines.append(_ITEM.sub("", line).strip())


def functions(path: PurePosixPath, text: str) -> Iterator[tuple[str, int, int]]:
    """Functions of Python, C and Java: the name, the first line, and how many lines there are."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                yield node.name, node.lineno, node.end_lineno - node.lineno + 1
    elif path.suffix in (".c", ".h", ".java"):
        # As the formatters lay them out: a function ends with a brace as far left as its first line
        # begins.
        pattern = _JAVA_METHOD if path.suffix == ".java" else _C_FUNCTION
        for match in pattern.finditer(text):
            end = text.find(f"\n{match['indent']}}}\n", match.end())
            if end >= 0:
                yield match["name"], _line(text, match.start()), text.count("\n", match.start(), end) + 2


def link_errors(
    path: PurePosixPath, text: str, tracked: frozenset[PurePosixPath], documents: Mapping[PurePosixPath, str]
) -> Iterator[str]:
    """Links of a Markdown file to files, or to headings of `documents`, that are not there."""
    folders = {folder for file in tracked for folder in file.parents}
    prose = _CODE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in _LINK.finditer(prose):
        target = _normal(path.parent / match[1]) if match[1] else path
        where = f"{path}:{_line(prose, match.start())}"
        if target not in tracked and target not in folders:
            yield f"{where}: the link leads nowhere: {match[1]}"
        elif match[2] and target in documents and match[2] not in anchors(documents[target]):
            yield f"{where}: {target} has no heading for the link {match[1]}#{match[2]}"


def anchors(text: str) -> frozenset[str]:
    """What a web page of a Markdown file calls its headings: as GitHub does it, and most others."""
    found: Counter[str] = Counter()
    names = []
    fenced = re.compile(r"```.*?```", re.DOTALL)
    for match in _HEADING.finditer(fenced.sub("", text)):
        words = _LINKED_WORDS.sub(r"\1", match[1]).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.append(name if not found[name] else f"{name}-{found[name]}")
        found[name] += 1
    return frozenset(names)


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _tracked() -> frozenset[PurePosixPath]:
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return frozenset(PurePosixPath(name) for name in out.split("\0") if name)


def main() -> int:
    """Check every tracked file that is there and is text."""
    tracked = _tracked()
    errors: list[str] = []
    contents = {path: (ROOT / path).read_bytes() for path in sorted(tracked) if (ROOT / path).is_file()}
    texts = {path: data.decode("utf-8", errors="replace") for path, data in contents.items() if b"\0" not in data}
    documents = {path: text for path, text in texts.items() if path.suffix == ".md"}
    for path, text in texts.items():
        errors += text_errors(path, text)
        if path in documents:
            errors += link_errors(path, text, tracked, documents)
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
