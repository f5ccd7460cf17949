"""What goes into the container image."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

import images  # noqa: E402, it lies beside what is tested

PAGE = HERE.parent / "docs" / "install.md"


def test_the_page_and_the_containerfile_name_the_same_packages() -> None:
    listed = images.named(images.CONTAINERFILE.read_text(encoding="utf-8"))
    found = re.search(r"<!-- image -->\s+[^\n]*apt-get install ([^\n]+)", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert [word for word in found[1].split() if not word.startswith(".")] == listed
    assert "ibverbs-utils" in listed


def test_a_containerfile_without_packages_is_refused() -> None:
    with pytest.raises(ValueError, match="installs no packages"):
        images.named("FROM debian\nRUN apt-get install -y perftest\n")
