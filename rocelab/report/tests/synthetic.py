"""Made-up runs for tests. Nothing in them was measured: the numbers come from a formula and a seeded generator.

They have the shape of a real run of the quick study, and the troubles of one: noise, outliers, failed steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rocelab import peers
from rocelab.results import LinkInfo, ParamValue, Provenance, RunInfo, RunStore, Sample, StepKey

SIZES_BYTES = tuple(1 << bit for bit in range(23))
LINKS = (LinkInfo("direct", "direct", 1500), LinkInfo("ethernet-1g", "bridge", 1500, 1000.0, 1 << 20))
STUDY_TEXT = '# A made-up study: a test fixture.\nid = "synthetic"\ntitle = "Made-up values: a test fixture"\n'

# interconnect, variant, tool, start-up of a message in us, Gbps at most on the direct link, cores
# of one end
_SERIES = (
    ("soft-roce", "send", "ib_send", 2.3, 41.0, 0.98),
    ("tcp", "blocking", "iperf3", 7.1, 33.0, 0.85),
    ("soft-roce", "write", "ib_write", 2.2, 43.0, 0.97),
    ("tcp", "busy-poll", "sockperf", 2.9, 35.0, 1.0),
    ("soft-roce", "read", "ib_read", 4.9, 38.0, 0.95),
)
#: How many times as long the start-up of a message takes over iWARP as over Soft RoCE.
IWARP_TIMES = 1.5
_IWARP = (("soft-iwarp", "send", "ib_send", 2.3 * IWARP_TIMES, 30.0, 0.99),)
#: Under one congestion control short messages are as fast, under the other long ones.
_IWARP_CONTROLLED = (
    ("soft-iwarp", "send@cubic", "ib_send", 2.3 * IWARP_TIMES, 15.0, 0.99),
    ("soft-iwarp", "send@default", "ib_send", 2 * 2.3 * IWARP_TIMES, 30.0, 0.99),
)
_TESTS = ("latency", "bandwidth", "bidirectional-bandwidth", "cpu-use")
_CPU_VARIANTS = ("send", "blocking", "busy-poll")


def make_run(
    root: Path,
    *,
    run_id: str = "20260101-000000-synthetic-0000",
    repetitions: int = 3,
    seed: int = 1,
    failures: bool = True,
    speed_up: float = 1.0,
    sizes_bytes: tuple[int, ...] = SIZES_BYTES,
    iwarp: bool = False,
    controls: bool = False,
) -> RunStore:
    """Writes a whole run folder.

    ``speed_up`` makes Soft RoCE so many times as fast. ``iwarp`` adds that, as earlier runs have it; ``controls`` adds
    it under two congestion controls.
    """
    info = make_info(run_id, repetitions, seed, planned_steps=len(sizes_bytes) * repetitions * (5 * 3 + 3) * 2)
    store = RunStore.create(root, info, STUDY_TEXT)
    any_failed = False
    beside = (*(_IWARP if iwarp else ()), *(_IWARP_CONTROLLED if controls else ()))
    for samples in make_steps(info, seed, speed_up, sizes_bytes, failures=failures, beside=beside):
        any_failed |= not samples[0].ok
        store.append(*samples)
        if not samples[0].ok and samples[0].log:
            (store.path / samples[0].log).write_text("made-up output of a step that failed\n")
    store.set_status("incomplete" if any_failed else "complete", ended_at="2026-01-01T00:05:02Z")
    store.close()
    return store


def make_info(run_id: str, repetitions: int, seed: int, planned_steps: int) -> RunInfo:
    """Everything about a made-up run but its samples."""
    return RunInfo(
        id=run_id,
        study="synthetic",
        title="Made-up values: a test fixture",
        fabric="emulated",
        status="running",
        started_at="2026-01-01T00:00:00Z",
        seed=seed,
        repetitions=repetitions,
        links=LINKS,
        provenance=Provenance(
            machine="x86_64 (test fixture)",
            cpu_model="Made-up CPU <script>alert(1)</script>",
            cores=2,
            memory_bytes=8 << 30,
            kernel="0.0.0-made-up",
            distribution="Debian GNU/Linux 12 (bookworm)",
            command="rocelab run synthetic.toml",
            rocelab_version="0.0.0",
            python_version="3.11.2",
            urxe_version="0.0.0",
            git_commit="0123456789abcdef0123456789abcdef01234567",
            git_dirty=True,
            tools={"perftest": "0.0", "qperf": "0.0", "sockperf": "0.0", "iperf3": "0.0"},
            notes=("None of this was measured.",),
        ),
        planned_steps=planned_steps,
        claims=("S1", "S2", "S3", "L4", "L5"),
    )


def make_steps(
    info: RunInfo,
    seed: int,
    speed_up: float,
    sizes_bytes: tuple[int, ...],
    *,
    failures: bool,
    beside: tuple[tuple[str, str, str, float, float, float], ...] = (),
) -> Iterator[list[Sample]]:
    """The samples of each step, in an interleaved order."""
    random = np.random.default_rng(seed)
    order = 0
    for link in info.links:
        for test in _TESTS:
            for size_bytes in sizes_bytes:
                for repetition in range(info.repetitions):
                    for interconnect, variant, tool, start_us, gbps, cores in (*_SERIES, *beside):
                        if test == "cpu-use" and peers.name_of(variant) not in _CPU_VARIANTS:
                            continue
                        factor = speed_up if interconnect == "soft-roce" else 1.0
                        noise = float(np.exp(abs(random.normal(0, 0.03)) + 0.4 * (random.random() < 0.01)))
                        value = _value(link, test, size_bytes, start_us, gbps) / factor * noise
                        step = StepKey(link.id, interconnect, "network", test, variant, size_bytes, repetition)
                        first = _sample(info, step, tool, order)
                        fails = failures and (variant, test, size_bytes, repetition) == ("read", _TESTS[2], 4096, 1)
                        yield [_failed(first)] if fails else _succeeded(first, value, cores, random)
                        order += 1


def _value(link: LinkInfo, test: str, size_bytes: int, start_us: float, gbps: float) -> float:
    """One-way time in us, of a message alone or as one of many."""
    rate_gbps = gbps if link.rate_mbps is None else min(gbps, link.rate_mbps / 1000 * 0.95)
    hop_us = 0.0 if link.rate_mbps is None else 4.0
    wire_us = size_bytes * 8 / (rate_gbps * 1000)
    if test == "latency":
        return start_us + hop_us + wire_us
    overlapped_us = start_us / 6 + wire_us
    return overlapped_us / 1.6 if test == "bidirectional-bandwidth" else overlapped_us


def _sample(info: RunInfo, step: StepKey, tool: str, order: int) -> Sample:
    assert step.size_bytes is not None
    tool = f"{tool}_{'lat' if step.test == 'latency' else 'bw'}" if tool.startswith("ib_") else tool
    params: dict[str, ParamValue] = {"iterations": max(10, 100_000 // (1 + step.size_bytes // 1024)), "synthetic": True}
    return Sample(
        study=info.study,
        run=info.id,
        fabric=info.fabric,
        **step._asdict(),
        params=params,
        metric="latency_us",
        unit="us",
        statistic="median",
        value=1.0,
        ok=True,
        error=None,
        tool=tool,
        tool_version="0.0",
        command=f"{tool} -s {step.size_bytes} made-up",
        started_at="2026-01-01T00:00:00Z",
        duration_s=0.2,
        log=f"logs/{order:05d}.txt",
        order=order,
    )


def _failed(sample: Sample) -> Sample:
    metric = ("latency_us", "us") if sample.test == "latency" else ("bandwidth_mbps", "Mbps")
    return dataclasses.replace(
        sample,
        metric=metric[0],
        unit=metric[1],
        value=None,
        ok=False,
        error="client: stopped at its time limit of 10 s",
    )


def _succeeded(sample: Sample, time_us: float, cores: float, random: np.random.Generator) -> list[Sample]:
    assert sample.size_bytes is not None
    if sample.test == "cpu-use":
        return _cpu_samples(sample, time_us, cores, random)
    if sample.test == "latency":
        return [
            dataclasses.replace(sample, value=time_us),
            dataclasses.replace(sample, value=time_us * 1.8, statistic="p99"),
        ]
    mbps = sample.size_bytes * 8 / time_us
    bandwidth = dataclasses.replace(sample, metric="bandwidth_mbps", unit="Mbps", statistic="mean", value=mbps)
    return [bandwidth, dataclasses.replace(bandwidth, metric="message_rate_per_s", unit="1/s", value=1e6 / time_us)]


def _cpu_samples(sample: Sample, time_us: float, cores: float, random: np.random.Generator) -> list[Sample]:
    assert sample.size_bytes is not None
    busy = {end: min(1.0, cores * float(np.exp(random.normal(0, 0.02)))) for end in ("client", "server")}
    per_mib = time_us / sample.size_bytes * (1 << 20)
    cpu = dataclasses.replace(sample, unit="cores", statistic="mean")
    return [
        made
        for end, value in busy.items()
        for made in (
            dataclasses.replace(cpu, metric=f"cpu_{end}_cores", value=value),
            dataclasses.replace(cpu, metric=f"cpu_{end}_us_per_mib", unit="us/MiB", value=value * per_mib),
        )
    ]
