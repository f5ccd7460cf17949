"""What runs: unmodified programs of perftest, and MPI."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocelab.fabric.base import Running
from rocelab.launch import mpi
from rocelab.tools.interconnects import urxe

from .faults import Fault
from .scene import LINK, PORT, Scene
from .transports import IWARP, ROCE_V1, ROCE_V2, Transport

RANKS: Final = 16
#: perftest's -u: the local ACK timeout, 1.07 s, so that all its retries outlast a peer that is
#: stopped.
ACK_TIMEOUT: Final = "18"
#: A peer that is gone is found out about sooner.
ACK_TIMEOUT_OF_KILLED: Final = "14"
#: What it prints then.
UNDER_WAY: Final = "under way"
ALLTOALL: Final = str(Path(__file__).with_name("alltoall.py"))


@dataclass(frozen=True, slots=True)
class Workload:
    """A program that runs for as long as asked."""

    id: str
    argv: Sequence[str] = ()
    """Of perftest; none: the alltoall of 16 ranks."""
    transport: Transport = ROCE_V2

    @property
    def is_mpi(self) -> bool:
        """Whether it is the alltoall."""
        return not self.argv

    @property
    def word(self) -> str:
        """What its processes are found by."""
        return ALLTOALL if self.is_mpi else self.argv[0]

    def is_under_way(self, scene: Scene, programs: Sequence[Running]) -> bool:
        """Whether it has got beyond its start, in which other things than urxe could fail."""
        return bool(scene.victims()) and (not self.is_mpi or UNDER_WAY in programs[0].output()[0])

    def _wrapper(self, fault: Fault) -> list[str]:
        """What gives programs their devices."""
        has_loss = fault.loss_percent > 0 and not self.transport.over_tcp
        loss = ["--loss", f"{fault.loss_percent:g}%"] if has_loss else []
        return [urxe().name, "run", *self.transport.options, *loss, "--"]

    @contextlib.contextmanager
    def running(self, scene: Scene, fault: Fault, seconds: float) -> Iterator[Sequence[Running]]:
        """Start it; the processes that have to end, the one to wait for first."""
        start = self._start_mpi if self.is_mpi else self._start_perftest
        with start(scene, fault, seconds) as programs:
            yield programs

    @contextlib.contextmanager
    def _start_perftest(self, scene: Scene, fault: Fault, seconds: float) -> Iterator[Sequence[Running]]:
        client_node, server_node = scene.fabric.nodes[:2]
        transport = self.transport
        device = f"urxe_{server_node.interfaces[LINK]}"
        argv = [*self._wrapper(fault), *self.argv, "-d", device, *transport.perftest]
        if not transport.over_tcp:
            argv += ["-u", ACK_TIMEOUT if fault.survived else ACK_TIMEOUT_OF_KILLED]
        # An end that has lost its peer has to find out before its time is up.
        seconds = seconds if fault.survived else 3 * seconds + fault.extra_s
        argv += ["-F", "-D", f"{max(1, round(seconds))}", "-f", "0"]
        server = scene.launcher.start(server_node, argv, env=fault.env)
        programs = [server]
        try:
            scene.launcher.wait_until_listening(server_node, server, PORT, protocol="tcp", timeout_s=20.0)
            if fault.before is not None:
                fault.before(scene)
            programs.insert(0, scene.launcher.start(client_node, [*argv, server_node.addresses[LINK]]))
            yield programs
        finally:
            for program in programs:
                program.stop()

    @contextlib.contextmanager
    def _start_mpi(self, scene: Scene, fault: Fault, seconds: float) -> Iterator[Sequence[Running]]:
        kind, transport = mpi.transport("soft-roce", "openmpi-ucx")
        implementation = mpi.own(kind)
        nodes = scene.fabric.nodes
        job = mpi.Job(
            argv=[str(implementation.folder / "python"), ALLTOALL, f"{seconds:g}"],
            hosts=[node.name for node in nodes],
            interfaces=[node.interfaces[LINK] for node in nodes],
            ranks_per_node=RANKS // len(nodes),
            wrapper=self._wrapper(fault),
        )
        env = {**mpi.environment(implementation, job, transport), "OMPI_MCA_mpi_yield_when_idle": "1", **fault.env}
        with scene.launcher.remote_shell(env) as shell:
            argv = mpi.command(implementation, job, shell)
            program = scene.launcher.start(nodes[0], argv, env={**env, **shell.env})
            try:
                yield [program]
            finally:
                program.stop()


WORKLOADS: Final[Sequence[Workload]] = (
    Workload("ib_send_bw", ["ib_send_bw"]),
    Workload("ib_send_bw -b", ["ib_send_bw", "-b"]),
    Workload("ib_write_bw -q 200", ["ib_write_bw", "-q", "200", "-s", "8192"]),
    Workload("MPI Alltoall of 16"),
    Workload("ib_send_bw over v1", ["ib_send_bw"], ROCE_V1),
    Workload("ib_write_bw -q 200 over v1", ["ib_write_bw", "-q", "200", "-s", "8192"], ROCE_V1),
    Workload("ib_send_bw over iWARP", ["ib_send_bw"], IWARP),
    Workload("ib_write_bw -q 50 over iWARP", ["ib_write_bw", "-q", "50", "-s", "8192"], IWARP),
    Workload("ib_read_bw over iWARP", ["ib_read_bw"], IWARP),
)
