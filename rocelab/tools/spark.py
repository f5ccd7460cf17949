"""Spark beside HDFS: the master and the driver on the first node, a worker with one executor on every other.

Shuffle blocks go over Spark's own Netty, or over UCX by the plugin of cloud/shuffle, which talks over TCP or over the
device of urxe: the same code, told by UCX_TLS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from rocelab.tools import hdfs
from rocelab.tools.base import Executable, ToolError, Value
from rocelab.tools.cloud import (
    NODE_FOLDER,
    TEMPORARY,
    Client,
    CloudReading,
    Daemon,
    Layer,
    Place,
    Surroundings,
    Traffic,
    executables,
    folder,
    java,
    report,
)
from rocelab.tools.interconnects import urxe, urxe_preload

SparkTest = Literal["terasort", "shuffle"]

MASTER_PORT: Final = 7077
RECORD_BYTES: Final = 100
#: In HDFS.
_FOLDER: Final = "/terasort"
_PARTS_PER_EXECUTOR: Final = 2
_SEED: Final = 1
#: What Spark itself asks for where it starts Java (org.apache.spark.launcher.JavaModuleOptions).
_OPENS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={module}=ALL-UNNAMED"
        for module in (
            *(f"java.base/java.{name}" for name in ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "util")),
            *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref"),
            *("java.base/sun.nio.ch", "java.base/sun.nio.cs", "java.base/sun.security.action"),
            "java.base/sun.util.calendar",
        )
    ),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
)

#: By interconnect and variant: what UCX is told; None where Spark moves the blocks by itself.
_UCX: Final = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
_TRANSPORTS: Final[Mapping[str, Mapping[str, Mapping[str, str] | None]]] = {
    "tcp": {"netty": None, "ucx": {**_UCX, "UCX_TLS": "tcp", "UCX_NET_DEVICES": "{interface}"}},
    "soft-roce": {"ucx": {**_UCX, "UCX_TLS": "rc_v", "UCX_NET_DEVICES": "urxe_{interface}:1"}},
}


def variants(interconnect: str) -> tuple[str, ...]:
    """How shuffle blocks can be moved over an interconnect."""
    return tuple(_TRANSPORTS.get(interconnect, ()))


def _home() -> Path:
    return folder() / "spark"


def daemons(place: Place) -> Sequence[Sequence[Daemon]]:
    """Workers keep asking until there is a master, so all are started at once."""
    path = (f"{_home()}/jars/*",)
    deploy = "org.apache.spark.deploy"
    options = (*_OPENS, f"-Dspark.home={_home()}")
    first = place.master
    workers = [
        Daemon(
            f"Worker on {host.node}",
            host,
            _with_home(
                host.name,
                java(
                    192,
                    path,
                    f"{deploy}.worker.Worker",
                    *("--host", host.name, "--cores", str(_PARTS_PER_EXECUTOR), "--memory", "1g"),
                    *("--webui-port", "0", "--work-dir", f"{NODE_FOLDER}/spark-work"),
                    f"spark://{place.master.name}:{MASTER_PORT}",
                    options=options,
                ),
            ),
        )
        for host in place.workers
    ]
    master = Daemon(
        f"Spark Master on {first.node}",
        first,
        _with_home(
            place.master.name,
            java(
                256,
                path,
                f"{deploy}.master.Master",
                *("--host", place.master.name, "--port", str(MASTER_PORT), "--webui-port", "0"),
                options=options,
            ),
        ),
        ready="Registering worker",
        ready_count=len(workers),
    )
    return [[*workers, master]]


def _with_home(host: str, argv: Sequence[str]) -> tuple[str, ...]:
    variables = {
        "SPARK_HOME": str(_home()),
        "SPARK_LOCAL_HOSTNAME": host,
        "SPARK_LOCAL_DIRS": f"{NODE_FOLDER}/spark",
        # It would look for this in the folders of a build of Spark.
        "SPARK_SCALA_VERSION": "2.13",
    }
    return ("env", *(f"{name}={value}" for name, value in variables.items()), *argv)


@dataclass(frozen=True)
class Spark:
    """TeraGen, TeraSort and TeraValidate in one application, or a shuffle alone."""

    test: SparkTest
    interconnect: str
    variant: str
    size_bytes: int
    """Of all records together."""
    tool: str = "Spark"
    layers: tuple[Layer, ...] = ("hdfs", "spark")

    @property
    def main_metric(self) -> tuple[str, str]:
        """The time of the sort, or of the shuffle."""
        return (f"{self.test}_s", "s")

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Java and Spark; Hadoop, for HDFS; and urxe, if it is what gives executors their device."""
        device = (urxe(),) if self.interconnect == "soft-roce" else ()
        return (*executables("spark"), *executables("hdfs"), *device)

    @property
    def records(self) -> int:
        """How many."""
        return self.size_bytes // RECORD_BYTES

    @property
    def params(self) -> Mapping[str, str | int | float | bool]:
        """Nothing but what the program reports."""
        return {}

    @property
    def stored_bytes(self) -> int:
        """One replica of what is sorted and of the result, and what is shuffled between."""
        return (3 if self.test == "terasort" else 1) * self.size_bytes

    @property
    def seconds(self) -> float:
        """A few to start, and what two cores sort."""
        return 12 + self.size_bytes / (10e6 if self.test == "terasort" else 60e6)

    def preparation(self, place: Place, logs: Path) -> Mapping[str, Client]:  # noqa: ARG002 -- as in CloudMethod
        """Each application starts executors of its own, so nothing would stay warm."""
        return {}

    def client(self, place: Place, logs: Path) -> Client:  # noqa: ARG002 -- as in CloudMethod
        """The driver."""
        workers = len(place.workers)
        parts = str(_PARTS_PER_EXECUTOR * workers)
        size = self.records if self.test == "terasort" else self.size_bytes
        arguments = [str(size), parts, str(workers), str(_SEED)]
        main = "ShuffleTest"
        if self.test == "terasort":
            main = "TeraSort"
            arguments.append(f"hdfs://{place.master.name}:{hdfs.NAMENODE_PORT}{_FOLDER}")
        options = [f"-D{name}={value}" for name, value in self._settings(place).items()]
        program = java(
            512, (f"{_home()}/jars/*",), f"org.rocelab.cloud.spark.{main}", *arguments, options=(*_OPENS, *options)
        )
        return Client(_with_home(place.master.name, program))

    def _settings(self, place: Place) -> Mapping[str, str]:
        chosen = {
            "spark.master": f"spark://{place.master.name}:{MASTER_PORT}",
            "spark.driver.host": place.master.name,
            "spark.ui.enabled": "false",
            "spark.executor.memory": "768m",
            "spark.executor.cores": str(_PARTS_PER_EXECUTOR),
            "spark.executor.extraJavaOptions": f"-XX:+UseSerialGC -XX:-UsePerfData -Djava.io.tmpdir={TEMPORARY}",
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            # What is sorted is random: to compress it would cost time and save nothing.
            "spark.shuffle.compress": "false",
            "spark.shuffle.spill.compress": "false",
            # Every executor takes part, and reducers are not put where most of their input is.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.shuffle.reduceLocality.enabled": "false",
            # One replica of what is sorted, as Hadoop's own TeraSort writes it: the network is for
            # the shuffle.
            "spark.hadoop.dfs.replication": "1",
            "spark.task.maxFailures": "1",
            "spark.stage.maxConsecutiveAttempts": "1",
        }
        ucx = _TRANSPORTS[self.interconnect][self.variant]
        if ucx is None:
            return chosen
        interface = place.master.interface
        variables = {name: value.replace("{interface}", interface) for name, value in ucx.items()}
        if self.interconnect == "soft-roce":
            # Spark starts the executors, so `urxe run` cannot.
            variables["LD_PRELOAD"] = urxe_preload()
        chosen["spark.plugins"] = "org.rocelab.cloud.shuffle.UcxShufflePlugin"
        return chosen | {f"spark.executorEnv.{name}": value for name, value in variables.items()}

    def read(self, place: Place, seen: Surroundings) -> CloudReading:
        """What the program reports, if what it says that executors fetched went over the link."""
        reading = report(self.tool, seen.output)
        metric = f"{self.test}_remote_bytes"
        remote = next((value.value for value in reading.values if value.metric == metric), 0.0)
        phase = next((each for each in seen.traffic if self._is_measured(each)), None)
        moved = sum(each.total_bytes for each in seen.traffic)
        if phase is None or moved < remote:
            raise ToolError(f"executors report {remote:,.0f} bytes from others, but {moved:,} left the nodes")
        return CloudReading((*reading.values, *_throughput(place, phase)), {**reading.params, "moved_bytes": moved})

    def _is_measured(self, phase: Traffic) -> bool:
        return phase.phase.startswith("TeraSort" if self.test == "terasort" else "Spark shuffles")

    def follow_up(self, place: Place, reading: CloudReading) -> Client | None:
        """Hadoop's TeraValidate has to find the same."""
        if self.test != "terasort":
            return None
        main = "org.rocelab.cloud.hdfs.HadoopValidate"
        arguments = (f"{_FOLDER}/sorted", f"{_FOLDER}/validated", str(reading.params["checksum"]))
        return Client(java(512, hdfs.classpath(place), main, *arguments))


def _throughput(place: Place, phase: Traffic) -> list[Value]:
    """What left each worker while it was measured: over time, on average, and at most."""
    made: list[Value] = []
    means, peaks = [], []
    steps = list(zip(phase.at_s, phase.at_s[1:], phase.sent_bytes, phase.sent_bytes[1:], strict=False))
    for host in place.workers:
        rates = []
        for before_s, after_s, before, after in steps:
            rate = (after[host.index] - before[host.index]) * 8 / (after_s - before_s) / 1e6
            rates.append(rate)
            middle_s = (before_s + after_s) / 2 - phase.at_s[0]
            made.append(Value("node_sent_mbps", "Mbps", f"{host.node}@{middle_s:.2f}", rate))
        if not rates:
            raise ToolError(f"'{phase.phase}' was over before what leaves the nodes could be seen: sort more")
        duration_s = phase.at_s[-1] - phase.at_s[0]
        means.append((phase.sent_bytes[-1][host.index] - phase.sent_bytes[0][host.index]) * 8 / duration_s / 1e6)
        peaks.append(max(rates))
    made.append(Value("node_throughput_mbps", "Mbps", "mean", sum(means) / len(means)))
    made.append(Value("node_throughput_mbps", "Mbps", "max", max(peaks)))
    made.append(Value("total_throughput_mbps", "Mbps", "mean", sum(means)))
    return made
