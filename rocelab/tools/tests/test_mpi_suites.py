"""What the suites of MPI benchmarks print, read back: tables of OMB and IMB in their forms, and rocelab-mpi's JSON."""

from __future__ import annotations

import json

import pytest

from rocelab.tools.base import JobReading, JobRequest, Output, ToolError
from rocelab.tools.imb import Imb
from rocelab.tools.osu import Osu
from rocelab.tools.rocelab_mpi import RocelabMpi
from rocelab.tools.suites import job_method, wrong_test

SIZES = (1, 2, 4)
REQUEST = JobRequest(SIZES, iterations=100, warmup=10)


def said(stdout: str, exit_status: int = 0) -> Output:
    return Output(stdout, "", exit_status)


def values(reading: JobReading, metric: str, statistic: str = "mean") -> dict[int | None, float]:
    return {
        size: value.value
        for size, found in reading.values.items()
        for value in found
        if (value.metric, value.statistic) == (metric, statistic)
    }


LATENCY = """\

# OSU MPI Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       1.41
2                       1.43
4                       1.45
8                       9.99
"""

LATENCY_3_1 = """\
# OSU MPI Latency Test v3.1.1
# Size            Latency (us)
0                         1.30
1                         1.41
2                         1.43
4                         1.45
"""

LATENCY_CHECKED = """\
# OSU MPI Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)        Validation
1                       1.41              Pass
2                       1.43              Fail
4                       1.45              Pass
"""

LATENCY_TAILS = """\
# OSU MPI Latency Test v7.4
# Size       Avg Latency(us)   P50 Tail Lat(us)   P90 Tail Lat(us)   P99 Tail Lat(us)
1                       1.41               1.40               1.50               3.00
2                       1.43               1.42               1.52               3.20
4                       1.45               1.44               1.54               3.40
"""

PAIRS = """\
# OSU MPI Multiple Bandwidth / Message Rate Test v7.4
# [ pairs: 2 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1                       4.00        4000000.00
2                       8.00        4000000.00
4                      16.00        4000000.00
"""

COLLECTIVE = """\
# OSU MPI Allreduce Latency Test v7.4
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
1                       5.00              4.00              6.00        1000
2                       5.50              4.50              6.50        1000
4                       6.00              5.00              7.00        1000
"""

NON_BLOCKING = """\
# OSU MPI Non-blocking Broadcast Latency Test v7.4
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1                      10.00              6.00              5.50             27.27
2                      10.50              6.10              5.60             21.43
4                      11.00              6.20              5.70             15.79
"""

ONE_SIDED = """\
# OSU MPI_Put Bandwidth Test v7.4
# Window creation: MPI_Win_allocate
# Synchronization: MPI_Win_flush
# Size      Bandwidth (MB/s)
1                       0.50
2                       1.00
4                       2.00
"""


@pytest.mark.parametrize("text", [LATENCY, LATENCY_3_1])
def test_latency_of_omb_old_and_new(text: str) -> None:
    reading = Osu("latency", "/omb").read(REQUEST, said(text))
    assert values(reading, "latency_us") == {1: 1.41, 2: 1.43, 4: 1.45}


def test_a_size_that_failed_its_validation_does_not_count() -> None:
    reading = Osu("latency", "/omb").read(REQUEST, said(LATENCY_CHECKED))
    assert values(reading, "latency_us") == {1: 1.41, 4: 1.45}
    assert "not right" in reading.errors[2]


def test_tails_of_omb() -> None:
    reading = Osu("latency", "/omb").read(REQUEST, said(LATENCY_TAILS))
    assert values(reading, "latency_us", "p99") == {1: 3.0, 2: 3.2, 4: 3.4}
    assert values(reading, "latency_us") == {1: 1.41, 2: 1.43, 4: 1.45}


def test_pairs_of_omb() -> None:
    reading = Osu("mbw_mr", "/omb").read(REQUEST, said(PAIRS))
    assert values(reading, "bandwidth_mbps") == {1: 32.0, 2: 64.0, 4: 128.0}
    assert values(reading, "message_rate_per_s") == dict.fromkeys(SIZES, 4e6)
    assert Osu("mbw_mr", "/omb").main_metric == ("bandwidth_mbps", "Mbps")


def test_collectives_of_omb() -> None:
    reading = Osu("allreduce", "/omb").read(REQUEST, said(COLLECTIVE))
    assert values(reading, "latency_us") == {1: 5.0, 2: 5.5, 4: 6.0}
    assert values(reading, "latency_us", "min") == {1: 4.0, 2: 4.5, 4: 5.0}
    assert values(reading, "latency_us", "max") == {1: 6.0, 2: 6.5, 4: 7.0}


def test_non_blocking_collectives_of_omb() -> None:
    reading = Osu("ibcast", "/omb").read(REQUEST, said(NON_BLOCKING))
    assert values(reading, "latency_us") == {1: 10.0, 2: 10.5, 4: 11.0}
    assert values(reading, "overlap_percent") == {1: 27.27, 2: 21.43, 4: 15.79}
    assert values(reading, "pure_communication_us")[4] == 5.7


def test_one_sided_of_omb() -> None:
    reading = Osu("put_bw", "/omb").read(REQUEST, said(ONE_SIDED))
    assert values(reading, "bandwidth_mbps") == {1: 4.0, 2: 8.0, 4: 16.0}


def test_what_was_printed_before_a_hang_counts() -> None:
    reading = Osu("latency", "/omb").read(REQUEST, said(LATENCY[: LATENCY.index("4    ")]))
    assert set(reading.values) == {1, 2}


def test_a_program_that_says_nothing() -> None:
    for method in (Osu("latency", "/omb"), Imb("PingPong", "/imb"), RocelabMpi("latency", "openmpi", None)):
        with pytest.raises(ToolError, match="nothing about any size: no route"):
            method.read(REQUEST, Output("", "no route", 1))


PINGPONG = """\
#---------------------------------------------------
# Benchmarking PingPong
# #processes = 2
#---------------------------------------------------
       #bytes #repetitions      t[usec]   Mbytes/sec
            0         1000         0.90         0.00
            1         1000         1.00         1.00
            2         1000         1.00         2.00
            4         1000         2.00         2.00
"""

EXCHANGE = """\
#-----------------------------------------------------------------------------
# Benchmarking Exchange
# #processes = 4
#-----------------------------------------------------------------------------
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]   Mbytes/sec      defects
            1         1000         1.00         2.00         1.50         2.00         0.00
            2         1000         1.00         2.00         1.50         4.00         0.00
            4         1000         1.00         4.00         2.50         4.00         1.00
"""

BIBAND = """\
       #bytes #repetitions   Mbytes/sec      Msg/sec
            1          100         2.00      2000000
            2          100         4.00      2000000
            4          100         8.00      2000000
"""


def test_pingpong_of_imb() -> None:
    reading = Imb("PingPong", "/imb").read(REQUEST, said(PINGPONG))
    assert values(reading, "latency_us") == {1: 1.0, 2: 1.0, 4: 2.0}
    assert values(reading, "bandwidth_mbps") == {1: 8.0, 2: 16.0, 4: 16.0}


def test_exchange_of_imb_with_its_check() -> None:
    reading = Imb("Exchange", "/imb").read(REQUEST, said(EXCHANGE))
    assert values(reading, "latency_us") == {1: 1.5, 2: 1.5}
    assert values(reading, "latency_us", "max") == {1: 2.0, 2: 2.0}
    assert values(reading, "bandwidth_mbps") == {1: 16.0, 2: 32.0}, "four messages in the time of the slowest"
    assert set(reading.errors) == {4}


def test_biband_of_imb() -> None:
    reading = Imb("Biband", "/imb").read(REQUEST, said(BIBAND))
    assert values(reading, "bandwidth_mbps") == {1: 16.0, 2: 32.0, 4: 64.0}


NO_SIZES = JobRequest((), iterations=100)

BARRIER = """\

# OSU MPI Barrier Latency Test v7.4
# Avg Latency(us)
             5.25
"""

BARRIER_3_1 = """\
# OSU MPI Barrier Latency Test v3.1.1
# Latency (us)
5.25
"""

BARRIER_FULL = """\
# OSU MPI Barrier Latency Test v5.9
# Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
             5.25              5.00              5.50        1000
"""

NON_BLOCKING_BARRIER = """\
# OSU MPI Non-blocking Barrier Latency Test v7.4
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

#         Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
                 5.25              3.00              2.50             10.00
"""

INIT = """\
# OSU MPI Init Test v7.4
nprocs: 4, min: 41 ms, max: 46 ms, avg: 44 ms
"""

IMB_BARRIER = """\
#---------------------------------------------------
# Benchmarking Barrier
# #processes = 4
#---------------------------------------------------
 #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
         1000         5.00         5.50         5.25
"""

IMB_NON_BLOCKING_BARRIER = """\
#-----------------------------------------------------------------------------
# Benchmarking Ibarrier
# #processes = 4
#-----------------------------------------------------------------------------
 #repetitions t_ovrl[usec] t_pure[usec]  t_CPU[usec]   overlap[%]
         1000         5.25         2.50         3.00        10.00
"""


@pytest.mark.parametrize(
    ("method", "text"),
    [
        *((Osu("barrier", "/omb"), text) for text in (BARRIER, BARRIER_3_1, BARRIER_FULL)),
        (Osu("ibarrier", "/omb"), NON_BLOCKING_BARRIER),
        (Imb("Barrier", "/imb"), IMB_BARRIER),
        (Imb("Ibarrier", "/imb"), IMB_NON_BLOCKING_BARRIER),
    ],
)
def test_barriers_have_no_size(method: Osu | Imb, text: str) -> None:
    reading = method.read(NO_SIZES, said(text))
    assert values(reading, "latency_us") == {None: 5.25}
    if method.test.lower().startswith("i"):
        assert values(reading, "overlap_percent") == {None: 10.0}
    if text in (BARRIER_FULL, IMB_BARRIER):
        assert values(reading, "latency_us", "max") == {None: 5.5}
    assert method.main_metric == ("latency_us", "us")


def test_the_time_of_init() -> None:
    reading = Osu("init", "/omb").read(NO_SIZES, said(INIT))
    assert values(reading, "init_us") == {None: 44_000.0}
    assert values(reading, "init_us", "max") == {None: 46_000.0}
    metrics = {"init_us": 44_000.0, "init_min_us": 41_000.0, "init_max_us": 46_000.0}
    ours = RocelabMpi("init", "mpich", None)
    told = line(0, benchmark="init", validation="none", metrics=metrics, spread=None)
    assert values(ours.read(NO_SIZES, said(told)), "init_us") == {None: 44_000.0}
    assert ours.main_metric == ("init_us", "us")


@pytest.mark.parametrize(
    "method", [Osu("barrier", "/omb"), Imb("Barrier", "/imb"), RocelabMpi("barrier", "mpich", "/m")]
)
def test_a_barrier_is_asked_for_no_size(method: Osu | Imb | RocelabMpi) -> None:
    assert not {"-m", "-msglog"} & set(method.command(NO_SIZES))
    assert method.problem((), 4) is None
    with pytest.raises(ToolError, match="nothing that can be read: no route"):
        method.read(NO_SIZES, Output("", "no route", 1))


def line(size_bytes: int, **other: object) -> str:
    report = {
        "format": 1,
        "suite": "rocelab-mpi 1.0",
        "benchmark": "bw",
        "size_bytes": size_bytes,
        "validation": "pass",
        "wrong_bytes": 0,
        "metrics": {"bandwidth_mb_per_s": 10.0 * size_bytes, "message_rate_per_s": 1e7},
        "spread": {"metric": "bandwidth_mb_per_s", "samples": 100, "min": 1.0, "p50": 9.0 * size_bytes, "p99": 20.0},
    }
    return json.dumps(report | other) + "\n"


def test_rocelab_mpi() -> None:
    text = "Open MPI warns of something\n" + line(1) + line(2) + line(4)
    reading = RocelabMpi("bw", "openmpi", None).read(REQUEST, said(text))
    assert values(reading, "bandwidth_mbps") == {1: 80.0, 2: 160.0, 4: 320.0}
    assert values(reading, "bandwidth_mbps", "median") == {1: 72.0, 2: 144.0, 4: 288.0}
    assert values(reading, "message_rate_per_s")[4] == 1e7


def test_rocelab_mpi_that_got_wrong_data_or_was_stopped() -> None:
    wrong = line(2, validation="fail", wrong_bytes=3, metrics={}, spread=None)
    reading = RocelabMpi("bw", "openmpi", None).read(REQUEST, said(line(1) + wrong + line(4)[:50], exit_status=-9))
    assert set(reading.values) == {1}
    assert reading.errors[2].endswith("3 wrong bytes")


def test_another_format_of_rocelab_mpi() -> None:
    with pytest.raises(ToolError, match="format 2"):
        RocelabMpi("bw", "openmpi", None).read(REQUEST, said(line(1, format=2)))


def test_command_lines() -> None:
    assert Osu("latency", "/omb").command(REQUEST) == ["/omb/osu_latency", "-m", "1:4", "-i", "100", "-x", "10"]
    assert Imb("PingPong", "/imb").command(JobRequest((1, 2, 4), options=("-warm_up", "1"))) == [
        *("/imb/IMB-MPI1", "PingPong", "-npmin", "1000000", "-msglog", "0:2", "-warm_up", "1"),
    ]
    ours = RocelabMpi("bw", "mpich", "/there").command(JobRequest((64,)))
    assert ours == ["/there/rocelab-mpi", "bw", "-m", "64:64", "--json"]


@pytest.mark.parametrize(
    ("test", "sizes", "ranks", "says"),
    [
        ("latency", (1, 2, 4), 2, None),
        ("latency", (1, 2, 4), 4, "between 2 processes"),
        ("multi_lat", (1,), 3, "pairs"),
        ("bcast", (4, 1024), 16, None),
        ("bcast", (4, 12), 16, "never gives 12"),
        ("bcast", (4,), 1, "2 processes at least"),
    ],
)
def test_what_cannot_be_measured(test: str, sizes: tuple[int, ...], ranks: int, says: str | None) -> None:
    found = job_method("osu", test, "openmpi", "/omb").problem(sizes, ranks)
    assert found is None if says is None else says in str(found)


def test_a_suite_that_is_not_ours_needs_a_folder() -> None:
    assert wrong_test("osu", "latency", None) is not None
    assert wrong_test("imb", "pingpong", "/imb") is not None
    assert wrong_test("imb", "PingPong", "/imb") is None
    assert wrong_test("osu", "hello", "/omb") is not None, "it prints no number"
