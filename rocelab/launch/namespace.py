"""Starts programs on the nodes of an emulated fabric, by asking the node's keeper.

    launcher = NamespaceLauncher(fabric)
    server = launcher.start(fabric.nodes[1], ["iperf3", "-s", "-1"], log=log)
    launcher.wait_until_listening(fabric.nodes[1], server, 5201)
    client = launcher.start(fabric.nodes[0], ["iperf3", "-c", "node1"], log=log)
    print(client.wait(10.0).stdout, server.wait(1.0).cpu_s)

Output goes to unnamed files, so that reading it costs the measured programs nothing. When this process ends, in
whatever way, the keeper sees its end of the channel close and ends the program with everything it started.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Final, Literal

from rocelab.fabric.base import Entrance, Finished, LaunchError, Node, RemoteShell, Running
from rocelab.fabric.keeper import channel
from rocelab.launch import congestion, doors, kernel_tables, logs, network_counters, reception
from rocelab.launch.processors import threads_last, usable_cores
from rocelab.launch.starting import Started, start_on, start_request

#: What a program may write before it is stopped: a benchmark that loops on an error must not fill
#: the disk.
OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024
#: Longer than the keeper's own limits for stopping (SIGTERM, then SIGKILL until nothing is left).
STOP_LIMIT_S: Final = 20.0
#: linux/pidfd.h: to the process group that the program leads (Linux 6.9; before, the kernel refuses
#: the flag).
_PIDFD_SIGNAL_PROCESS_GROUP: Final = 1 << 2
_LOOK_EVERY_S: Final = 0.5
#: Below those that the kernel gives to clients (net.ipv4.ip_local_port_range).
_PORT_FIRST: Final = 18_000
_PORTS: Final = 12_000
_POLL_FIRST_S: Final = 0.0005
_POLL_MAX_S: Final = 0.01


class NamespaceLauncher:
    """A `rocelab.fabric.base.Launcher` for a fabric that can be entered."""

    def __init__(self, fabric: Entrance) -> None:
        self._fabric = fabric
        self._next_port = _PORT_FIRST
        _allow_many_files()

    def start(
        self,
        node: Node,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
        log: Path | None = None,
    ) -> ProgramRunning:
        """See `rocelab.fabric.base.Launcher.start`."""
        request = start_request(node, argv, env=env, cores=cores)
        with contextlib.ExitStack() as unless_started:
            stdout = unless_started.enter_context(tempfile.TemporaryFile())
            stderr = unless_started.enter_context(tempfile.TemporaryFile())
            with Path(os.devnull).open("rb") as stdin:
                files = (stdin.fileno(), stdout.fileno(), stderr.fileno())
                started = start_on(self._fabric, node, request, files)
            unless_started.pop_all()
        return ProgramRunning(node, tuple(argv), started, stdout=stdout, stderr=stderr, log=log)

    def wait_until_listening(
        self,
        node: Node,
        running: Running,
        port: int,
        *,
        protocol: Literal["tcp", "udp"] = "tcp",
        timeout_s: float = 10.0,
    ) -> None:
        """See `rocelab.fabric.base.Launcher.wait_until_listening`."""
        deadline_s = time.monotonic() + timeout_s
        pause_s = _POLL_FIRST_S
        while not self.is_listening(node, port, protocol=protocol):
            finished = running.poll()
            if finished is not None:
                raise LaunchError(
                    f"{node.name}: the program ended (exit status {finished.exit_status}) before it listened on "
                    f"{protocol} port {port}\n{finished.stdout}{finished.stderr}".rstrip()
                )
            if time.monotonic() > deadline_s:
                said = "".join(running.output()).rstrip() or "(no output)"
                raise LaunchError(
                    f"{node.name}: nothing listened on {protocol} port {port} within {timeout_s:g} s\n{said}"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _POLL_MAX_S)

    def is_listening(self, node: Node, port: int, *, protocol: Literal["tcp", "udp"] = "tcp") -> bool:
        """See `rocelab.fabric.base.Launcher.is_listening`."""
        return kernel_tables.is_open(node.pid, port, protocol)

    def free_ports(self, node: Node, count: int) -> Sequence[int]:  # noqa: ARG002, no node has servers of others
        """See `rocelab.fabric.base.Launcher.free_ports`."""
        if self._next_port + count > _PORT_FIRST + _PORTS:
            self._next_port = _PORT_FIRST
        first, self._next_port = self._next_port, self._next_port + count
        return range(first, first + count)

    def core(self, node: Node, link: str) -> int:  # noqa: ARG002, none is nearer to a link than another
        """See `rocelab.fabric.base.Launcher.core`."""
        cores = usable_cores()
        return cores[node.index % len(cores)]

    def own_cores(self, node: Node, among: Sequence[Node]) -> Sequence[int]:
        """See `rocelab.fabric.base.Launcher.own_cores`."""
        cores = usable_cores()
        each = len(cores) // len(among)
        at = among.index(node)
        return cores[at * each : (at + 1) * each]

    def separate_cores(self, nodes: Sequence[Node], count: int) -> Sequence[Sequence[int]]:
        """See `rocelab.fabric.base.Launcher.separate_cores`: neighbours of the list, one for each node in turn."""
        cores, needed = threads_last(usable_cores()), count * len(nodes)
        if len(cores) < needed:
            raise LaunchError(f"{len(cores)} processors may be used here, and {needed} are needed")
        return [cores[at : needed : len(nodes)] for at in range(len(nodes))]

    def sent_bytes(self, node: Node, interface: str) -> int:
        """See `rocelab.fabric.base.Launcher.sent_bytes`."""
        try:
            return kernel_tables.sent_bytes(node.pid, interface)
        except OSError as error:
            raise LaunchError(f"{node.name}: its interfaces cannot be seen ({error.strerror})") from error
        except KeyError:
            raise LaunchError(f"{node.name} has no interface {interface}") from None

    def network_counters(self, node: Node, link: str) -> Mapping[str, int]:
        """See `rocelab.fabric.base.Launcher.network_counters`: the kernel's, as the interfaces have no hardware."""
        return network_counters.read(node.pid, node.interfaces[link])

    def choose_congestion_control(self, nodes: Sequence[Node], link: str, control: str) -> None:
        """See `rocelab.fabric.base.Launcher.choose_congestion_control`."""
        congestion.change_routes(self, nodes, link, control)

    def change_interfaces(
        self, nodes: Sequence[Node], link: str, wanted: Sequence[Mapping[str, int]]
    ) -> list[Mapping[str, int]]:
        """See `rocelab.fabric.base.Launcher.change_interfaces`."""
        return reception.change_interfaces(self, nodes, link, wanted)

    def remote_shell(
        self, env: Mapping[str, str], cores: Mapping[str, Collection[int]] | None = None
    ) -> AbstractContextManager[RemoteShell]:
        """See `rocelab.fabric.base.Launcher.remote_shell`."""
        return doors.open_doors(self._fabric, env, cores or {})


class ProgramRunning:
    """A `rocelab.fabric.base.Running`: one program, until its keeper has reported how it ended."""

    def __init__(
        self,
        node: Node,
        argv: tuple[str, ...],
        started: Started,
        *,
        stdout: IO[bytes],
        stderr: IO[bytes],
        log: Path | None,
    ) -> None:
        self.pid = started.pid
        self._node = node
        self._argv = argv
        self._keeper = started.keeper
        self._handle = started.handle
        self._stdout = stdout
        self._stderr = stderr
        self._log = log
        self._started_at = logs.timestamp()
        self._finished: Finished | None = None
        self._loss: str | None = None

    def poll(self) -> Finished | None:
        """See `rocelab.fabric.base.Running.poll`."""
        if self._finished is None and self._readable(0.0):
            self._conclude()
        return self._finished

    def wait(self, timeout_s: float) -> Finished:
        """See `rocelab.fabric.base.Running.wait`."""
        deadline_s = time.monotonic() + timeout_s
        while self._finished is None:
            left_s = deadline_s - time.monotonic()
            if self._readable(max(0.0, min(left_s, _LOOK_EVERY_S))):
                return self._conclude()
            if left_s <= 0:
                return self._end(f"time limit of {timeout_s:g} s", timed_out=True)
            if self._output_bytes() > OUTPUT_BYTES_MAX:
                return self._end(f"more than {OUTPUT_BYTES_MAX // 2**20} MiB of output")
        return self._finished

    def stop(self) -> Finished:
        """See `rocelab.fabric.base.Running.stop`."""
        if (finished := self.poll()) is not None:
            return finished
        return self._end("stop was asked for")

    def signal(self, number: int) -> None:
        """See `rocelab.fabric.base.Running.signal`."""
        if self._finished is not None or self._signal_at_once(number):
            return
        # It may have ended this moment: then no process reads the request.
        with contextlib.suppress(OSError):
            channel.send(self._keeper, {"op": "signal", "number": number})

    def _signal_at_once(self, number: int) -> bool:
        """Without the keeper, which may wait for a processor for seconds among hundreds of busy programs."""
        if self._handle is None:
            return False
        try:
            signal.pidfd_send_signal(self._handle, number, None, _PIDFD_SIGNAL_PROCESS_GROUP)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return True

    def output(self) -> tuple[str, str]:
        """See `rocelab.fabric.base.Running.output`."""
        if self._finished is not None:
            return self._finished.stdout, self._finished.stderr
        if self._loss is not None:
            raise LaunchError(self._loss)
        return _text(self._stdout), _text(self._stderr)

    def _end(self, because: str, *, timed_out: bool = False) -> Finished:
        # It may have ended this moment: its report is then waiting, and no process reads the
        # request.
        with contextlib.suppress(OSError):
            channel.send(self._keeper, {"op": "stop"})
        if not self._readable(STOP_LIMIT_S):
            raise self._lost("it cannot be stopped")
        return self._conclude(because, timed_out=timed_out)

    def _lost(self, why: str) -> LaunchError:
        """Give up on the program: release what it held here, and say what it had written."""
        stderr = _text(self._stderr).rstrip()
        self._release()
        said = f"\n{stderr}" if stderr else ""
        self._loss = f"{self._node.name}: {self._argv[0]} (pid {self.pid}) is lost: {why}{said}"
        return LaunchError(self._loss)

    def _release(self) -> None:
        for held in (self._keeper, self._stdout, self._stderr):
            held.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _readable(self, timeout_s: float) -> bool:
        if self._loss is not None:
            raise LaunchError(self._loss)
        poller = select.poll()
        poller.register(self._keeper.fileno(), select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def _output_bytes(self) -> int:
        return os.fstat(self._stdout.fileno()).st_size + os.fstat(self._stderr.fileno()).st_size

    def _conclude(self, because: str | None = None, *, timed_out: bool = False) -> Finished:
        report = channel.receive(self._keeper)
        if report is None:
            raise self._lost("its node went away")
        stdout, stderr = _text(self._stdout), _text(self._stderr)
        self._release()
        if report["survivors"]:
            because = f"{because or 'it ended'}; {report['survivors']} of its processes cannot be killed"
        self._finished = Finished(
            exit_status=int(report["exit_status"]),
            stdout=stdout,
            stderr=stderr,
            wall_s=float(report["wall_s"]),
            cpu_user_s=float(report["cpu_user_s"]),
            cpu_system_s=float(report["cpu_system_s"]),
            timed_out=timed_out,
            stopped_because=because,
        )
        if self._log is not None:
            logs.append(self._log, self._node.name, self._argv, self._started_at, self._finished)
        return self._finished


def _text(file: IO[bytes]) -> str:
    """Everything written so far, at most OUTPUT_BYTES_MAX bytes, without moving the writer's position."""
    return os.pread(file.fileno(), OUTPUT_BYTES_MAX, 0).decode(errors="replace")


def _allow_many_files() -> None:
    """A program takes four open files here, a full mesh has hundreds of programs, and the usual limit is 1024.

    The programs keep the limit that they had: their keepers were there before.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
