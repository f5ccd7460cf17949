"""The steps of a study, in the order they are carried out. The same study always makes the same plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocelab import peers
from rocelab.study.levels import level_of
from rocelab.study.schema import LinkTable, Study
from rocelab.study.steps import Step


def plan(study: Study) -> list[Step]:
    """Every step of the study.

    Links follow each other. On each, a repetition runs through all sizes, and at each size all
    variants of all interconnects take turns in all tests (A B A B ...). So what is compared is
    measured within seconds, and the repetitions of one point lie minutes apart, so that they show
    how much the machine drifts. Which variant goes first changes with the size and the repetition
    (and the seed), so that none always runs after the same neighbour. Steps that measure many sizes
    take turns in the same way, after those of their repetition that measure one, and meshes come
    last, in the order of their number of nodes.

    At the level cloud the links take turns, too, in each repetition: a link with all of its tests,
    then the next, for the daemons of a system are on one link at a time. On each link it is one
    congestion control after the other.
    """
    steps = [step for link in study.link for step in _on_link(study, link)]
    return [*steps, *_by_system(study)]


def measurement_count(steps: Sequence[Step]) -> int:
    """How many measurements the steps are: each size of a start counts as one."""
    return sum(len(step.keys) for step in steps)


def _on_link(study: Study, link: LinkTable) -> Iterator[Step]:
    # By repetition, by the kind of step, and by the size, the test or the number of nodes.
    rounds: dict[tuple[int, int, int], list[Step]] = {}
    for at, test in enumerate(study.test):
        level = level_of(test)
        if level.is_by_system or link not in study.links_of(test):
            continue
        for repetition in range(study.repetitions_of(test)):
            for step in level.steps(study, test, link.profile(), repetition):
                rounds.setdefault((repetition, level.turn, level.round_of(at, step)), []).append(step)
    for number, place in enumerate(sorted(rounds)):
        members = rounds[place]
        first = (study.seed + place[0] + number) % len(members)
        yield from members[first:] + members[:first]


def _by_system(study: Study) -> Iterator[Step]:
    tests = [test for test in study.test if level_of(test).is_by_system]
    for repetition in range(max((study.repetitions_of(test) for test in tests), default=0)):
        first = (study.seed + repetition) % len(study.link)
        for link in study.link[first:] + study.link[:first]:
            steps: list[Step] = [
                step
                for test in tests
                if repetition < study.repetitions_of(test) and link in study.links_of(test)
                for step in level_of(test).steps(study, test, link.profile(), repetition)
            ]
            # Daemons keep their connections, so they are started anew for each congestion control.
            # What has none goes with the first.
            controls = list(dict.fromkeys(control for step in steps if (control := peers.control_of(step.variant))))
            yield from sorted(steps, key=lambda step: _place_of(peers.control_of(step.variant), controls))


def _place_of(control: str | None, controls: Sequence[str]) -> int:
    return 0 if control is None else controls.index(control)
