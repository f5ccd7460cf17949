"""The checks of tracked files."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from check_tree import LONGEST_FUNCTION_LINES, LONGEST_LINES, SENTENCE_WORDS, link_errors, text_errors

# Put together here, because this file is checked too.
HOME = "/" + "home/ann"
ROOTS = "/" + "root"


def errors(name: str, text: str) -> list[str]:
    return list(text_errors(PurePosixPath(name), text))


@pytest.mark.parametrize("path", [f"{HOME}/src/x.py", f"{ROOTS}/.cargo/bin", "../" + "shared/CLAIMS.md"])
def test_a_path_of_one_machine_is_found(path: str) -> None:
    [error] = errors("docs/a.md", f"fine\nsee {path}\n")
    assert error.startswith("docs/a.md:2: ")


@pytest.mark.parametrize(
    "path", ["/tmp/x", "/usr/share/doc", "$HOME/work/x", "nic/root/x", "https://example.org/work/x"]
)
def test_other_paths_pass(path: str) -> None:
    assert errors("docs/a.md", f"see {path}\n") == []


def test_a_lock_file_must_not_name_a_mirror() -> None:
    assert errors("requirements.lock", "a==1 \\\n    --hash=sha256:00\n") == []
    assert len(errors("requirements.lock", "--find-links wheels\n")) == 1
    assert errors("docs/pip.md", "use --find-links wheels\n") == []


def test_a_long_source_file_is_found_but_not_long_data() -> None:
    long = "x\n" * (LONGEST_LINES + 1)
    assert errors("a.rs", long) == [
        f"a.rs: {LONGEST_LINES + 1} lines; the longest allowed are {LONGEST_LINES}: split it"
    ]
    assert errors("a.csv", long) == []
    assert errors("a.rs", "x\n" * LONGEST_LINES) == []


@pytest.mark.parametrize(
    ("name", "begin", "line", "end"),
    [
        ("a.py", "def spin():\n", "    x()\n", ""),
        ("a.c", "static struct x *spin(int a,\n                      int b)\n{\n", "    x();\n", "}\n"),
        (
            "A.java",
            "class A {\n    private List<String> spin(int a) throws IOException {\n",
            "        x();\n",
            "    }\n}\n",
        ),
    ],
)
def test_a_long_function_is_found(name: str, begin: str, line: str, end: str) -> None:
    fitting = LONGEST_FUNCTION_LINES - begin.count("\n") - (1 if end else 0) + begin.startswith("class")
    assert errors(name, begin + line * fitting + end) == []
    [error] = errors(name, begin + line * (fitting + 1) + end)
    assert "spin has 71 lines" in error


def test_a_sentence_that_is_too_long_is_found() -> None:
    def found(name: str, text: str) -> list[str]:
        return [error for error in errors(name, text) if "words in a sentence" in error]

    long, short = " ".join(["Word"] * SENTENCE_WORDS), "Short. "
    assert found("docs/a.md", f"# {long} and more\n\n{short}{long}.\nAnd `words of code that are one`.\n") == []
    text = f"{short}\n\n- {short}\n- {short}{long} [and](x.md).\n\n    {long} and more\n\n| {long} and more |\n"
    [error] = found("docs/a.md", text)
    assert error.startswith(f"docs/a.md:4: {SENTENCE_WORDS + 1} words in a sentence (Word Word")
    assert found("a.txt", text) == []


def test_links_between_documents_must_lead_somewhere() -> None:
    tracked = frozenset({PurePosixPath("README.md"), PurePosixPath("docs/guide.md")})
    good = "[guide](docs/guide.md) [docs](docs) [web](https://example.org) `[x](y)`"
    text = f"{good}\n\n[gone](docs/gone.md)\n"
    assert list(link_errors(PurePosixPath("README.md"), text, tracked, {})) == [
        "README.md:3: the link leads nowhere: docs/gone.md"
    ]
    assert list(link_errors(PurePosixPath("docs/guide.md"), "[up](../README.md)", tracked, {})) == []


def test_links_to_headings_must_find_one() -> None:
    here, guide = PurePosixPath("README.md"), PurePosixPath("docs/guide.md")
    good = "[a](docs/guide.md#a-list-of-it) [b](docs/guide.md#more-1) [c](#start)"
    text = f"# Start\n{good}\n[d](docs/guide.md#gone) [e](#end)\n"
    documents = {here: text, guide: "# A list, of `it`\n## More\n```\n# gone\n```\n## [More](x.md)\n"}
    assert list(link_errors(here, text, frozenset(documents), documents)) == [
        "README.md:3: docs/guide.md has no heading for the link docs/guide.md#gone",
        "README.md:3: README.md has no heading for the link #end",
    ]
