"""The level cloud: clients of HDFS, HBase and Spark, whose daemons are on one link at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.problems import Wrong
from rocelab.study.schema import DfsioTable, SparkTable, Study, YcsbTable
from rocelab.study.steps import CloudStep, Step
from rocelab.tools import hdfs, spark
from rocelab.tools.cloud import CloudMethod
from rocelab.tools.hbase import Ycsb
from rocelab.tools.hdfs import TestDfsio
from rocelab.tools.spark import Spark

SystemTable = TypeVar("SystemTable", DfsioTable, YcsbTable, SparkTable)


class _CloudLevel(Level[SystemTable]):
    """What the systems have in common."""

    turn = 3
    is_by_system = True

    @override
    def variants(self, test: SystemTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return f"for {test.test}", ("sockets",) if interconnect == peers.TCP else ()

    def methods(self, test: SystemTable, interconnect: str, variant: str, size_bytes: int) -> Iterator[CloudMethod]:
        """A method for each step of a size."""
        raise NotImplementedError

    @override
    def steps(self, study: Study, test: SystemTable, link: LinkProfile, repetition: int) -> Iterator[CloudStep]:
        taking_part = contestants(study, test)
        # No contestant always runs after the same neighbour.
        first = (study.seed + repetition) % len(taking_part)
        for size_bytes in test.every_size_bytes():
            for name, variant in taking_part[first:] + taking_part[:first]:
                for method in self.methods(test, name, variant, size_bytes):
                    yield CloudStep(
                        link=link,
                        interconnect=name,
                        variant=variant,
                        repetition=repetition,
                        time_limit_s=limit_s(study, method.seconds),
                        method=method,
                        nodes=study.nodes_of(test),
                        size_bytes=size_bytes,
                    )

    @override
    def round_of(self, at: int, step: Step) -> int:
        return at


class DfsioLevel(_CloudLevel[DfsioTable]):
    """TestDFSIO on HDFS."""

    @override
    def wrong(self, study: Study, at: int, test: DfsioTable) -> Iterator[Wrong]:
        yield from _too_few_workers(study, at, test)
        if any(size % (1 << 20) for size in test.every_size_bytes()):
            yield ("test", at, "sizes_bytes"), "TestDFSIO takes whole MiB (1048576 bytes)"

    @override
    def methods(self, test: DfsioTable, interconnect: str, variant: str, size_bytes: int) -> Iterator[CloudMethod]:
        yield TestDfsio(size_bytes, runner=test.runner)


class YcsbLevel(_CloudLevel[YcsbTable]):
    """YCSB's workloads on HBase."""

    @override
    def wrong(self, study: Study, at: int, test: YcsbTable) -> Iterator[Wrong]:
        yield from _too_few_workers(study, at, test)
        for workload in test.workloads:
            if test.workloads.count(workload) > 1:
                yield ("test", at, "workloads"), f"{workload} is there twice"
                return

    @override
    def methods(self, test: YcsbTable, interconnect: str, variant: str, size_bytes: int) -> Iterator[CloudMethod]:
        for workload in test.workloads:
            yield Ycsb(
                workload=workload,
                records=test.records,
                value_bytes=test.value_bytes,
                operations=test.operations,
                threads=test.threads,
                warmup_operations=test.warmup_operations,
                target_per_s=test.target_per_s,
            )


class SparkLevel(_CloudLevel[SparkTable]):
    """TeraSort and shuffles on Spark."""

    @override
    def variants(self, test: SparkTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return f"for {test.test}", tuple(spark.variants(interconnect))

    @override
    def methods(self, test: SparkTable, interconnect: str, variant: str, size_bytes: int) -> Iterator[CloudMethod]:
        yield Spark(test.test, interconnect, peers.name_of(variant), size_bytes)


def _too_few_workers(study: Study, at: int, test: DfsioTable | YcsbTable) -> Iterator[Wrong]:
    workers = study.nodes_of(test) - 1
    if workers < hdfs.REPLICATION:
        text = (
            f"HDFS keeps {hdfs.REPLICATION} replicas, each on a node of its own beside the first: {workers} are too few"
        )
        yield ("test", at, "nodes"), text
