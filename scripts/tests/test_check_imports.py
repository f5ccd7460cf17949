"""The import-direction check must refuse what the design forbids, and only that."""

from __future__ import annotations

from typing import Any

import pytest

from check_imports import ALLOWED, SANS_IO, direction_errors, purity_errors

LIB = "#![no_std]\n#![forbid(unsafe_code)]\n"


def package(*dependencies: tuple[str, str | None]) -> dict[str, Any]:
    return {"dependencies": [{"name": name, "kind": kind} for name, kind in dependencies]}


def workspace(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: package() for name in ALLOWED} | changed


def purity(lib: str = LIB, *, other: str = "", **changed: dict[str, Any]) -> list[str]:
    sources = {name: {"lib.rs": LIB} for name in SANS_IO}
    sources["proto"] = {"lib.rs": lib, "qp.rs": other}
    return list(purity_errors(workspace(**changed), sources))


def test_the_directions_of_the_design_pass() -> None:
    packages = {name: package(*((f"urxe-{to}", None) for to in targets)) for name, targets in ALLOWED.items()}
    assert list(direction_errors(packages)) == []


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("wire", "proto"), ("proto", "udp"), ("udp", "proto"), ("udp", "wire"), ("device", "preload")],
)
def test_a_wrong_direction_is_refused(importer: str, imported: str) -> None:
    [error] = direction_errors(workspace(**{importer: package((f"urxe-{imported}", None))}))
    assert error.startswith(f"nic/{importer}: it imports {imported};")


def test_proto_may_be_tested_in_the_simulator_but_not_use_it() -> None:
    assert list(direction_errors(workspace(proto=package(("urxe-sim", "dev"))))) == []
    assert len(list(direction_errors(workspace(proto=package(("urxe-sim", None)))))) == 1


def test_a_new_crate_needs_a_place() -> None:
    [error] = direction_errors(workspace(magic=package()))
    assert "nic/magic" in error


def test_pure_sources_pass() -> None:
    assert purity() == []
    assert purity(LIB + "#[cfg(test)]\nextern crate std;\n") == []
    assert purity(other="#[cfg(test)]\nmod tests {\n    extern crate std;\n}\n") == []
    assert purity(proto=package(("bitflags", None), ("proptest", "dev"))) == []


@pytest.mark.parametrize(
    "lib",
    [
        "#![forbid(unsafe_code)]\n",
        "#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]\n",
        "// #![no_std]\n#![forbid(unsafe_code)]\n",
    ],
)
def test_a_missing_no_std_is_found(lib: str) -> None:
    assert purity(lib) == ["nic/proto/src/lib.rs: #![no_std] is missing"]


def test_unsafe_code_must_be_forbidden_not_only_denied() -> None:
    assert purity("#![no_std]\n#![deny(unsafe_code)]\n") == ["nic/proto/src/lib.rs: #![forbid(unsafe_code)] is missing"]


def test_std_by_the_back_door_is_found() -> None:
    [error] = purity(other="use core::fmt;\nextern crate std;\n")
    assert error == "nic/proto/src/qp.rs:2: std is brought back outside of tests"


def test_an_external_crate_that_nobody_looked_at_is_found() -> None:
    [error] = purity(proto=package(("rand", None)))
    assert "rand is not among the crates known to do no IO" in error
