"""What is said about the programs that took the cores."""

from __future__ import annotations

from rocelab.load import Load, advice


def test_little_load_is_not_worth_a_word() -> None:
    assert advice(Load(2, 0.05, 0.0, measured=100, disturbed=9, top={"cron": 1.0})) is None
    assert advice(Load(2, 0.0, 0.0, measured=0, disturbed=0)) is None


def test_programs_that_took_the_cores_are_named_with_what_to_do() -> None:
    said = advice(Load(2, 0.8, 0.01, measured=300, disturbed=120, top={"firefox": 60.0, "cargo": 9.0, "cron": 0.1}))
    assert said == (
        "Other programs took 40 % of the 2 cores, most of it firefox and cargo, while this was measured; "
        "120 of 300 measurements were disturbed. To change that, close them, or give more time with --minutes."
    )


def test_a_hypervisor_is_no_program_to_close() -> None:
    said = advice(Load(4, 0.0, 1.0, measured=10, disturbed=10))
    assert said is not None
    assert "The hypervisor kept back 25 % of the 4 cores for other guests" in said
    assert "close them" not in said
