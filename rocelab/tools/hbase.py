"""HBase on HDFS: ZooKeeper and the master on the first node, a region server on every other; and YCSB to measure it.

YCSB's client is the real one (site.ycsb.Client); what it lacks is a binding for HBase, which is in cloud/hbase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from rocelab.tools import hdfs
from rocelab.tools.base import Executable, Output, ToolError, Value, describe_exit, last_words
from rocelab.tools.cloud import (
    NODE_FOLDER,
    Client,
    CloudReading,
    Daemon,
    Layer,
    Place,
    Surroundings,
    executables,
    java,
    settings,
    workload_file,
)

Workload = Literal["load", "get", "put", "mix", "a", "b", "c", "d", "e", "f"]
WORKLOADS: Final[tuple[Workload, ...]] = get_args(Workload)

_ZOOKEEPER_PORT: Final = 2181
_TABLE: Final = "usertable"
_REGIONS_PER_SERVER: Final = 4
_PERCENTILES: Final = {"50": "median", "95": "p95", "99": "p99", "99.9": "p99_9"}
#: Of workload f: a read and an update of the same record.
_MODIFY: Final = "READ-MODIFY-WRITE"
#: Of HBase, Hadoop and Netty, where Java 17 keeps to itself what they use.
_OPENS: Final = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.reflect", "java.nio", "java.util", "sun.nio.ch", "jdk.internal.misc")
)


def files(place: Place) -> Mapping[str, str]:
    """The file of settings."""
    return {
        "hbase-site.xml": settings(
            {
                "hbase.rootdir": f"hdfs://{place.master.name}:{hdfs.NAMENODE_PORT}/hbase",
                "hbase.cluster.distributed": "true",
                # By address: the peer looks for itself among its interfaces, and finds the name of
                # the node alone.
                "hbase.zookeeper.quorum": place.master.address,
                "hbase.zookeeper.property.clientPort": _ZOOKEEPER_PORT,
                "hbase.zookeeper.property.dataDir": f"{NODE_FOLDER}/zookeeper",
                "hbase.tmp.dir": f"{NODE_FOLDER}/hbase",
                "hbase.master.info.port": -1,
                "hbase.regionserver.info.port": -1,
                "hbase.regionserver.handler.count": 16,
                "hbase.master.wait.on.regionservers.mintostart": len(place.workers),
            }
        )
    }


def daemons(place: Place) -> Sequence[Sequence[Daemon]]:
    """ZooKeeper, then the others: the master waits for its region servers."""
    path = hdfs.classpath(place)
    first = place.master
    package = "org.apache.hadoop.hbase"
    zookeeper = Daemon(
        f"ZooKeeper on {first.node}",
        first,
        java(128, path, f"{package}.zookeeper.HQuorumPeer", options=_OPENS),
        ready=f"binding to port .*:{_ZOOKEEPER_PORT}",
    )
    workers = [
        Daemon(
            f"RegionServer on {host.node}",
            host,
            java(
                512,
                path,
                f"{package}.regionserver.HRegionServer",
                f"-Dhbase.regionserver.hostname={host.name}",
                "start",
                options=_OPENS,
            ),
            ready="Serving as ",
        )
        for host in place.workers
    ]
    master = Daemon(
        f"HMaster on {first.node}",
        first,
        java(
            384,
            path,
            f"{package}.master.HMaster",
            f"-Dhbase.master.hostname={place.master.name}",
            "start",
            options=_OPENS,
        ),
        ready="Master has completed initialization",
    )
    return [[zookeeper], [*workers, master]]


@dataclass(frozen=True)
class Ycsb:
    """`site.ycsb.Client` with a workload of cloud/workloads, or its load phase."""

    workload: Workload
    records: int
    value_bytes: int
    operations: int
    threads: int
    warmup_operations: int = 0
    target_per_s: int | None = None
    tool: str = "YCSB"
    main_metric: tuple[str, str] = ("throughput_per_s", "1/s")
    layers: tuple[Layer, ...] = ("hdfs", "hbase")

    @property
    def test(self) -> str:
        """Such as ``ycsb-get``."""
        return f"ycsb-{self.workload}"

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Java, HBase and YCSB."""
        return executables("ycsb")

    @property
    def params(self) -> Mapping[str, str | int | float | bool]:
        """All but the size of a value, which is the sample's."""
        chosen: dict[str, str | int | float | bool] = {
            "records": self.records,
            "operations": self._count,
            "threads": self.threads,
            "warmup_operations": self.warmup_operations,
        }
        return chosen if self.target_per_s is None else {**chosen, "target_per_s": self.target_per_s}

    @property
    def _count(self) -> int:
        return self.records if self.workload == "load" else self.operations

    @property
    def stored_bytes(self) -> int:
        """Every replica of what is written, in HBase's log and in its store: the records, and all that is put later."""
        written = self.records + self.warmup_operations + self._count
        return 2 * hdfs.REPLICATION * written * self.value_bytes

    @property
    def seconds(self) -> float:
        """A few to start, and what two cores serve."""
        return 5 + self._count / 3000

    def preparation(self, place: Place, logs: Path) -> Mapping[str, Client]:
        """A table; its records, unless loading them is measured; and operations that are not counted."""
        regions = str(_REGIONS_PER_SERVER * len(place.workers))
        main = "org.rocelab.cloud.hbase.Tables"
        make = java(256, hdfs.classpath(place), main, _TABLE, regions, str(len(place.workers)), options=_OPENS)
        if self.workload == "load":
            # Into an empty table, each time.
            return {f"table for {logs.name}": Client(make)}
        steps = {
            "table": Client(make),
            f"records {self.records} {self.value_bytes}": self._run(place, None, "mix", self.records, load=True),
        }
        if self.warmup_operations:
            steps[f"warm-up {self.workload}"] = self._run(
                place, None, self.workload, self.warmup_operations, load=False
            )
        return steps

    def client(self, place: Place, logs: Path) -> Client:
        """The measured run. Its histograms are kept beside the log."""
        load = self.workload == "load"
        return self._run(place, logs, "mix" if load else self.workload, self._count, load=load)

    def _run(self, place: Place, logs: Path | None, workload: str, count: int, *, load: bool) -> Client:
        properties: dict[str, object] = {
            "table": _TABLE,
            "recordcount": self.records,
            "operationcount": count,
            "fieldcount": 1,
            "fieldlength": self.value_bytes,
            "measurementtype": "hdrhistogram",
            "hdrhistogram.percentiles": ",".join(_PERCENTILES),
        }
        if logs is not None:
            properties |= {"hdrhistogram.fileoutput": "true", "hdrhistogram.output.path": f"{logs}-"}
        chosen = [part for name, value in properties.items() for part in ("-p", f"{name}={value}")]
        target = [] if self.target_per_s is None or logs is None else ["-target", str(self.target_per_s)]
        return Client(
            java(
                512,
                hdfs.classpath(place),
                "site.ycsb.Client",
                *("-load" if load else "-t", "-P", str(workload_file(workload)), *chosen),
                *("-threads", str(self.threads), *target, "-db", "org.rocelab.cloud.hbase.Binding"),
                options=_OPENS,
            )
        )

    def read(self, place: Place, seen: Surroundings) -> CloudReading:  # noqa: ARG002 -- as in CloudMethod
        """Its summary, if every operation was carried out and returned OK."""
        rows = list(_rows(seen.output))
        if seen.output.exit_status != 0 or not rows:
            raise ToolError(f"YCSB {describe_exit(seen.output.exit_status)}: {last_words(seen.output)}")
        found = {(operation, name): value for operation, name, value in rows}
        operations = sorted({operation for operation, name, _ in rows if name == "Return=OK"})
        failed = [
            f"{value:g} {op} {name}" for op, name, value in rows if name.startswith("Return=") and name != "Return=OK"
        ]
        if failed:
            raise ToolError(f"not every operation was OK: {', '.join(failed)}: {last_words(seen.output)}")
        # YCSB counts a read-modify-write without its outcome, and the read and the update that it
        # is each with theirs.
        modified = found.get((_MODIFY, "Operations"), 0.0)
        done = sum(found[op, "Return=OK"] for op in operations) - modified
        if modified > min(found.get((op, "Return=OK"), 0.0) for op in ("READ", "UPDATE")) or done != self._count:
            raise ToolError(f"{done:g} operations were OK instead of {self._count}")
        values = [Value(*self.main_metric, "mean", found["OVERALL", "Throughput(ops/sec)"])]
        for operation in (*operations, _MODIFY) if modified else operations:
            values += _latencies(operation, found)
        return CloudReading(tuple(values), {"run_s": found["OVERALL", "RunTime(ms)"] / 1000})

    def follow_up(self, place: Place, reading: CloudReading) -> Client | None:  # noqa: ARG002 -- as in CloudMethod
        """No other client has to agree."""
        return None


def _rows(output: Output) -> Iterator[tuple[str, str, float]]:
    """Lines such as ``[READ], AverageLatency(us), 1234.5``."""
    for line in output.stdout.splitlines():
        matched = re.fullmatch(r"\[([A-Z-]+)\], ([^,]+), ([-\d.E]+)", line.strip())
        if matched:
            yield matched[1], matched[2], float(matched[3])


def _latencies(operation: str, found: Mapping[tuple[str, str], float]) -> Iterator[Value]:
    metric = f"{operation.lower().replace('-', '_')}_latency_us"
    if (operation, "AverageLatency(us)") not in found:
        raise ToolError(f"YCSB reports no latency of {operation}")
    yield Value(metric, "us", "mean", found[operation, "AverageLatency(us)"])
    for (of, name), value in found.items():
        matched = re.fullmatch(r"([\d.]+)(?:st|nd|rd|th)?PercentileLatency\(us\)", name)
        if of == operation and matched and matched[1] in _PERCENTILES:
            yield Value(metric, "us", _PERCENTILES[matched[1]], value)
