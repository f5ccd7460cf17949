"""What clients of HDFS, HBase and Spark print, and when it counts."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from rocelab.tools import hbase, hdfs, spark, yarn
from rocelab.tools.base import Output, ToolError
from rocelab.tools.cloud import REPORT_MARK, CloudReading, Host, Place, Surroundings, Traffic
from rocelab.tools.hbase import Ycsb
from rocelab.tools.hdfs import TestDfsio
from rocelab.tools.spark import Spark

MIB = 1 << 20
PLACE = Place(
    tuple(Host(at, f"node{at}", f"node{at}.fdr", f"10.80.0.{at + 1}", "eth0") for at in range(4)), "fdr", Path("conf")
)
DFSIO = TestDfsio(64 * MIB)
YCSB = Ycsb("get", records=1000, value_bytes=1000, operations=10_000, threads=8)
SORT = Spark("terasort", "soft-roce", "ucx", 64_000_000)


def report(values: dict[str, float], *, ok: bool = True, exit_status: int = 0, **params: object) -> Output:
    data = {
        "version": 1,
        "values": [{"metric": name, "unit": "s", "statistic": "total", "value": each} for name, each in values.items()],
        "params": params,
        "checks": [{"name": "blocks with 3 replicas", "ok": ok, "found": "1 of 2"}],
    }
    return Output(f"something else\n{REPORT_MARK}{json.dumps(data)}\n", "", exit_status)


def traffic(total_bytes: int, phase: str = "TestDFSIO writes") -> Traffic:
    return Traffic(phase, (0.0, 1.0), ((0, 0, 0, 0), (total_bytes // 4,) * 4))


def seen(output: Output, moved: int = 10**12, stored: int = 10**12, phase: str = "TestDFSIO writes") -> Surroundings:
    return Surroundings(output, (traffic(moved, phase),), (stored // 3,) * 3)


def values(reading: CloudReading) -> dict[tuple[str, str], float]:
    return {(value.metric, value.statistic): value.value for value in reading.values}


def test_dfsio_counts_if_three_replicas_went_over_links_to_disk() -> None:
    good = report({"write_mib_per_s": 50.0})
    reading = DFSIO.read(PLACE, seen(good, moved=4 * 128 * MIB, stored=3 * 128 * MIB))
    assert values(reading)["write_mib_per_s", "total"] == 50.0
    with pytest.raises(ToolError, match="not 3 times 134,217,728"):
        DFSIO.read(PLACE, seen(good, stored=2 * 128 * MIB))
    with pytest.raises(ToolError, match="less than 4 times 134,217,728 bytes, though 3 replicas were written and one"):
        DFSIO.read(PLACE, seen(good, moved=3 * 128 * MIB))


def test_on_yarn_a_task_writes_its_first_replica_beside_itself() -> None:
    on_yarn = dataclasses.replace(DFSIO, runner="yarn")
    good = report({"write_mib_per_s": 50.0})
    assert on_yarn.read(PLACE, seen(good, moved=2 * 128 * MIB, stored=3 * 128 * MIB)).values
    with pytest.raises(ToolError, match="less than 2 times"):
        on_yarn.read(PLACE, seen(good, moved=128 * MIB))
    assert (DFSIO.layers, on_yarn.layers) == (("hdfs",), ("hdfs", "yarn"))
    assert (DFSIO.params["runner"], on_yarn.params["runner"]) == ("local", "yarn")
    local, yarns = hdfs.files(PLACE)["mapred-site.xml"], yarn.files(PLACE)["mapred-site.xml"]
    assert "<value>local</value>" in local
    assert "<value>yarn</value>" in yarns


def test_a_failed_check_and_a_missing_report_are_told() -> None:
    with pytest.raises(ToolError, match="blocks with 3 replicas: 1 of 2"):
        DFSIO.read(PLACE, seen(report({}, ok=False)))
    log = "INFO one\nException in thread main: no such host\n\tat Foo.bar(Exception.java)\nINFO Shutdown hook called"
    with pytest.raises(ToolError, match="ended with exit status 1 without a report: Exception in thread main"):
        DFSIO.read(PLACE, seen(Output("", log, 1)))


YCSB_OUTPUT = """\
[OVERALL], RunTime(ms), 2000
[OVERALL], Throughput(ops/sec), 5000.0
[TOTAL_GC_TIME_%], Time(%), 1.16
[CLEANUP], Operations, 8
[CLEANUP], AverageLatency(us), 6806.875
[READ], Operations, 10000
[READ], AverageLatency(us), 1500.5
[READ], MinLatency(us), 425
[READ], 50thPercentileLatency(us), 1200
[READ], 95thPercentileLatency(us), 3000
[READ], 99thPercentileLatency(us), 5000
[READ], 99.9PercentileLatency(us), 9000
[READ], Return=OK, 10000
"""


def test_ycsb_gives_throughput_and_percentiles_of_each_operation() -> None:
    found = values(YCSB.read(PLACE, seen(Output(YCSB_OUTPUT, "", 0))))
    assert found["throughput_per_s", "mean"] == 5000.0
    assert found["read_latency_us", "mean"] == 1500.5
    assert found["read_latency_us", "median"] == 1200
    assert found["read_latency_us", "p99_9"] == 9000
    assert not any(metric.startswith("cleanup") for metric, _ in found)


def test_ycsb_counts_only_when_every_operation_is_ok() -> None:
    some_failed = YCSB_OUTPUT.replace("Return=OK, 10000", "Return=OK, 9999\n[READ], Return=ERROR, 1")
    with pytest.raises(ToolError, match="not every operation was OK: 1 READ Return=ERROR"):
        YCSB.read(PLACE, seen(Output(some_failed, "", 0)))
    with pytest.raises(ToolError, match="9999 operations were OK instead of 10000"):
        YCSB.read(PLACE, seen(Output(YCSB_OUTPUT.replace("Return=OK, 10000", "Return=OK, 9999"), "", 0)))


def _row(operation: str, count: int, *, outcome: bool = True) -> str:
    rows = re.findall(r"\[READ\].*\n", YCSB_OUTPUT)
    kept = [row for row in rows if outcome or "Return" not in row]
    return "".join(kept).replace("[READ]", f"[{operation}]").replace("10000", str(count))


def test_a_read_modify_write_counts_once_and_needs_both_parts() -> None:
    workload = dataclasses.replace(YCSB, workload="f", operations=100)
    head = YCSB_OUTPUT[: YCSB_OUTPUT.index("[READ]")]
    modified = _row("READ-MODIFY-WRITE", 40, outcome=False)
    found = values(workload.read(PLACE, seen(Output(head + _row("READ", 100) + _row("UPDATE", 40) + modified, "", 0))))
    assert found["read_modify_write_latency_us", "median"] == found["read_latency_us", "median"] == 1200
    for updates in ("", _row("UPDATE", 39)):
        with pytest.raises(ToolError, match="operations were OK instead of 100"):
            workload.read(PLACE, seen(Output(head + _row("READ", 100) + updates + modified, "", 0)))


def test_the_warm_up_and_the_load_come_before_and_only_once() -> None:
    warmed = dataclasses.replace(YCSB, warmup_operations=500)
    assert list(warmed.preparation(PLACE, Path("logs/1"))) == ["table", "records 1000 1000", "warm-up get"]
    load = dataclasses.replace(YCSB, workload="load")
    assert list(load.preparation(PLACE, Path("logs/1"))) == ["table for 1"]
    assert "-load" in load.client(PLACE, Path("logs/1")).argv


def test_every_workload_has_a_file() -> None:
    for workload in hbase.WORKLOADS:
        argv = Ycsb(workload, 10, 10, 10, 1).client(PLACE, Path("logs/1")).argv
        assert Path(argv[argv.index("-P") + 1]).is_file()


def test_spark_over_ucx_is_told_its_transport_and_netty_is_not() -> None:
    over_urxe = " ".join(SORT.client(PLACE, Path()).argv)
    assert "spark.executorEnv.UCX_NET_DEVICES=urxe_eth0:1" in over_urxe
    assert "UcxShufflePlugin" in over_urxe
    over_tcp = " ".join(Spark("terasort", "tcp", "ucx", 1000).client(PLACE, Path()).argv)
    assert "spark.executorEnv.UCX_TLS=tcp" in over_tcp
    assert "LD_PRELOAD" not in over_tcp
    assert "Ucx" not in " ".join(Spark("terasort", "tcp", "netty", 1000).client(PLACE, Path()).argv)


def test_a_sort_has_the_throughput_of_each_node_over_time() -> None:
    output = report({"terasort_s": 2.0, "terasort_remote_bytes": 3e6}, checksum="1f")
    sent = ((0, 0, 0, 0), (0, 125_000, 125_000, 125_000), (0, 500_000, 250_000, 250_000))
    phase = Traffic("TeraSort sorts them", (1.0, 2.0, 3.0), sent)
    other = Traffic("TeraGen makes them", (0.0, 1.0), ((0, 0, 0, 0), (0, 10**9, 10**9, 10**9)))
    reading = SORT.read(PLACE, Surroundings(output, (other, phase), (0, 0, 0)))
    found = values(reading)
    assert found["node_sent_mbps", "node1@0.50"] == 1.0
    assert found["node_sent_mbps", "node1@1.50"] == 3.0
    assert found["node_throughput_mbps", "max"] == 3.0
    assert found["total_throughput_mbps", "mean"] == pytest.approx(4.0)
    check = SORT.follow_up(PLACE, reading)
    assert check is not None
    assert check.argv[-1] == "1f"


def test_a_shuffle_that_did_not_go_over_the_link_does_not_count() -> None:
    output = report({"terasort_remote_bytes": 3e6}, checksum="1f")
    with pytest.raises(ToolError, match="executors report 3,000,000 bytes from others, but 1,000,000 left the nodes"):
        SORT.read(PLACE, seen(output, moved=1_000_000, phase="TeraSort sorts them"))


def test_daemons_are_on_the_link_and_masters_on_the_first_node() -> None:
    for system in (hdfs, yarn, hbase, spark):
        stages = system.daemons(PLACE)
        hosts = [daemon.host.index for stage in stages for daemon in stage]
        assert sorted(set(hosts)) == [0, 1, 2, 3]
    assert "node0.fdr" in hdfs.files(PLACE)["core-site.xml"]
