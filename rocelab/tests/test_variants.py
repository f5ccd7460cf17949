"""What the names of variants say beyond a program: how many flows of which kinds."""

from __future__ import annotations

import pytest

from rocelab.variants import Flows, mix_names, mix_of


@pytest.mark.parametrize(
    ("mix", "names"),
    [
        ((Flows(2, "soft-roce", "write"),), ("soft-roce", "2xwrite")),
        (
            (Flows(1, "soft-roce", "write-without-dcqcn"), Flows(4, "tcp", "blocking@cubic")),
            ("soft-roce+tcp", "1xwrite-without-dcqcn+4xblocking@cubic"),
        ),
        (
            (Flows(1, "tcp", "blocking@bbr"), Flows(1, "soft-roce", "write"), Flows(3, "soft-iwarp", "write@bbr")),
            ("tcp+soft-roce+soft-iwarp", "1xblocking+1xwrite+3xwrite@bbr"),
        ),
    ],
)
def test_a_mix_is_read_from_its_names(mix: tuple[Flows, ...], names: tuple[str, str]) -> None:
    assert mix_names(mix) == names
    assert mix_of(*names) == mix
