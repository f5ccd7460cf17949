"""The order of the steps and what each is given."""

from __future__ import annotations

from itertools import groupby

import pytest

from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.tests.small import TEXT, steps


def test_every_combination_is_there_once() -> None:
    keys = [step.key for step in steps()]
    assert len(keys) == len(set(keys)) == 2 * 2 * 3 * 3 + 2 + 2
    assert {key.size_bytes for key in keys if key.test == "latency"} == {1, 2, 4}


def test_the_plan_is_always_the_same() -> None:
    assert steps() == steps()


def test_what_is_compared_takes_turns_at_every_size() -> None:
    latency = [step for step in steps() if step.test == "latency"]
    rounds = [list(group) for _, group in groupby(latency, lambda s: (s.link.id, s.repetition, s.size_bytes))]
    assert len(rounds) == 2 * 2 * 3
    for members in rounds:
        assert {(step.interconnect, step.variant) for step in members} == {
            ("tcp", "blocking@cubic"),
            ("tcp", "busy-poll@cubic"),
            ("soft-roce", "send"),
        }
    firsts = {(members[0].interconnect, members[0].variant) for members in rounds}
    assert len(firsts) == 3, "the one that goes first changes"


def test_tests_take_turns_at_every_size_too() -> None:
    text = TEXT.replace("sizes_bytes = [1024]", "sizes_bytes = [1, 4]", 1)
    sizes = [step.size_bytes for step in steps(text) if step.link.id == "direct" and step.repetition == 0]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4
    assert {step.test for step in steps(text) if step.size_bytes == 4} == {"latency", "bandwidth"}


def test_a_step_can_be_given_the_pace_that_was_seen() -> None:
    step = next(step for step in steps() if step.variant == "blocking@cubic")
    slow = step.paced(4.0)
    assert slow.messages == pytest.approx(step.messages / 4, abs=1)
    assert slow.key == step.key
    assert step.paced(1e9).messages == step.method.messages_min


def test_repetitions_lie_apart() -> None:
    order = [step.repetition for step in steps() if step.test == "latency" and step.link.id == "direct"]
    assert order == sorted(order)


def test_the_seed_changes_who_goes_first() -> None:
    other = steps(TEXT.replace("repetitions = 2\ntime", "repetitions = 2\nseed = 2\ntime"))
    assert [step.key for step in other] != [step.key for step in steps()]
    assert {step.key for step in other} == {step.key for step in steps()}


def test_messages_follow_from_duration_size_and_link() -> None:
    text = TEXT.replace("{ from = 1, to = 4 }", "[1, 4194304]")
    by_size = {(step.link.id, step.size_bytes): step for step in steps(text) if step.variant == "blocking@cubic"}
    small, large = by_size["direct", 1], by_size["slow", 4194304]
    assert small.messages > 1000
    assert large.messages == large.method.messages_min
    assert large.expected_s > 5 * 2 * 4194304 * 8 / 100e6
    assert large.time_limit_s > 5 + large.expected_s


def test_a_test_runs_only_on_the_links_it_names() -> None:
    assert {step.link.id for step in steps() if step.test == "bandwidth"} == {"direct"}


def test_every_tcp_is_measured_under_every_control_of_the_study() -> None:
    text = TEXT.replace('["cubic"]', '["cubic", "default"]')
    latency = {(step.interconnect, step.variant) for step in steps(text) if step.test == "latency"}
    assert latency == {
        ("tcp", "blocking@cubic"),
        ("tcp", "blocking@default"),
        ("tcp", "busy-poll@cubic"),
        ("tcp", "busy-poll@default"),
        ("soft-roce", "send"),
    }


def test_iwarp_which_is_over_tcp_is_measured_under_every_control_too() -> None:
    text = TEXT.replace('["cubic"]', '["cubic", "default"]').replace(
        'soft-roce = ["send"]', 'soft-roce = ["send"]\nsoft-iwarp = ["send", "write@reno"]'
    )
    latency = {step.variant for step in steps(text) if (step.test, step.interconnect) == ("latency", "soft-iwarp")}
    assert latency == {"send@cubic", "send@default", "write@reno"}
    controlled, plain = (
        {step.expected_s for step in steps(text) if step.size_bytes == 4 and (step.interconnect, step.variant) == which}
        for which in (("soft-iwarp", "send@cubic"), ("soft-roce", "send"))
    )
    assert controlled == plain, "as the same program without one"


@pytest.mark.parametrize(
    ("level", "variant"),
    [
        ('level = "pairs"\ntest = "latency"', "send"),
        ('test = "mesh"\nnodes = [2]', "write"),
        ('level = "mpi"\ntest = "latency"\nsizes_bytes = [8]', "mpich-ofi"),
        ('level = "mpi"\ntest = "barrier"', "openmpi-ofi"),
        ('level = "nas"\nprograms = ["is"]\nclasses = ["S"]', "mpich-ofi"),
    ],
)
def test_every_level_has_iwarp_under_every_control(level: str, variant: str) -> None:
    text = f"""\
schema = 1
id = "levels"
title = "iWARP at every level"
repetitions = 1

[[link]]
id = "lan"
kind = "bridge"

[[test]]
{level}

[test.variants]
soft-iwarp = ["{variant}"]
"""
    assert {step.variant for step in plan(parse(text, "levels.toml"))} == {f"{variant}@cubic", f"{variant}@default"}


def test_without_a_named_control_cubic_and_the_machines_are_used() -> None:
    text = TEXT.replace('[tcp]\ncongestion_control = ["cubic"]\n', "")
    bandwidth = {step.variant for step in steps(text) if step.test == "bandwidth" and step.interconnect == "tcp"}
    assert bandwidth == {"blocking@cubic", "blocking@default"}


def test_a_variant_with_a_congestion_control_has_only_that_one() -> None:
    text = TEXT.replace('tcp = ["blocking", "busy-poll"]', 'tcp = ["blocking@reno", "busy-poll"]')
    assert {step.variant for step in steps(text) if step.test == "latency" and step.interconnect == "tcp"} == {
        "blocking@reno",
        "busy-poll@cubic",
    }
