"""How numbers read."""

from __future__ import annotations

import pytest

from rocelab.stats import Ratio, Spread, text


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [(1, "1 B"), (1000, "1000 B"), (1024, "1 KiB"), (1536, "1536 B"), (4 << 20, "4 MiB"), (1 << 30, "1 GiB")],
)
def test_sizes(size_bytes: int, words: str) -> None:
    assert text.size(size_bytes) == words


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (2.3456, "us", "2.35 \u00b5s"),
        (0.5, "us", "0.5 \u00b5s"),
        (12_345.0, "us", "12.3 ms"),
        (0.012, "Mbps", "12.0 kbps"),
        (999.0, "Mbps", "999 Mbps"),
        (12_345.0, "Mbps", "12.3 Gbps"),
        (1_234_567.0, "1/s", "1.23 million/s"),
        (1.5, "cores", "1.50 cores"),
        (0.0, "us", "0 \u00b5s"),
    ],
)
def test_quantities_take_a_unit_that_suits_them(value: float, unit: str, words: str) -> None:
    assert text.quantity(value, unit) == words


def test_a_range_has_one_unit_and_a_single_value_has_no_range() -> None:
    assert text.quantity_range(Spread(3, 1500.0, 1600.0, 900.0, 2000.0), "us") == "1.50 ms (0.9 to 2.00)"
    assert text.quantity_range(Spread(3, 1500.0, 1600.0, 900.0, 2000.0, "mean"), "us") == "1.60 ms (0.9 to 2.00)"
    assert text.quantity_range(Spread(1, 1500.0, 1500.0, 1500.0, 1500.0), "us") == "1.50 ms"


def test_factors() -> None:
    assert [text.times(each)[:-1] for each in (0.4567, 1.0, 1.994, 1.996, 9.94, 12.3, 1234)] == [
        *("0.46", "1.00", "1.99", "2.0", "9.9", "12", "1,234"),
    ]
    assert text.times_range(Ratio(1.5, 1.25, 1.8, 0.01, "welch")) == "1.50\u00d7 (1.25 to 1.80)"
    assert text.times_range(Ratio(1.5, None, None, None, "none")) == "1.50\u00d7"
    wide = Ratio(1.14, 0.0002, 831_081_123.0, 0.9, "welch")
    assert text.times_range(wide) == "1.14\u00d7 (under 0.01 to over 1,000)"


def test_size_lists_draw_powers_of_two_together() -> None:
    assert text.size_list([1, 2, 4, 8, 64, 1024, 2048]) == "1 B to 8 B, 64 B, 1 KiB and 2 KiB"
    assert text.size_list([4096]) == "4 KiB"
    assert text.size_list([]) == ""


def test_abbreviations_stay_within_a_sentence() -> None:
    assert text.lower_first("Bidirectional bandwidth") == "bidirectional bandwidth"
    assert text.lower_first("MPI bandwidth") == "MPI bandwidth"
