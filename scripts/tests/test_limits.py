"""What is no ratio to TCP, from cmtime's words to the verdict."""

from __future__ import annotations

import pytest

import limits

# Of cmtime 44.0, -c 1000.
REPORT = """\
creating id
connecting
step              total ms     max ms     min us  us / conn
create id    :        2.53       0.08       1.00       2.53
bind addr    :       52.44      13.76      19.00      52.44
resolve addr :        5.64       3.37      70.00       5.64
resolve route:        4.50       2.64      39.00       4.50
create qp    :        6.70       0.87       3.00       6.70
connect      :      100.60      56.80    1321.00     100.60
disconnect   :       30.99      11.90     169.00      30.99
destroy      :        6.80       0.34       4.00       6.80
"""


def test_set_up_is_all_that_comes_before_the_end() -> None:
    assert limits.setup_s(REPORT) == pytest.approx(0.17241)


def test_a_report_without_a_step_is_refused() -> None:
    with pytest.raises(limits.LimitsError, match="no time of 'create qp'"):
        limits.setup_s(REPORT.replace("create qp ", "created   "))


def test_limits_are_held_against_their_bars() -> None:
    few = [limits.Measured(setup_s, 10_000) for setup_s in (0.2, 0.25, 1.0)]
    rate, rate_of_many, memory = limits.lines(few, limits.Measured(10.0, 10_000 + 9_000 * 4))
    assert rate.split()[-4:] == ["1,000-5,000", "\u2265", "2,000", "met"]
    assert " 4,000 " in rate
    assert rate_of_many.split()[-5:] == ["1,000", "\u2265", "2,000", "not", "met"]
    assert memory.split()[-4:] == ["4.0", "\u2264", "16", "met"]
    (*_, memory) = limits.lines(few, limits.Measured(1.0, 10_000 + 9_000 * 17))
    assert memory.endswith("not met")
