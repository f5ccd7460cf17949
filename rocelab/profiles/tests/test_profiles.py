"""Profiles: every file is in order, says where its numbers come from, and gives what the publications give."""

from __future__ import annotations

from importlib import resources

import pytest

from rocelab import profiles
from rocelab.profiles.model import read


def test_every_profile_says_where_its_numbers_come_from() -> None:
    kinds = (
        profiles.adapters(),
        profiles.hosts(),
        profiles.mpis(),
        profiles.stacks(),
        profiles.switches(),
        profiles.workloads(),
    )
    for known in kinds:
        assert known
        for profile in known.values():
            assert all(source.strip() for source in profile.sources.values()), profile.id


def test_a_profile_without_a_rate_is_refused_naming_the_key() -> None:
    file = resources.files("rocelab.profiles").joinpath("data", "adapters", "roce-10g.toml")
    text = file.read_text(encoding="utf-8")
    assert read(text, "mine", "mine.toml", profiles.Adapter).port.lane_gbaud == 10.3125
    with pytest.raises(profiles.ProfileError, match=r"^mine\.toml: port\.lane_gbaud: this key is missing$"):
        read(text.replace("lane_gbaud = 10.3125\n", ""), "mine", "mine.toml", profiles.Adapter)
    with pytest.raises(profiles.ProfileError, match=r"mine\.toml: port\.lane_gbaud: Input should be greater than 0"):
        read(text.replace("10.3125", "0"), "mine", "mine.toml", profiles.Adapter)
    with pytest.raises(profiles.ProfileError, match=r"mine\.toml: not valid TOML"):
        read("[", "mine", "mine.toml", profiles.Adapter)


@pytest.mark.parametrize(
    ("name", "gbps"),
    [
        ("infiniband-qdr", 32.0),
        ("infiniband-fdr", 54.5),
        ("roce-10g", 10.0),
        ("roce-40g", 40.0),
        ("roce-25g-lag", 25.0),
        ("roce-100g", 100.0),
    ],
)
def test_rates_after_encoding(name: str, gbps: float) -> None:
    assert profiles.adapter(name).port.data_rate_gbps == pytest.approx(gbps, rel=0.001)


def test_between_programs_an_adapter_takes_what_its_source_says() -> None:
    verbs, host = profiles.stack("verbs"), profiles.host("sandy-bridge-ep")
    around_ns = verbs.send_ns + verbs.receive_ns + 2 * host.posted_ns
    taken = {name: adapter.send_ns + adapter.receive_ns + around_ns for name, adapter in profiles.adapters().items()}
    assert (taken["infiniband-qdr"], taken["infiniband-fdr"], taken["roce-10g"]) == (1000, 700, 1300)


def test_a_workload_has_sizes_at_every_part_and_a_mean() -> None:
    websearch = profiles.workload("websearch")
    assert [websearch.quantile_bytes(percent) for percent in (15, 25, 90, 100)] == [
        10_000,
        25_000,
        5_000_000,
        30_000_000,
    ]
    assert websearch.mean_bytes == pytest.approx(1.711e6, rel=0.001)


def test_a_workload_that_does_not_ascend_is_refused() -> None:
    text = 'title = "x"\npoints = [[0, 0], [10, 60], [20, 50], [30, 100]]\n[sources]\npoints = "x"\n'
    with pytest.raises(profiles.ProfileError, match="points ascend in both"):
        read(text, "mine", "mine.toml", profiles.Workload)


def test_an_unknown_name_is_told_with_the_nearest_known() -> None:
    with pytest.raises(profiles.ProfileError, match="did you mean 'infiniband-fdr'"):
        profiles.adapter("infiniband-fdx")
