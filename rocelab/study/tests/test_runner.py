"""The runner with a fake launcher: what is written, and what becomes of programs that fail, hang or are missing."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocelab.fabric.base import LaunchError
from rocelab.launch.fake import FakeLauncher, Outcome, Start
from rocelab.launch.load_meter import LoadMeter, Taken
from rocelab.results import RunStore
from rocelab.study import pair_runner
from rocelab.study.adaptive import Course
from rocelab.study.budget import Budget, Pace
from rocelab.study.runner import HANGS_MAX, Runner, remaining
from rocelab.study.steps import PairStep, Step
from rocelab.study.tests import small
from rocelab.tools.perftest import Perftest


@pytest.fixture(autouse=True)
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_runner, "_SETTLE_S", 0.0)


def run(
    store: RunStore, launcher: FakeLauncher, steps: Sequence[Step] | None = None, seen: small.Seen | None = None
) -> int:
    runner = Runner(store, small.fabric(), launcher, seen or small.Seen(), {"rocelab-sock": "1.0"})
    return runner.run(small.steps() if steps is None else steps).failed


def bandwidth_steps() -> list[PairStep]:
    """TCP first, then ib_write_bw, whose client sleeps for a second."""
    return sorted(
        (step for step in small.steps() if step.test == "bandwidth"), key=lambda step: step.variant == "write"
    )


def test_a_good_run_is_complete(tmp_path: Path) -> None:
    store, seen = small.store(tmp_path), small.Seen()
    assert run(store, small.launcher(), seen=seen) == 0
    assert store.info.status == "complete"
    assert store.info.ended_at is not None
    assert store.done_keys() == {step.key for step in small.steps()}
    assert seen.errors == [None] * len(small.steps())
    assert [sample.order for sample in store.samples()] == sorted(sample.order for sample in store.samples())


def test_samples_say_how_they_were_made(tmp_path: Path) -> None:
    store = small.store(tmp_path)
    run(store, small.launcher())
    first = next(
        sample for sample in store.samples() if sample.variant == "blocking@cubic" and sample.metric == "latency_us"
    )
    assert (first.study, first.run, first.statistic, first.value) == ("small", "run", "median", 2.0)
    assert (first.tool, first.tool_version) == ("rocelab-sock", "1.0")
    assert "client 10.80." in first.command
    assert first.params["messages"] == next(step.messages for step in small.steps() if step.key == first.key)
    assert first.log is not None
    assert (store.path / first.log).is_file()


def test_cpu_time_is_net_of_the_start(tmp_path: Path) -> None:
    store = small.store(tmp_path)
    run(store, small.launcher())
    cores = {
        (sample.interconnect, sample.metric): sample for sample in store.samples() if sample.metric.startswith("cpu_")
    }
    assert cores["tcp", "cpu_client_cores"].value == pytest.approx(0.5)
    assert {sample.test for sample in cores.values()} == {"cpu-use"}
    send = cores["soft-roce", "cpu_client_cores"]
    # The fake needs as long for few messages as for many, so nothing is left when the start is
    # taken off.
    assert send.value == 0
    assert send.params["cpu_client_process_s"] == pytest.approx(0.4)
    assert send.params["cpu_client_start_s"] == pytest.approx(0.4)


def _disturbed(start: Start) -> Outcome:
    good = small.good(start)
    return dataclasses.replace(good, stderr="Correlation coefficient r^2: 0.71 < 0.9\n")


def test_a_step_whose_program_was_disturbed_is_measured_again_and_says_so(tmp_path: Path) -> None:
    attempts = itertools.count(1)

    def answer(start: Start) -> Outcome:
        is_client = "ib_write_bw" in start.argv and start.node.index == 0
        return _disturbed(start) if is_client and next(attempts) <= 2 else small.good(start)

    store = small.store(tmp_path)
    assert run(store, small.launcher(answer)) == 0
    before = {(sample.tool, sample.params.get("disturbed_before")) for sample in store.samples()}
    assert ("ib_write_bw", 2) in before
    assert {tool for tool, count in before if count} == {"ib_write_bw"}


def test_a_step_whose_program_is_always_disturbed_fails_after_three_attempts(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        return _disturbed(start) if "ib_send_bw" in start.argv and start.node.index == 0 else small.good(start)

    store, launcher = small.store(tmp_path), small.launcher(answer)
    steps = [step for step in small.steps() if step.method.tool == "ib_send_bw" and step.test == "cpu-use"][:1]
    assert run(store, launcher, steps) == 1
    (sample,) = store.samples()
    assert "could not tell the frequency of the processor" in str(sample.error)
    assert len([start for start in launcher.starts if start.node.index == 0]) == 3


def test_cpu_time_without_a_measured_start_says_why_there_is_none(tmp_path: Path) -> None:
    step = next(step for step in small.steps() if step.method.tool == "ib_send_bw" and step.test == "cpu-use")

    def answer(start: Start) -> Outcome:
        asked = start.argv[start.argv.index("-n") + 1] if "-n" in start.argv else None
        return small.good(start) if asked == str(step.messages) else _disturbed(start)

    store = small.store(tmp_path)
    assert run(store, small.launcher(answer), [step]) == 1
    (sample,) = store.samples()
    assert "could not be measured: ib_send_bw could not tell the frequency" in str(sample.error)


def test_a_failing_program_is_a_failed_sample_and_no_end(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "ib_send_lat" in start.argv and start.node.index == 0:
            return Outcome(exit_status=1, stderr="Failed status 12")
        return small.good(start)

    store = small.store(tmp_path)
    failed = run(store, small.launcher(answer))
    assert failed == len([step for step in small.steps() if step.method.tool == "ib_send_lat"])
    assert store.info.status == "incomplete"
    sample = next(sample for sample in store.samples() if not sample.ok)
    assert sample.value is None
    assert sample.metric == "latency_us"
    assert "Failed status 12" in str(sample.error)
    assert sample.log is not None
    assert "Failed status 12" in (store.path / sample.log).read_text()


def test_a_program_that_hangs_is_stopped_and_its_series_given_up(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "busy-poll" in start.argv:
            return Outcome(hangs=True, stdout="still connecting")
        return small.good(start)

    store, launcher = small.store(tmp_path), small.launcher(answer)
    run(store, launcher)
    errors = [str(sample.error) for sample in store.samples() if not sample.ok and sample.link == "direct"]
    assert len(errors) == 6
    assert "client hung and was stopped (time limit of" in errors[0]
    assert "still connecting" in errors[0]
    assert all(error.startswith("not run: the 3") for error in errors[HANGS_MAX:])
    hung_starts = [s for s in launcher.starts if "busy-poll" in s.argv]
    assert len(hung_starts) == 2 * HANGS_MAX, "three on each link"


def test_a_missing_program_fails_its_steps_only(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "ib_write_bw" in start.argv:
            raise LaunchError("node1: there is no program 'urxe'")
        return small.good(start)

    store = small.store(tmp_path)
    assert run(store, small.launcher(answer)) == 1
    assert [sample.error for sample in store.samples() if not sample.ok] == ["node1: there is no program 'urxe'"]


def test_a_server_that_does_not_listen(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        return Outcome(listens=False) if "ib_send_lat" in start.argv else small.good(start)

    store, launcher = small.store(tmp_path), small.launcher(answer)
    run(store, launcher)
    assert "nothing listened" in str(next(sample.error for sample in store.samples() if not sample.ok))
    assert not [s for s in launcher.starts if "ib_send_lat" in s.argv and s.node.index == 0], (
        "no client without a server"
    )


def test_a_server_that_hangs_after_its_client(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "ib_send_lat" in start.argv and start.node.index == 1:
            return Outcome(hangs=True)
        return small.good(start)

    store = small.store(tmp_path)
    run(store, small.launcher(answer))
    assert "server hung" in str(next(sample.error for sample in store.samples() if not sample.ok))


def test_an_interruption_keeps_samples_and_stops_the_programs(tmp_path: Path) -> None:
    def interrupt(step: Step) -> None:
        if step.repetition == 1:
            raise KeyboardInterrupt

    store, launcher = small.store(tmp_path), small.launcher()
    with pytest.raises(KeyboardInterrupt):
        run(store, launcher, seen=small.Seen(on_start=interrupt))
    assert store.info.status == "interrupted"
    assert store.done_keys() == {
        step.key for step in small.steps() if step.repetition == 0 and step.link.id == "direct"
    }
    assert all(running.finished or running.stopped for running in launcher.running)


def test_a_resumed_run_does_what_is_missing_and_what_failed(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "ib_send_lat" in start.argv and start.node.index == 0:
            return Outcome(exit_status=1)
        return small.good(start)

    store = small.store(tmp_path)
    run(store, small.launcher(answer), steps=small.steps()[:6])
    again = RunStore.open(store.path)
    left = remaining(small.steps(), again)
    assert len(left) == len(small.steps()) - 4
    assert run(again, small.launcher(), steps=left) == 0
    assert again.info.status == "complete"
    assert again.done_keys() == {step.key for step in small.steps()}
    assert remaining(small.steps(), again) == []


def test_programs_that_sleep_first_are_started_early_and_held_at_both_ends(tmp_path: Path) -> None:
    launcher = small.launcher()
    run(small.store(tmp_path), launcher, steps=bandwidth_steps())
    clients = [running for running in launcher.running if running.start.node.index == 0]
    assert [running.start.argv[0] for running in clients[:1]] != ["rocelab-sock"]
    early, other = clients[0], clients[1]
    assert "ib_write_bw" in early.start.argv
    assert "--test" in other.start.argv
    server = next(running for running in launcher.running if running.start.node.index == 1)
    assert "ib_write_bw" in server.start.argv
    assert early.signals == server.signals == [signal.SIGSTOP, signal.SIGCONT]
    assert other.signals == []


def test_the_number_of_messages_follows_from_what_was_seen(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "busy-poll" not in start.argv or start.node.index == 1:
            return small.good(start)
        # 0.2 ms a message: ten of them, there and back, are 4 ms.
        messages = int(start.argv[start.argv.index("--messages") + 1])
        return small.good(start, elapsed_s=messages * 200e-6)

    store = small.store(tmp_path)
    run(store, small.launcher(answer))
    counts = [
        sample.params["messages"]
        for sample in store.samples()
        if sample.link == "direct" and sample.variant == "busy-poll@cubic" and sample.statistic == "median"
    ]
    planned = next(step.messages for step in small.steps() if step.variant == "busy-poll@cubic")
    assert counts[0] == planned
    assert set(counts[1:]) == {50}, "10 ms, which is what was asked for"


def test_what_was_started_early_ends_with_the_run(tmp_path: Path) -> None:
    def interrupt(step: Step) -> None:
        if step.variant == "write":
            raise KeyboardInterrupt

    launcher = small.launcher()
    with pytest.raises(KeyboardInterrupt):
        run(small.store(tmp_path), launcher, steps=bandwidth_steps(), seen=small.Seen(on_start=interrupt))
    early = [running for running in launcher.running if "ib_write_bw" in running.start.argv]
    assert len(early) == 2
    assert all(running.stopped for running in early)


def unclear_launcher(clock: list[float]) -> FakeLauncher:
    """Every step takes half a second, and all contestants measure the same values in turns."""
    counts: Counter[tuple[str, ...]] = Counter()

    def answer(start: Start) -> Outcome:
        clock[0] += 0.25
        series = start.log.name[len("00000-") :].rpartition("-")[0] if start.log is not None else ""
        what = (start.node.name, series)
        value = 2 + counts[what] % 3
        # Where perftest prints cycles, it is asked for them.
        column = value * (cycles_per_us() if "-C" in start.argv else 1)
        counts[what] += 1
        good = small.good(start)
        text = good.stdout.replace(" 2.0 9.0 2.5 ", f" 2.0 9.0 {column:.1f} ").replace('"p50": 2', f'"p50": {value}')
        return dataclasses.replace(good, stdout=text)

    return small.launcher(answer)


def cycles_per_us() -> float:
    method = next(step.method for step in small.steps() if step.variant == "send" and step.test == "latency")
    assert isinstance(method, Perftest)
    return method.cycles_per_us or 1.0


def run_with_budget(store: RunStore, budget_s: float, seen: small.Seen, steps: Sequence[Step]) -> int:
    clock = [0.0]
    course = Course(small.steps(), Budget(budget_s, lambda: clock[0]), Pace(lambda: clock[0]))
    runner = Runner(store, small.fabric(), unclear_launcher(clock), seen, {}, course=course)
    return runner.run(steps).cut


def test_what_is_left_of_a_budget_goes_to_what_is_not_clear(tmp_path: Path) -> None:
    store, seen = small.store(tmp_path), small.Seen()
    assert run_with_budget(store, 60, seen, small.steps()) == 0
    assert store.info.status == "complete"
    assert {step.key for step in small.steps()} < store.done_keys()
    assert store.info.planned_steps == len(store.done_keys())
    assert "not clear yet" in seen.news[0]
    again = RunStore.open(store.path)
    assert remaining(small.steps(), again) == []
    before = len(again.done_keys())
    run_with_budget(again, 20, small.Seen(), [])
    assert again.info.planned_steps == len(again.done_keys()) > before


def test_a_run_out_of_budget_is_incomplete_and_can_be_continued(tmp_path: Path) -> None:
    store, seen = small.store(tmp_path), small.Seen()
    cut = run_with_budget(store, 4, seen, small.steps())
    assert cut == len(small.steps()) - len(store.done_keys()) > 0
    assert store.info.status == "incomplete"
    assert store.info.planned_steps == len(small.steps())
    assert seen.news[-1] == "the time budget is used up"
    again = RunStore.open(store.path)
    assert run(again, small.launcher(), steps=remaining(small.steps(), again)) == 0
    assert again.info.status == "complete"


def test_every_tcp_is_measured_under_the_control_of_its_name(tmp_path: Path) -> None:
    launcher = small.launcher()
    text = small.TEXT.replace('["cubic"]', '["cubic", "default"]')
    steps = [step for step in small.steps(text) if step.link.id == "direct" and step.test == "latency"]
    run(small.store(tmp_path), launcher, steps)
    wanted = [step.variant.partition("@")[2] for step in steps if step.interconnect == "tcp"]
    changes = [control for control, before in zip(wanted, ["default", *wanted], strict=False) if control != before]
    assert [control for _, control, _ in launcher.controls] == changes
    assert {nodes for _, _, nodes in launcher.controls} == {2}


def test_iwarp_that_is_started_early_connects_under_its_own_control(tmp_path: Path) -> None:
    text = small.TEXT.replace('["cubic"]', '["cubic", "default"]').replace(
        'soft-roce = ["write"]', 'soft-iwarp = ["write"]'
    )
    found = {(step.test, step.variant): step for step in small.steps(text) if step.link.id == "direct"}
    turns = ("blocking@default", "write@cubic", "blocking@cubic", "write@default")
    steps = [found["bandwidth", name] for name in turns]
    launcher = small.launcher()
    launcher.controls.append(("direct", "default", 2))
    seen: list[tuple[str, str]] = []

    def answer(start: Start) -> Outcome:
        if start.node.index == 0:
            seen.append(("write" if "iwarp" in start.argv else "blocking", launcher.controls[-1][1]))
        return small.good(start)

    launcher.answer = answer
    assert run(small.store(tmp_path), launcher, steps) == 0
    assert sorted(seen) == [("blocking", "cubic"), ("blocking", "default"), ("write", "cubic"), ("write", "default")]
    assert [control for name, control in seen if name == "write"] == ["cubic", "default"]


def test_a_missing_congestion_control_fails_its_steps_only(tmp_path: Path) -> None:
    store, launcher = small.store(tmp_path), small.launcher()
    launcher.refused_control = "cubic"
    steps = [step for step in small.steps() if step.link.id == "direct" and step.test == "latency"]
    assert run(store, launcher, steps) == sum(step.interconnect == "tcp" for step in steps)
    errors = {str(sample.error) for sample in store.samples() if sample.interconnect == "tcp"}
    assert all("could not be given the congestion control 'cubic'" in error for error in errors)
    assert all(sample.ok for sample in store.samples() if sample.interconnect == "soft-roce")


def test_a_connection_of_another_control_does_not_count(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        good = small.good(start)
        return Outcome(stdout=good.stdout.replace('"cpu_s"', '"congestion_control": "bbr", "cpu_s"'))

    store = small.store(tmp_path)
    steps = [step for step in small.steps() if step.variant == "blocking@cubic" and step.test == "latency"][:1]
    assert run(store, small.launcher(answer), steps) == 1
    assert [sample.error for sample in store.samples()] == [
        "the client's connection had the congestion control bbr, not cubic"
    ]


def reception_steps() -> list[PairStep]:
    """Of three TCPs in turn, the second is one for which the link has to receive by NAPI."""
    text = small.TEXT.replace('["blocking", "busy-poll"]', '["blocking", "kernel-prefer", "busy-poll"]')
    found = {step.variant: step for step in small.steps(text) if step.link.id == "direct" and step.test == "latency"}
    return [found[f"{name}@cubic"] for name in ("blocking", "kernel-prefer", "busy-poll")]


def polled(start: Start) -> Outcome:
    said = '"busy_poll_us": 100, "prefer_busy_poll": true, "napi_id": 8200, "cpu_s"'
    outcome = small.good(start)
    if "--kernel-poll" not in start.argv:
        return outcome
    return dataclasses.replace(outcome, stdout=outcome.stdout.replace('"cpu_s"', said))


USUAL = {"tx-tcp*": 1, "rx-gro": 0}


def test_a_link_receives_by_napi_only_while_a_test_needs_it(tmp_path: Path) -> None:
    seen: list[tuple[str, dict[str, dict[str, int]]]] = []

    def answer(start: Start) -> Outcome:
        seen.append((start.node.name, {node: dict(held) for (_, node), held in launcher.interfaces.items()}))
        return polled(start)

    store, launcher = small.store(tmp_path), small.launcher(answer)
    assert run(store, launcher, reception_steps()) == 0
    napi = {"tx-tcp*": 0, "rx-gro": 1}
    deferred = {**napi, "gro_flush_timeout": 200_000, "napi_defer_hard_irqs": 100}
    assert [held for _, held in seen[:2]] == [{}, {}]
    assert [held for _, held in seen[2:4]] == [{"node0": napi, "node1": deferred}] * 2
    assert [{name: each[name] for name in USUAL} for _, held in seen[4:] for each in held.values()] == [USUAL] * 4
    params = [sample.params for sample in store.samples() if sample.metric == "latency_us"]
    assert [each.get("server_gro_flush_timeout") for each in params[::4]] == [None, 200_000, None]
    assert params[4]["napi_server"] is True


@pytest.mark.parametrize("failure", [LaunchError("gone"), KeyboardInterrupt()])
def test_a_link_receives_as_before_after_a_failure_too(tmp_path: Path, failure: BaseException) -> None:
    def answer(start: Start) -> Outcome:
        if "--kernel-poll" in start.argv:
            raise failure
        return small.good(start)

    launcher = small.launcher(answer)
    with contextlib.suppress(KeyboardInterrupt):
        run(small.store(tmp_path), launcher, reception_steps()[:2])
    assert [{name: held[name] for name in USUAL} for held in launcher.interfaces.values()] == [USUAL, USUAL]


def test_a_link_that_cannot_be_changed_stops_only_what_needs_it(tmp_path: Path) -> None:
    store, launcher = small.store(tmp_path), small.launcher(polled)
    launcher.refused_interface = "gro_flush_timeout"
    assert run(store, launcher, reception_steps()) == 1
    errors = {sample.variant: sample.error for sample in store.samples() if not sample.ok}
    assert errors == {"kernel-prefer@cubic": "not run: node1: how direct receives cannot be changed: gro_flush_timeout"}
    assert [{name: held[name] for name in USUAL} for held in launcher.interfaces.values()] == [USUAL, USUAL]


def test_what_a_link_drops_on_purpose_is_noted_in_its_samples(tmp_path: Path) -> None:
    fabric = small.fabric()
    slow = dataclasses.replace(fabric.links[1], loss_percent=1.0)
    fabric.links = (fabric.links[0], slow)

    def answer(start: Start) -> Outcome:
        fabric.dropped += 3
        return small.good(start)

    store = small.store(tmp_path)
    Runner(store, fabric, small.launcher(answer), small.Seen(), {}).run(small.steps())
    # Each step starts two programs.
    dropped = {sample.params.get("dropped_packets") for sample in store.samples() if sample.link == slow.id}
    assert dropped == {6}
    assert not [sample for sample in store.samples() if sample.link != slow.id and "dropped_packets" in sample.params]


def test_what_others_take_is_noted_in_samples_and_summed_up(tmp_path: Path) -> None:
    class Busy(LoadMeter):
        def end(self) -> Taken:
            return Taken(others_cores=0.5, steal_cores=0.0, cores=2)

    store = small.store(tmp_path)
    Runner(store, small.fabric(), small.launcher(), small.Seen(), {}, meter=Busy(cores=(0, 1))).run(small.steps())
    assert {sample.params["others_cores"] for sample in store.samples()} == {0.5}
    assert all(sample.params["disturbed"] for sample in store.samples())
    load = RunStore.open(store.path).info.load
    assert load is not None
    assert (load.others_cores, load.measured, load.disturbed) == (0.5, len(small.steps()), len(small.steps()))
