"""The load during steps as samples state it, and summed up."""

from __future__ import annotations

import dataclasses

from rocelab.launch.load_meter import Taken
from rocelab.study.step_load import merged, params, summed_up
from rocelab.tests.test_results import make_sample


def test_a_step_is_disturbed_if_a_tenth_of_the_cores_was_taken() -> None:
    assert params(Taken(0.15, 0.1, 2)) == {"others_cores": 0.15, "steal_cores": 0.1, "disturbed": True}
    assert "disturbed" not in params(Taken(0.15, 0.1, 4))


def test_a_run_is_summed_up_by_its_steps_and_their_duration() -> None:
    quiet = make_sample(order=0, duration_s=3.0, params={"others_cores": 0.0, "steal_cores": 0.0})
    twice = [
        make_sample(order=1, duration_s=1.0, params={"others_cores": 1.0, "steal_cores": 0.2, "disturbed": True})
        for _ in range(2)
    ]
    old = make_sample(order=2, params={})
    load = summed_up([quiet, *twice, old], 2, {"firefox": 3.0})
    assert (load.others_cores, load.steal_cores, load.measured, load.disturbed) == (0.25, 0.05, 2, 1)
    assert dataclasses.replace(load, top={}).cores == 2


def test_names_of_a_run_that_went_on_are_added_up() -> None:
    assert merged({"a": 3.0, "b": 1.0}, {"b": 4.0, "c": 2.0, "d": 0.5}) == {"b": 5.0, "a": 3.0, "c": 2.0}
