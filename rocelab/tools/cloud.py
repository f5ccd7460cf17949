"""HDFS, HBase and Spark: what their daemons and clients are to the rest of rocelab.

A system is layers of daemons on the nodes of one link (HDFS; HBase on that; Spark on that). A method is a client
program that measures one thing on a system and prints what it found as a line of JSON (cloud/core), or in its own
words (YCSB). Nothing here starts anything: `rocelab.study.clouds` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from rocelab.programs import fetched, remedy, workloads
from rocelab.tools.base import Executable, Output, ToolError, Value, describe_exit, last_words

CloudTest = Literal["testdfsio", "ycsb", "terasort", "shuffle"]
Layer = Literal["hdfs", "yarn", "hbase", "spark"]

#: On every node: a file system of its own in memory, gone with the node however rocelab ends.
NODE_FOLDER: Final = "/dev/shm/rocelab"  # noqa: S108 -- of the node, see rocelab.fabric.keeper.node
#: There, what Java unpacks and spills.
TEMPORARY: Final = f"{NODE_FOLDER}/temporary"
REPORT_MARK: Final = "rocelab-cloud "
PHASE_MARK: Final = "rocelab-phase "
_REPORT_VERSION = 1
_REASON_MAX: Final = 500


def folder() -> Path:
    """Where `make setup-cloud` puts the jars."""
    return fetched() / "cloud"


def workload_file(workload: str) -> Path:
    """What YCSB is told of a workload."""
    return workloads() / f"{workload}.properties"


#: The jar that stands for all of its class path, and tells the version.
_JARS: Final[Mapping[str, str]] = {
    "hdfs": "hadoop/jars/hadoop-hdfs-",
    "ycsb": "hadoop/jars/core-",
    "spark": "spark/jars/spark-core_2.13-",
}


def executables(jar: str) -> tuple[Executable, ...]:
    """A jar and Java."""
    stem = folder() / _JARS[jar]
    found = next(iter(sorted(stem.parent.glob(f"{stem.name}[0-9]*.jar"))), None)
    version = None if found is None else found.stem.removeprefix(stem.name)
    name = str(stem) + "*.jar" if found is None else str(found)
    return (
        Executable(name, remedy=remedy("make setup-cloud", "ROCELAB_PROGRAMS"), is_read=True, known_version=version),
        Executable("java", package="openjdk-17-jdk-headless"),
    )


@dataclass(frozen=True, slots=True)
class Host:
    """A node, as the others see it over the link of a system."""

    index: int
    node: str
    """The node's own name."""
    name: str
    """Its name on the link."""
    address: str
    interface: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a system runs: on these nodes, over this link. The first node has the masters and the clients."""

    hosts: tuple[Host, ...]
    link: str
    configuration: Path
    """A folder for the system's files of settings, which all nodes see."""

    @property
    def master(self) -> Host:
        """The first node."""
        return self.hosts[0]

    @property
    def workers(self) -> tuple[Host, ...]:
        """The other nodes."""
        return self.hosts[1:]


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program that stays, and when it is up: once a text stood in its output so many times."""

    name: str
    host: Host
    argv: tuple[str, ...]
    ready: str = ""
    """A regular expression; empty: nothing to wait for."""
    ready_count: int = 1
    before: tuple[str, ...] = ()
    """A command to run to its end first, such as one that formats a file system."""


@dataclass(frozen=True, slots=True)
class Client:
    """A program that measures, and ends. It runs on the first node."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What left the nodes during a phase of a client: bytes by node at moments, which are counted from its start."""

    phase: str
    at_s: tuple[float, ...]
    sent_bytes: tuple[tuple[int, ...], ...]
    """At each moment: since the daemons were started, in the order of the nodes."""

    @property
    def total_bytes(self) -> int:
        """By all nodes together."""
        return sum(self.sent_bytes[-1]) - sum(self.sent_bytes[0]) if self.sent_bytes else 0


@dataclass(frozen=True, slots=True)
class CloudReading:
    """What a good run says."""

    values: tuple[Value, ...]
    params: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What was seen of a client's run from outside."""

    output: Output
    traffic: tuple[Traffic, ...]
    stored_bytes: tuple[int, ...]
    """Of blocks that each DataNode wrote meanwhile, in the order of the workers."""


class CloudMethod(Protocol):
    """How a client measures one thing."""

    @property
    def test(self) -> str:
        """The test, as samples state it."""

    @property
    def tool(self) -> str:
        """The program's name, as samples state it."""

    @property
    def main_metric(self) -> tuple[str, str]:
        """The metric that the test is about, and its unit."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """What it needs, the lowest first."""

    @property
    def executables(self) -> tuple[Executable, ...]:
        """All it needs."""

    @property
    def params(self) -> Mapping[str, str | int | float | bool]:
        """What was chosen."""

    @property
    def stored_bytes(self) -> int:
        """What lies on all nodes together at its end, in memory, about."""

    @property
    def seconds(self) -> float:
        """About how long it takes once the system is up, for planning only."""

    def preparation(self, place: Place, logs: Path) -> Mapping[str, Client]:
        """What has to have run on the system once before, by names that tell the same preparation."""

    def client(self, place: Place, logs: Path) -> Client:
        """The program; files that it leaves begin with the path `logs`."""

    def read(self, place: Place, seen: Surroundings) -> CloudReading:
        """The values, or ToolError if this was not a good run."""

    def follow_up(self, place: Place, reading: CloudReading) -> Client | None:
        """Another program that has to agree, if there is one; it reports checks alone."""


def java(
    heap_mb: int, classpath: Sequence[str], main: str, *arguments: str, options: Sequence[str] = ()
) -> tuple[str, ...]:
    """A Java program on a node, whose temporary files stay on it."""
    return (
        *("sh", "-c", f'mkdir -p {TEMPORARY} && cd {NODE_FOLDER} && exec "$@"', "sh"),
        *("java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true"),
        *(f"-Djava.io.tmpdir={TEMPORARY}", *options, "-cp", ":".join(classpath), main, *arguments),
    )


def report(tool: str, output: Output) -> CloudReading:
    """What a program of cloud/ printed, if all of its checks passed. ToolError says which did not."""
    line = next((each for each in reversed(output.stdout.splitlines()) if each.startswith(REPORT_MARK)), None)
    if line is None:
        raise ToolError(f"{tool} {describe_exit(output.exit_status)} without a report: {reason(output)}")
    try:
        data: dict[str, Any] = json.loads(line.removeprefix(REPORT_MARK))
        if data["version"] != _REPORT_VERSION:
            raise ToolError(f"{tool} reports in version {data['version']} of the format: `make build` builds it anew")
        wrong = [f"{check['name']}: {check['found']}" for check in data["checks"] if not check["ok"]]
        values = tuple(Value(**value) for value in data["values"])
        params = dict(data["params"])
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(f"{tool} printed a report that cannot be read ({error})") from None
    if wrong:
        raise ToolError(f"{tool}: {'; '.join(wrong)}")
    if output.exit_status != 0:
        raise ToolError(f"{tool} {describe_exit(output.exit_status)}: {reason(output)}")
    return CloudReading(values, params)


def reason(output: Output) -> str:
    """Why a Java program failed: the last exception it names, for many lines of its log follow; else its last words."""
    thrown = [line for line in output.stderr.splitlines() if "Exception" in line and not line.startswith("\tat ")]
    return thrown[-1].strip()[:_REASON_MAX] if thrown else last_words(output)


def settings(values: Mapping[str, str | int]) -> str:
    """A file of settings as Hadoop and HBase read it."""
    lines = [f"  <property><name>{name}</name><value>{value}</value></property>" for name, value in values.items()]
    return "\n".join(['<?xml version="1.0"?>', "<configuration>", *lines, "</configuration>", ""])
