"""Predictions of published series."""

from __future__ import annotations

import re

import pytest

from rocelab.profiles import ProfileError
from rocelab.profiles.series import Source, read_source, sources
from rocelab.profiles.tests.made_up import MADE_UP
from rocelab.virtual.validation import Held, Predicted, bounds, hold, scenario_of


def source(text: str = MADE_UP) -> Source:
    return read_source(text, "page", "page.toml")


def test_an_error_is_a_part_of_what_was_published() -> None:
    assert Predicted(2, published=2.0, predicted=1.5).error == -0.25


def test_bounds_tell_what_was_held_out_from_what_was_fitted() -> None:
    series = source().series[0]
    name = {each.is_held_out: each.id for each in sources().values()}
    points = (Predicted(2, 1.0, 1.1), Predicted(4, 1.0, 0.6), Predicted(8, 1.0, 1.2))
    held = [Held(source().model_copy(update={"id": name[out]}), series, points) for out in (True, False, False)]
    assert [(each.part, each.series) for each in bounds(held)] == [("held out", 1), ("fitted", 2)]
    assert [round(each.median_error, 3) for each in bounds(held)] == [0.2, 0.2]
    assert [round(each.worst_error, 3) for each in bounds(held)] == [0.4, 0.4]


def test_a_read_takes_longer_than_a_send_for_it_goes_there_and_back() -> None:
    read, send = (
        hold([source(MADE_UP.replace('operation = "read"', f'operation = "{operation}"'))])[0].points[0].predicted
        for operation in ("read", "send")
    )
    assert 1.5 * send < read < 2.5 * send


def test_path_mtu_and_inline_data_are_those_of_the_series() -> None:
    series = source(MADE_UP.replace("points", "inline_bytes = 0\npoints")).series[0]
    host = scenario_of(series, 2)["host"]
    assert (host["mtu_bytes"], host["inline_bytes"]) == (1024, 0)


def test_latencies_of_an_mpi_library_are_predicted_up_to_what_its_stack_copies() -> None:
    text = MADE_UP.replace('operation = "read"', 'operation = "send"').replace('stack = "verbs"', 'stack = "mpi-ucx"')
    longer = re.sub(r"points = .*", "points = [[2, 1.5], [8192, 4.0], [16384, 9.0]]", text)
    (held,) = hold([source(longer)])
    assert [point.size_bytes for point in held.points] == [2, 8192]
    with pytest.raises(ProfileError, match="series latency: all of its messages are longer than 8192 B"):
        hold([source(re.sub(r"points = .*", "points = [[16384, 9.0]]", text))])


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('adapter = "roce-26g"', "there is no adapter 'roce-26g'"),
        ('adapter = "tcp-10g"', "tcp-10g has no RDMA"),
        ('adapter = "roce-25g"\nswitch = "quantum"', "roce-25g is ethernet, and quantum is infiniband"),
    ],
)
def test_what_cannot_be_predicted_is_said_with_its_series(new: str, said: str) -> None:
    with pytest.raises(ProfileError, match=f"series latency: {said}"):
        hold([source(MADE_UP.replace('adapter = "roce-25g"', new))])
