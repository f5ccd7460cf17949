"""Circles of files: which file needs which, and which of them need each other."""

from __future__ import annotations

from check_imports import CIRCLES, LAYERS, circle_errors, layer_errors
from circles import circles, needs

SMALL = {
    "lib.rs": "mod a;\nmod b;\nmod c;\npub use a::A;\n",
    "a.rs": "use crate::b::{self, B, inner::{X, Y as Z}};\n",
    "b/mod.rs": "mod inner;\n",
    "b/inner.rs": "use super::B;\n// crate::a::A is only talked of\n",
    "c.rs": 'fn f() { crate::a::g("crate::b") }\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n',
}


def test_paths_of_all_kinds_are_needs_but_words_and_tests_none() -> None:
    assert needs(SMALL) == {
        (): {("a",)},
        ("a",): {("b",), ("b", "inner")},
        ("b",): set(),
        ("b", "inner"): {("b",)},
        ("c",): {("a",)},
    }


def test_files_that_reach_each_other_are_a_circle() -> None:
    assert circles(needs(SMALL)) == []
    around = {**SMALL, "b/mod.rs": "use crate::c::C;\n"}
    assert circles(needs(around)) == [[("a",), ("b",), ("b", "inner"), ("c",)]]
    back = {**SMALL, "b/mod.rs": "mod inner;\nuse inner::X;\n"}
    assert circles(needs(back)) == [[("b",), ("b", "inner")]]


def test_super_of_a_module_within_a_file_is_the_file() -> None:
    inside = "mod inner_clock {\n    use super::now;\n    fn f() { super::now() }\n}\n"
    assert needs({"lib.rs": "mod a;\nuse crate::a::now;\n", "a.rs": inside}) == {(): {("a",)}, ("a",): set()}


def test_a_path_to_what_the_root_passes_on_is_a_path_to_the_root() -> None:
    assert circles(needs({**SMALL, "a.rs": "use crate::A;\n"})) == [[(), ("a",)]]


def test_a_new_circle_is_named_and_one_gone_has_to_be_noted() -> None:
    around = {**SMALL, "b/mod.rs": "use crate::c::C;\n"}
    (error,) = circle_errors("sim", around)
    assert error == "nic/sim: a circle of 4 files: a, b, b::inner, c"
    (error,) = circle_errors("proto", around)
    assert error.startswith("nic/proto: only 4 files are in circles")
    assert CIRCLES["proto"] > 4


def test_folders_that_need_one_above_or_have_no_place_are_named() -> None:
    low, high = LAYERS["device"][:2]
    sources = {"lib.rs": f"mod {low};\nmod {high};\n", f"{low}/mod.rs": "mod a;\n", f"{high}/mod.rs": "mod b;\n"}
    below = {**sources, f"{low}/a.rs": "", f"{high}/b.rs": f"use crate::{low}::a::A;\n"}
    assert not list(layer_errors("device", below))
    above = {**sources, f"{low}/a.rs": f"use crate::{high}::b::B;\n", f"{high}/b.rs": ""}
    (error,) = layer_errors("device", above)
    assert error == f"nic/device: {low}::a needs {high}::b, which is above it"
    (error,) = layer_errors("device", {**below, "attic.rs": f"use crate::{low}::a::A;\n"})
    assert "attic" in error
    assert not list(layer_errors("wire", above))
