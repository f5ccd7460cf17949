"""Programs side by side: what is planned for how many processors, where it is started, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError
from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.results import RunStore
from rocelab.study.availability import measurable
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner, remaining
from rocelab.study.side_by_side_steps import SideBySideStep
from rocelab.study.side_by_side_tables import SideBySideTable
from rocelab.study.tests.small import Seen, store

TEXT = """\
schema = 1
id = "side"
title = "Side by side"
repetitions = 1
time_limit_s = 20

[tcp]
congestion_control = ["cubic"]

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "side-by-side"
pairs = [4, 1, 2, 32]
sizes_bytes = [64, 65536]
measured_s = 1
margin_s = 1

[test.variants]
soft-roce = ["send", "write-one-program"]
tcp = ["blocking"]
"""
MIBPS = 2**20 * 8 / 1e6


def steps(text: str = TEXT, processors: int | None = None) -> list[SideBySideStep]:
    fitting, _ = measurable(parse(text, "side.toml"), lambda _: None, processors=processors)
    return [step for step in plan(fitting) if isinstance(step, SideBySideStep)]


def one(variant: str, pairs: int, *, text: str = TEXT, size_bytes: int = 65536) -> SideBySideStep:
    (found,) = (
        step
        for step in steps(text)
        if step.variant.startswith(variant)
        and step.size_bytes == size_bytes
        and max(step.pairs, step.queue_pairs) == pairs
    )
    return found


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "fabric" not in request.keywords:
        monkeypatch.setattr("rocelab.study.together.time.sleep", lambda _: None)


def good(start: Start) -> Outcome:
    """Pairs of Soft RoCE have 2 or 3 MiB/s, by their port; pairs of TCP 30 Mbps."""
    if "--seconds" in start.argv:
        return Outcome(stdout=json.dumps({"server": {"elapsed_s": 1.0}, "bandwidth_mbps": 30.0}))
    if "-p" not in start.argv:
        return Outcome()
    mib_per_s = 2 + int(start.argv[start.argv.index("-p") + 1]) % 2
    return Outcome(stdout=f" 65536 32 0.00 {mib_per_s:.2f} 0.000032\n")


def run(
    folder: Path, step: SideBySideStep, answer: Callable[[Start], Outcome] = good, core_count: int = 8
) -> tuple[RunStore, FakeLauncher]:
    made, launcher = store(folder), FakeLauncher(answer, core_count=core_count)
    Runner(made, FakeFabric((step.link,)), launcher, Seen(), {}).run([step])
    return made, launcher


@pytest.mark.parametrize(
    ("processors", "pairs", "queue_pairs", "said"),
    [
        (
            1,
            set(),
            set(),
            [
                "side-by-side: 1, 2, 4 and 32 pairs are left out, for this run has 1 processor; 1 pair needs 2.",
                "side-by-side: one program with queue pairs is left out, for this run has 1 processor; it needs 2.",
            ],
        ),
        (
            2,
            {1},
            {1, 2, 4, 32},
            ["side-by-side: 2, 4 and 32 pairs are left out, for this run has 2 processors; 2 pairs need 4."],
        ),
        (
            8,
            {1, 2, 4},
            {1, 2, 4, 32},
            ["side-by-side: 32 pairs are left out, for this run has 8 processors; 32 pairs need 64."],
        ),
        (64, {1, 2, 4, 32}, {1, 2, 4, 32}, []),
    ],
)
def test_what_there_are_too_few_processors_for_is_left_out_and_said(
    processors: int, pairs: set[int], queue_pairs: set[int], said: list[str]
) -> None:
    study = parse(TEXT, "side.toml")
    fitting, sentences = measurable(study, lambda _: None, processors=processors)
    assert list(sentences) == said
    assert (fitting == study) == (not said)
    planned = [step for step in plan(fitting) if isinstance(step, SideBySideStep)]
    many = [step for step in planned if "one-program" not in step.variant]
    assert {step.pairs for step in many} == pairs
    # Each with both sizes, of Soft RoCE and of TCP.
    assert len(many) == 4 * len(pairs)
    assert {step.queue_pairs for step in planned if "one-program" in step.variant} == queue_pairs
    assert len({step.key for step in planned}) == len(planned)


def test_a_shared_processor_is_enough_for_any_number_of_pairs() -> None:
    text = TEXT.replace("measured_s", 'processors = "shared"\nmeasured_s')
    assert {step.pairs for step in steps(text, processors=1) if step.interconnect == "tcp"} == {1, 2, 4, 32}


def test_another_number_of_processors_changes_no_other_test() -> None:
    text = TEXT + '[[test]]\ntest = "latency"\nsizes_bytes = [1]\n[test.variants]\ntcp = ["blocking"]\n'
    fitting, _ = measurable(parse(text, "side.toml"), lambda _: None, processors=1)
    assert [test.every_test for test in fitting.test] == [("latency",)]
    assert not any(isinstance(test, SideBySideTable) for test in fitting.test)


def test_no_two_programs_have_the_same_processor(tmp_path: Path) -> None:
    _, launcher = run(tmp_path, one("send", 4))
    programs = [start for start in launcher.starts if "ib_send_bw" in start.argv]
    cores = {node: [*(tuple(each.cores) for each in programs if each.node.name == node)] for node in ("node0", "node1")}
    assert cores == {"node0": [(0,), (2,), (4,), (6,)], "node1": [(1,), (3,), (5,), (7,)]}
    # The first node has the clients, and each its own server.
    clients = [start for start in programs if start.node.name == "node0"]
    assert {start.argv[-1] for start in clients} == {"10.80.0.2"}
    assert len({start.argv[start.argv.index("-p") + 1] for start in clients}) == 4


def test_pairs_that_share_have_one_processor_at_each_end(tmp_path: Path) -> None:
    step = one("send", 4, text=TEXT.replace("measured_s", 'processors = "shared"\nmeasured_s'))
    _, launcher = run(tmp_path, step, core_count=2)
    programs = [start for start in launcher.starts if "ib_send_bw" in start.argv]
    assert {(start.node.name, tuple(start.cores)) for start in programs} == {("node0", (0,)), ("node1", (1,))}


def test_one_program_has_all_queue_pairs(tmp_path: Path) -> None:
    step = one("write-one-program", 32)
    assert step.variant == "write-one-program:queue_pairs=32"
    _, launcher = run(tmp_path, step, core_count=2)
    programs = [start for start in launcher.starts if "ib_write_bw" in start.argv]
    assert [start.argv[start.argv.index("-q") + 1] for start in programs] == ["32", "32"]


def test_over_tcp_one_program_has_the_congestion_control_of_the_link(tmp_path: Path) -> None:
    text = TEXT.replace('tcp = ["blocking"]', 'soft-iwarp = ["write-one-program"]')
    step = next(step for step in steps(text) if step.interconnect == "soft-iwarp" and step.queue_pairs == 2)
    assert step.variant == "write-one-program:queue_pairs=2@cubic"
    _, launcher = run(tmp_path, step)
    assert launcher.controls == [("direct", "cubic", 2)]


def test_the_samples_are_of_all_pairs_and_of_the_least_and_the_most(tmp_path: Path) -> None:
    made, _ = run(tmp_path, one("send", 4))
    found = {(each.metric, each.statistic): each.value for each in made.samples() if "events" not in each.metric}
    assert found.pop(("wire_mbps", "total"))
    assert found == {
        ("throughput_mbps", "total"): pytest.approx(10 * MIBPS),
        ("message_rate_per_s", "total"): pytest.approx(10 * 2**20 / 65536),
        ("pair_mbps", "mean"): pytest.approx(2.5 * MIBPS),
        ("pair_mbps", "min"): pytest.approx(2 * MIBPS),
        ("pair_mbps", "max"): pytest.approx(3 * MIBPS),
    }
    sample = made.samples()[0]
    assert (sample.test, sample.level, sample.nodes, sample.ranks) == ("side-by-side", "network", 2, 8)
    assert sample.params["processors"] == "own"
    assert sample.params["client_cores"] == "0 2 4 6"
    assert sample.params["server_cores"] == "1 3 5 7"


def test_a_run_goes_on_with_the_points_that_are_missing(tmp_path: Path) -> None:
    done = one("blocking", 2)
    made, _ = run(tmp_path, done)
    assert len(remaining(steps(), made)) == len(steps()) - 1


def test_pairs_that_did_not_overlap_are_a_failure_and_one_alone_is_none(tmp_path: Path) -> None:
    def much(start: Start) -> Outcome:
        return Outcome(stdout=" 65536 32 0.00 999999999999999.00 0.000032\n")

    made, _ = run(tmp_path / "two", one("send", 2), much)
    assert "they did not all measure at the same time" in (made.samples()[0].error or "")
    made, _ = run(tmp_path / "one", one("send", 1), much)
    assert [sample.error for sample in made.samples()] == [None] * len(made.samples())


def test_too_few_processors_after_all_are_a_failure_with_a_reason(tmp_path: Path) -> None:
    made, launcher = run(tmp_path, one("send", 4), core_count=4)
    assert [sample.error for sample in made.samples()] == ["4 processors are too few"]
    assert launcher.starts == []


@pytest.mark.parametrize(
    ("is_there", "bad", "key", "says"),
    [
        ("pairs = [4, 1, 2, 32]", "pairs = [4, 0]", "test[1].pairs[2]", "greater than or equal to 1"),
        ("pairs = [4, 1, 2, 32]", "pairs = [4, 4]", "test[1].pairs", "4 is there twice"),
        ("pairs = [4, 1, 2, 32]", "pairs = []", "test[1].pairs", "needs at least one entry"),
        ("pairs = [4, 1, 2, 32]\n", "", "test[1].pairs", "this key is missing"),
        ("pairs =", "pears =", "test[1].pears", "did you mean 'pairs'?"),
        (
            "measured_s",
            'processors = "many"\nmeasured_s',
            "test[1].processors",
            '"many" is not known; allowed: "own" or "shared"',
        ),
        ('tcp = ["blocking"]', 'tcp = ["no-delay"]', "test[1].variants.tcp", "unknown variant of tcp for side-by-side"),
        ('tcp = ["blocking"]', 'tcp = ["blocking-one-program"]', "test[1].variants.tcp", "unknown variant of tcp"),
        ('"direct"\n\n', '"bridge"\nrate_mbps = 100\n\n', "test[1].links", "direct has a rate_mbps: what is measured"),
    ],
)
def test_mistakes_are_told(is_there: str, bad: str, key: str, says: str) -> None:
    assert is_there in TEXT
    with pytest.raises(StudyError) as caught:
        parse(TEXT.replace(is_there, bad), "side.toml")
    problems = {problem.key: problem.text for problem in caught.value.problems}
    assert says in problems[key]


@pytest.mark.fabric
@pytest.mark.slow
def test_two_real_pairs_of_each_kind_share_two_processors(tmp_path: Path) -> None:
    text = TEXT.replace("pairs = [4, 1, 2, 32]", 'pairs = [2]\nprocessors = "shared"').replace("[64, 65536]", "[4096]")
    planned = steps(text.replace("margin_s = 1", "margin_s = 2"))
    missing = [each.name for step in planned for each in step.executables if each.path is None]
    if missing:
        pytest.skip(f"programs are missing: {', '.join(missing)}")
    made = store(tmp_path)
    try:
        with emulated.up([planned[0].link], emulated.default_names(2)) as fabric:
            Runner(made, fabric, NamespaceLauncher(fabric), Seen(), {}).run(planned)
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    samples = made.samples()
    busy = [sample.error for sample in samples if "Give the test a larger margin_s" in (sample.error or "")]
    if busy:
        pytest.skip(f"the machine is too busy: {busy[0]}")
    assert [sample.error for sample in samples if not sample.ok] == []
    values = {(each.variant, each.metric, each.statistic): each.value or 0.0 for each in samples}
    for variant, pairs in (("send", 2), ("blocking@cubic", 2), ("write-one-program:queue_pairs=2", 1)):
        total = values[variant, "throughput_mbps", "total"]
        assert total == pytest.approx(pairs * values[variant, "pair_mbps", "mean"])
        assert 0 < values[variant, "pair_mbps", "min"] <= values[variant, "pair_mbps", "max"] < 1e6
