"""Repetitions and a time budget, as a person asks for them: what fits, and what is said before anything is measured."""

from __future__ import annotations

import math

from rocelab.claims import claims_by_id, unreachable
from rocelab.cli.problems import say
from rocelab.cli.studies import duration, seconds, steps_of
from rocelab.stats import text
from rocelab.study.budget import REPETITIONS_MIN, span
from rocelab.study.schema import Study


def with_repetitions(study: Study, repetitions: int) -> Study:
    """The study with other repetitions. A test with a number of its own keeps it, but makes no more than that."""
    tests = [
        test
        if test.repetitions is None
        else test.model_copy(update={"repetitions": min(test.repetitions, repetitions)})
        for test in study.test
    ]
    return study.model_copy(update={"repetitions": repetitions, "test": tests})


def fitting(study: Study, budget_s: float) -> Study:
    """The study with as many repetitions in its first pass as fit a budget, two at least; says so if they are fewer.

    Where not even two fit, the run ends when the budget is used up.
    """
    whole_s = seconds(steps_of(study))
    if whole_s <= budget_s:
        return study
    minutes = math.ceil(whole_s / 60)
    said = (
        f"{study.title}: {text.plural(study.repetitions, 'repetition')} take about {duration(whole_s)}, and there "
        f"are {span(budget_s)}. For all of it, give --minutes {minutes}."
    )
    fewer = study
    for repetitions in range(study.repetitions - 1, REPETITIONS_MIN - 1, -1):
        fewer = with_repetitions(study, repetitions)
        fewer_s = seconds(steps_of(fewer))
        if fewer_s <= budget_s:
            say(f"{said} Now {repetitions} repetitions are made, in about {duration(fewer_s)}.")
            return fewer
    say(f"{said} Now it ends when the time is over, and much of it is not measured.")
    return fewer


def warn_unreachable(study: Study) -> None:
    """Say it where the repetitions are too few for any verdict on some of the study's claims."""
    for words in unreachable(claims_by_id(study.claims), study.repetitions, study.fabric.kind):
        say(f"{study.title}: {words}")
