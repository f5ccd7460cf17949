"""Published series: what is in the files, and the draw."""

from __future__ import annotations

import pytest

from rocelab.profiles import series
from rocelab.profiles.model import ProfileError

SERIES = """\
title = "A page"
setup = { adapter = "one" }
inferred = []

[[series]]
id = "a"
grade = "A"
tool = "ib_send_bw"
metric = "bandwidth"
operation = "send"
unit = "MiB/s"
column = "BW average"
adapter = "roce-25g"
host = "sandy-bridge-ep"
stack = "verbs"
path_mtu_bytes = 1024
points = [[2, 10.0], [64, 100.0], [128, 200.0]]
"""


def test_the_draw_is_the_one_that_was_made_before_anything_was_fitted() -> None:
    held_out = {source.id for source in series.sources().values() if source.is_held_out}
    assert held_out == {
        "aks-infiniband",
        "azure-hc44rs",
        "gpu-operator",
        "mvapich-rocev2",
        "ndr200-2024",
        "ohpc-207",
        "qemu-rdma-2024",
        "remote-lab-25g",
    }


def test_every_series_has_a_name_of_its_own() -> None:
    names = [each.id for source in series.sources().values() for each in source.series]
    assert len(names) == len(set(names))


def test_points_are_judged_in_gbps_up_to_a_size() -> None:
    (read,) = series.read_source(SERIES, "page", "page.toml").series
    assert [size for size, _ in read.judged(64)] == [2, 64]
    assert [gbps for _, gbps in read.judged()] == pytest.approx([0.08388608, 0.8388608, 1.6777216])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('unit = "MiB/s"', 'unit = "us"', "a latency is in us"),
        ('grade = "A"', 'grade = "C"', "what is wrong with a series of grade C"),
        ("[64, 100.0], [128", "[128, 100.0], [64", "do not ascend"),
        ("points =", "point =", "series.0.points: Field required"),
        ("title =", "title", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(old: str, new: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said) as raised:
        series.read_source(SERIES.replace(old, new), "page", "page.toml")
    assert str(raised.value).startswith("page.toml: ")


def test_a_source_counts_once_however_many_series_it_has() -> None:
    errors = [("a", 0.1), ("a", 0.1), ("a", 0.3), ("b", 0.5), ("c", 0.9)]
    assert series.middle_of_sources(errors) == (0.5, 3)


def test_the_bounds_are_of_what_was_held_out_alone() -> None:
    errors = series.held_out_errors()
    held_out = [source for source in series.sources().values() if source.is_held_out]
    counted = {metric: count for metric, (_, count) in errors.items()}
    assert counted == {
        metric: sum(any(each.metric == metric and each.grade != "C" for each in source.series) for source in held_out)
        for metric in ("latency", "bandwidth")
    }
    assert all(0 < error < 1 for error, _ in errors.values())
