"""HDFS: a NameNode on the first node, a DataNode on every other; and Hadoop's own TestDFSIO to measure it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rocelab.tools.base import Executable, ToolError
from rocelab.tools.cloud import (
    NODE_FOLDER,
    Client,
    CloudReading,
    Daemon,
    Layer,
    Place,
    Surroundings,
    executables,
    folder,
    java,
    report,
    settings,
)

#: What runs the tasks of a MapReduce job.
Runner = Literal["local", "yarn"]

REPLICATION: Final = 3
NAMENODE_PORT: Final = 8020
#: Its blocks are below this on every DataNode.
DATA_FOLDER: Final = f"{NODE_FOLDER}/hdfs"
_MIB: Final = 1 << 20
_WARMUP_MIB: Final = 32
#: Blocks of HDFS's own default size would be one a file here.
_BLOCK_BYTES: Final = 64 * _MIB
_LOGGING: Final = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %-5p %c{1}: %m%n
log4j.logger.BlockStateChange=WARN
"""


def classpath(place: Place) -> Sequence[str]:
    """Settings first, then the jars of Hadoop, HBase and YCSB."""
    return (str(place.configuration), f"{folder()}/hadoop/jars/*")


def files(place: Place) -> Mapping[str, str]:
    """The files of settings. Every daemon has its node to itself, and so the usual ports."""
    return {
        "core-site.xml": settings(
            {
                "fs.defaultFS": f"hdfs://{place.master.name}:{NAMENODE_PORT}",
                "hadoop.tmp.dir": f"{NODE_FOLDER}/hadoop",
            }
        ),
        "hdfs-site.xml": settings(
            {
                "dfs.replication": REPLICATION,
                "dfs.blocksize": _BLOCK_BYTES,
                "dfs.namenode.name.dir": f"file://{DATA_FOLDER}/name",
                "dfs.datanode.data.dir": f"file://{DATA_FOLDER}/data",
                "dfs.namenode.datanode.registration.ip-hostname-check": "false",
                "dfs.permissions.enabled": "false",
                # Of three DataNodes that do nothing yet, one counts as overloaded, and is left out
                # in silence.
                "dfs.namenode.redundancy.considerLoad": "false",
                "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
                "dfs.datanode.du.reserved": 0,
            }
        ),
        "mapred-site.xml": settings({"mapreduce.framework.name": "local", "mapreduce.local.map.tasks.maximum": 2}),
        "log4j.properties": _LOGGING,
        # The jars lack the web pages that the daemons want to serve.
        "webapps/hdfs/index.html": "",
        "webapps/datanode/index.html": "",
        "webapps/static/index.html": "",
    }


def daemons(place: Place) -> Sequence[Sequence[Daemon]]:
    """The DataNodes register as soon as there is a NameNode, so all are started at once."""
    path = classpath(place)
    namenode = "org.apache.hadoop.hdfs.server.namenode.NameNode"
    datanode = "org.apache.hadoop.hdfs.server.datanode.DataNode"
    workers = [
        Daemon(
            f"DataNode on {host.node}",
            host,
            java(256, path, datanode, f"-Ddfs.datanode.hostname={host.name}"),
        )
        for host in place.workers
    ]
    master = Daemon(
        f"NameNode on {place.master.node}",
        place.master,
        java(256, path, namenode),
        ready="registerDatanode: from ",
        ready_count=len(workers),
        before=java(128, path, namenode, "-format", "-nonInteractive"),
    )
    return [[*workers, master]]


@dataclass(frozen=True)
class TestDfsio:
    """`TestDFSIO -write` and `-read`: two map tasks, each with a file of its own."""

    __test__ = False  # not a test of ours, whatever pytest makes of the name

    file_bytes: int
    runner: Runner = "local"
    files: int = 2
    test: str = "testdfsio"
    tool: str = "TestDFSIO"
    main_metric: tuple[str, str] = ("write_mib_per_s", "MiB/s")

    @property
    def layers(self) -> tuple[Layer, ...]:
        """HDFS alone, or with YARN on it."""
        return ("hdfs",) if self.runner == "local" else ("hdfs", "yarn")

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Java and Hadoop."""
        return executables("hdfs")

    @property
    def params(self) -> Mapping[str, str | int | float | bool]:
        """How many files; their size is the sample's."""
        return {"files": self.files, "replication": REPLICATION, "runner": self.runner}

    @property
    def stored_bytes(self) -> int:
        """Every replica of every file."""
        return REPLICATION * self.files * self.file_bytes

    @property
    def seconds(self) -> float:
        """A few to start, and what two cores write."""
        start_s = 6 if self.runner == "local" else 30
        return start_s + self.files * self.file_bytes / (60 * _MIB)

    def preparation(self, place: Place, logs: Path) -> Mapping[str, Client]:  # noqa: ARG002 -- as in CloudMethod
        """A small run first, which wakes the DataNodes' code up."""
        return {"testdfsio": self._client(place, min(_WARMUP_MIB, self.file_bytes // _MIB))}

    def client(self, place: Place, logs: Path) -> Client:  # noqa: ARG002 -- as in CloudMethod
        """Write, look, read."""
        return self._client(place, self.file_bytes // _MIB)

    def _client(self, place: Place, file_mib: int) -> Client:
        main = "org.rocelab.cloud.hdfs.Dfsio"
        return Client(java(512, classpath(place), main, str(self.files), str(file_mib), str(REPLICATION)))

    def read(self, place: Place, seen: Surroundings) -> CloudReading:
        """What TestDFSIO reports, if every replica was really written and really went over the links."""
        reading = report(self.tool, seen.output)
        written = self.files * self.file_bytes
        if sum(seen.stored_bytes) < REPLICATION * written:
            found = " + ".join(f"{each:,}" for each in seen.stored_bytes)
            raise ToolError(f"the DataNodes hold {found} bytes, not {REPLICATION} times {written:,}")
        # The local runner is on the first node, which has no DataNode: from there to one DataNode,
        # on to the second and the third; and back from one of them. Tasks on YARN are beside
        # DataNodes, where the first replica goes and from where they read.
        times = REPLICATION + 1 if self.runner == "local" else REPLICATION - 1
        moved = sum(each.total_bytes for each in seen.traffic)
        if moved < times * written:
            raise ToolError(
                f"{moved:,} bytes left the nodes over {place.link}: less than {times} times {written:,} bytes, though "
                f"{REPLICATION} replicas were written and one was read"
            )
        return CloudReading(
            reading.values, {**reading.params, "stored_bytes": sum(seen.stored_bytes), "moved_bytes": moved}
        )

    def follow_up(self, place: Place, reading: CloudReading) -> Client | None:  # noqa: ARG002 -- as in CloudMethod
        """No other client has to agree."""
        return None
