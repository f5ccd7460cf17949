"""What liburxe.so knows of newer headers than it is built with is what the newest one says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .roots import ROOT, ROOTS
from .test_functions import headers_of, other_userland

NEWER = ROOT / "nic" / "preload" / "src" / "abi" / "newer.rs"
TYPES = {"usize": "size_t", "c_int": "int", "u8": "uint8_t", "u32": "uint32_t", "u64": "uint64_t"}


def assertions(rust: str) -> str:
    """C assertions that the structures and constants of a Rust file are those of the headers."""
    lines: list[str] = []
    for name, value in re.findall(r"const (IBV_\w+): \w+ = ([^;]+);", rust):
        lines.append(f'_Static_assert({name} == ({value}), "{name}");')
    for name, body in re.findall(r"#\[repr\(C\)\]\s*pub\(crate\) struct (\w+) \{(.*?)\n\}", rust, re.DOTALL):
        fields = re.findall(r"pub\(crate\) (\w+): ([^,]+),", body)
        members = "".join(f" {_in_c(type_)} {field};" for field, type_ in fields)
        if not fields:
            continue
        lines.append(f"struct ours_{name} {{{members} }};")
        for field, _ in fields:
            ours, theirs = f"struct ours_{name}", f"struct {name}"
            lines.append(
                f"_Static_assert(offsetof({ours}, {field}) == offsetof({theirs}, {field}) && "
                f'sizeof((({ours} *)0)->{field}) == sizeof((({theirs} *)0)->{field}), "{name}.{field}");'
            )
    return "\n".join(lines)


def _in_c(type_: str) -> str:
    return "void *" if type_.startswith("*") else TYPES[type_]


def compiled(text: str, include: Path, folder: Path) -> str:
    """What the compiler has to say against it."""
    source = folder / "layouts.c"
    source.write_text(f"#include <infiniband/verbs.h>\n{text}\n", encoding="utf-8")
    command = ["gcc", "-std=gnu17", "-fsyntax-only", f"-I{include}", str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_structures_of_newer_headers_are_laid_out_as_the_newest(tmp_path: Path) -> None:
    root = other_userland(ROOTS[-1].name)
    text = assertions(NEWER.read_text(encoding="utf-8"))
    assert text.count("_Static_assert") > 10
    assert compiled(text, headers_of(root, tmp_path), tmp_path) == ""


@pytest.mark.parametrize(
    ("rust", "complaint"),
    [
        ("pub(crate) max_mtu: u32,", "ibv_port_attr.max_mtu"),
        ("pub(crate) state: u64,", "ibv_port_attr.state"),
        ("pub(crate) state: u32,\n    pub(crate) max_mtu: u32,", ""),
    ],
)
def test_another_layout_is_noticed(rust: str, complaint: str, tmp_path: Path) -> None:
    """Against this machine's header: `struct ibv_port_attr` begins with two enumerations, the state and an MTU."""
    text = assertions(f"#[repr(C)]\npub(crate) struct ibv_port_attr {{\n    {rust}\n}}")
    said = compiled(text, headers_of(None, tmp_path), tmp_path)
    assert (complaint in said) if complaint else said == ""


def test_another_value_is_noticed(tmp_path: Path) -> None:
    text = assertions("pub(crate) const IBV_ACCESS_LOCAL_WRITE: u64 = 1 << 1;")
    assert "IBV_ACCESS_LOCAL_WRITE" in compiled(text, headers_of(None, tmp_path), tmp_path)
