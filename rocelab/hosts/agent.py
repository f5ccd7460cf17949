"""The agent of a host: starts programs for rocelab, and ends everything when its connection ends.

It is sent to the host when a session begins (`bundle.py`) and runs from memory, with what Python 3.9 has and nothing
else. It reads requests from its standard input and writes answers to its standard output, a JSON object a line. Each
program has a keeper of its own, as on the nodes of an emulated fabric, and its output stays in memory until it ends.

A request has an ``id``, and so has its answer; ``error`` in an answer says why there is nothing else in it. What was
not asked for has ``event`` instead: ``hello`` at the beginning, ``output`` for a piece of a program's output, and
``ended``, after the last piece, for a program that is no more.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import platform
import select
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rocelab.fabric.keeper import channel, kernel, program
from rocelab.fabric.keeper.children import ChildWatch, reap
from rocelab.launch import kernel_tables, network_counters
from rocelab.launch.load_meter import LoadMeter

#: Version of the messages. Both sides come from the same rocelab, so another one means that
#: something is in between.
PROTOCOL = 1
#: The connection is taken for lost when nothing was heard of rocelab for so long. It says something
#: every few seconds.
SILENCE_MAX_S = 30.0
#: What a program may write before it is stopped: a benchmark that loops on an error must not fill
#: the memory.
OUTPUT_BYTES_MAX = 64 << 20
#: How much of a program's output one line has. Long lines are slow to put together.
_PIECE_BYTES = 32 << 10
#: How often a port that is waited for, and the amount of output, are looked at.
_LOOK_EVERY_S = 0.005
_LOOK_AT_OUTPUT_EVERY_S = 0.5
#: Folders of runs begin with this. What holds no lock on its folder any more was killed, and the
#: next run tidies up.
FOLDER_PREFIX = "rocelab-run-"
#: And so do the names that the folders of a run have on all of its hosts, which are links.
COMMON_PREFIX = "rocelab-all-"
#: In the environment of all programs of a run: which run.
MARK = "ROCELAB_RUN"
_LOCK = "lock"
#: How variables begin that describe a job step, and which of those describe the site.
_OF_STEPS = ("SLURM_", "SLURMD_", "PMI_", "PMIX_")
_KEPT = frozenset({"SLURM_CONF"})


def _found(name: str) -> str | None:
    """Where a program is; of a path also a file that is none."""
    return shutil.which(name) or (name if "/" in name and os.path.isfile(name) else None)  # noqa: PTH113, as all here


class _RefusedError(Exception):
    """What a request cannot have, in words for a person."""


class _Program:
    """One program and its keeper."""

    def __init__(self, number: int, keeper: socket.socket, files: Sequence[int]) -> None:
        self.number = number
        self.keeper = keeper
        self.stdout, self.stderr = files
        self.asked: int | None = None
        """The request that waits for its start."""
        self.pid = 0
        self.stopped_because: str | None = None
        self.ended = False

    def output_bytes(self) -> int:
        """How much it has written so far."""
        return os.fstat(self.stdout).st_size + os.fstat(self.stderr).st_size

    def close(self) -> None:
        """Let go of all that it has here."""
        self.keeper.close()
        channel.close_all((self.stdout, self.stderr))


class _Wait:
    """A request that is answered when a port is open."""

    def __init__(self, request: int, program_number: int, port: int, protocol: str, timeout_s: float) -> None:
        self.request = request
        self.program_number = program_number
        self.port = port
        self.protocol = protocol
        self.deadline_s = time.monotonic() + timeout_s


class Agent:
    """One session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._common: Path | None = None
        self._meter = LoadMeter()
        self._mark: dict[str, str] = {}
        self._watch = ChildWatch()
        self._poller = select.poll()
        self._poller.register(0, select.POLLIN)
        self._poller.register(self._watch, select.POLLIN)
        self._programs: dict[int, _Program] = {}
        self._by_file: dict[int, _Program] = {}
        self._waits: list[_Wait] = []
        self._input = b""
        self._heard_s = time.monotonic()
        self._looked_s = 0.0
        # Sessions of several users begin at different ones.
        self._next_port = int.from_bytes(os.urandom(2), "big")
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "alive": lambda _: {"time_s": time.time()},
            "start": self._start,
            "stop": self._stop,
            "signal": self._signal,
            "output": self._output,
            "await-port": self._await_port,
            "is-listening": lambda asked: {"listening": _is_open(asked["port"], asked["protocol"])},
            "free-ports": self._free_ports,
            "sent-bytes": _sent_bytes,
            "network-counters": _network_counters,
            "find": lambda asked: {"found": {name: _found(name) for name in asked["programs"]}},
            "write": self._write,
            "load-begin": self._load_begin,
            "load-end": lambda _: {"taken": self._meter.end()},
            "load-names": self._load_names,
            "load-top": lambda _: {"top": self._meter.top()},
            "name-folder": self._name_folder,
        }

    def serve(self) -> None:
        """Answer until rocelab is gone."""
        self._say({"event": "hello", **_introduction(self._folder)})
        while True:
            for file, _ in self._poller.poll(self._pause_ms()):
                if file == 0:
                    if not self._read():
                        return
                elif file == self._watch.fileno():
                    self._watch.clear()
                    reap()
                elif file in self._by_file:
                    self._hear_keeper(self._by_file[file])
            if time.monotonic() - self._heard_s > SILENCE_MAX_S:
                return
            self._look()

    def end_programs(self) -> None:
        """Stop everything and wait until it is gone: keepers end what they keep when they are let go of."""
        for each in self._programs.values():
            each.close()
        self._programs.clear()
        deadline_s = time.monotonic() + program.GRACE_S + program.KILL_LIMIT_S
        while time.monotonic() < deadline_s:
            reap()
            try:
                os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            time.sleep(_LOOK_EVERY_S)

    def _pause_ms(self) -> float:
        if self._waits:
            return _LOOK_EVERY_S * 1000
        return (_LOOK_AT_OUTPUT_EVERY_S if self._programs else SILENCE_MAX_S / 4) * 1000

    # What comes in

    def _read(self) -> bool:
        """Answer what has arrived; False at the end."""
        data = os.read(0, 1 << 16)
        if not data:
            return False
        self._heard_s = time.monotonic()
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            self._answer(json.loads(line))
        return True

    def _answer(self, asked: dict[str, Any]) -> None:
        try:
            answer = self._operations[asked["op"]](asked)
        except _RefusedError as refusal:
            answer = {"error": str(refusal)}
        except OSError as failure:
            where = f"{failure.filename}: " if failure.filename else ""
            answer = {"error": f"{where}{failure.strerror or failure}", "errno": failure.errno or 0}
        if answer is not None:
            self._say({"id": asked["id"], **answer})

    def _start(self, asked: dict[str, Any]) -> None:
        ours, theirs = channel.pair()
        files = [os.memfd_create(name) for name in ("stdout", "stderr")]
        request = {
            "argv": asked["argv"],
            "env": {**_environment(), "TMPDIR": str(self._folder), **self._mark, **asked["env"]},
            "cores": asked["cores"],
            "directory": str(self._folder),
        }
        if os.fork() == 0:
            ours.close()
            self._become_keeper(request, theirs.fileno(), files)
        theirs.close()
        started = _Program(int(asked["program"]), ours, files)
        started.asked = asked["id"]
        self._programs[started.number] = self._by_file[ours.fileno()] = started
        self._poller.register(ours, select.POLLIN)

    def _become_keeper(self, request: dict[str, Any], asker: int, files: Sequence[int]) -> NoReturn:
        """In a forked child: let go of all that is the agent's, or programs would outlive its connection."""
        try:
            self._watch.forget()
            for each in self._programs.values():
                each.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for target in (0, 1, 2):
                os.dup2(nothing, target)
            program.keep(request, [asker, nothing, *files])
        finally:
            os._exit(1)

    def _stop(self, asked: dict[str, Any]) -> dict[str, Any]:
        if (running := self._programs.get(asked["program"])) is not None:
            self._end(running, asked["because"])
        return {}

    @staticmethod
    def _end(running: _Program, because: str) -> None:
        if running.stopped_because is None:
            running.stopped_because = because
            # It may have ended this moment: then its report is on its way.
            with contextlib.suppress(OSError):
                channel.send(running.keeper, {"op": "stop"})

    def _signal(self, asked: dict[str, Any]) -> dict[str, Any]:
        if (running := self._programs.get(asked["program"])) is not None and running.pid:
            with contextlib.suppress(OSError):
                os.killpg(running.pid, asked["number"])
        return {}

    def _output(self, asked: dict[str, Any]) -> dict[str, Any]:
        running = self._programs.get(asked["program"])
        if running is None:
            raise _RefusedError("the program has ended")
        return {"stdout": _text(running.stdout), "stderr": _text(running.stderr)}

    def _await_port(self, asked: dict[str, Any]) -> None:
        wait = _Wait(asked["id"], asked["program"], asked["port"], asked["protocol"], asked["timeout_s"])
        if not self._settled(wait):
            self._waits.append(wait)

    def _free_ports(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Ports that are free now, in turn, so that a server that is slow to go is in no way."""
        first, count = asked["first"], asked["ports"]
        found: list[int] = []
        for _ in range(count):
            port = first + self._next_port % count
            self._next_port += 1
            if not _is_taken(port):
                found.append(port)
                if len(found) == asked["count"]:
                    return {"found": found}
        raise _RefusedError(f"of the ports {first} to {first + count - 1} only {len(found)} are free")

    def _write(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A piece of a file in the folder of the run."""
        path = self._folder / asked["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(base64.b64decode(asked["data"]))
        path.chmod(asked["mode"])
        return {"path": str(path)}

    def _name_folder(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Give the folder of the run a name that it has on all hosts, and the run's programs a mark to be known by.

        On a file system that hosts share the first of them has it, and its folder is there for all.
        """
        self._mark = {MARK: asked["name"]}
        self._meter.mark = f"{MARK}={asked['name']}".encode()
        place = self._folder.with_name(COMMON_PREFIX + asked["name"])
        try:
            place.symlink_to(self._folder)
            self._common = place
        except FileExistsError:
            if place.lstat().st_uid != os.getuid():
                raise _RefusedError(f"{place} is there, and another user's") from None
        return {"path": str(place)}

    def _load_begin(self, _asked: dict[str, Any]) -> dict[str, Any]:
        self._meter.begin()
        return {}

    def _load_names(self, _asked: dict[str, Any]) -> dict[str, Any]:
        self._meter.note_names()
        return {}

    def forget_name(self) -> None:
        """Remove what `_name_folder` has made."""
        if self._common is not None:
            self._common.unlink(missing_ok=True)

    # What goes on by itself

    def _look(self) -> None:
        """At ports that are waited for, and at programs that write too much."""
        self._waits = [wait for wait in self._waits if not self._settled(wait)]
        if time.monotonic() - self._looked_s > _LOOK_AT_OUTPUT_EVERY_S:
            self._looked_s = time.monotonic()
            for running in self._programs.values():
                if running.output_bytes() > OUTPUT_BYTES_MAX:
                    self._end(running, f"more than {OUTPUT_BYTES_MAX >> 20} MiB of output")

    def _settled(self, wait: _Wait) -> bool:
        if _is_open(wait.port, wait.protocol):
            self._say({"id": wait.request, "state": "open"})
        elif wait.program_number not in self._programs:
            self._say({"id": wait.request, "state": "ended"})
        elif time.monotonic() > wait.deadline_s:
            self._say({"id": wait.request, "state": "late"})
        else:
            return False
        return True

    def _hear_keeper(self, running: _Program) -> None:
        said = channel.receive(running.keeper)
        if said is not None and "started" in said:
            running.pid = said["started"]
            self._say({"id": running.asked, **said})
            return
        self._poller.unregister(running.keeper)
        del self._by_file[running.keeper.fileno()], self._programs[running.number]
        if said is not None and "refused" in said:
            self._say({"id": running.asked, **said})
        else:
            self._report(running, said)
        running.close()

    def _report(self, running: _Program, said: dict[str, Any] | None) -> None:
        """All that is left of a program."""
        for name, file in (("stdout", running.stdout), ("stderr", running.stderr)):
            for at in range(0, min(os.fstat(file).st_size, OUTPUT_BYTES_MAX), _PIECE_BYTES):
                piece = base64.b64encode(os.pread(file, _PIECE_BYTES, at)).decode()
                self._say({"event": "output", "program": running.number, "stream": name, "data": piece})
        lost = {"exit_status": -int(signal.SIGKILL), "lost": "its keeper was killed"}
        because = running.stopped_because
        self._say({"event": "ended", "program": running.number, **(said or lost), "stopped_because": because})

    @staticmethod
    def _say(message: dict[str, Any]) -> None:
        view = memoryview(json.dumps(message).encode() + b"\n")
        while view:
            view = view[os.write(1, view) :]


def _environment() -> dict[str, str]:
    """That of a login. What Slurm says of the agent's own job step is not true of programs, and mpirun believes it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_OF_STEPS) or name in _KEPT}


def _text(file: int) -> str:
    return os.pread(file, OUTPUT_BYTES_MAX, 0).decode(errors="replace")


def _sent_bytes(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"bytes": kernel_tables.sent_bytes("self", asked["interface"])}
    except KeyError:
        raise _RefusedError(f"there is no interface {asked['interface']}") from None


def _network_counters(asked: dict[str, Any]) -> dict[str, Any]:
    return {"found": network_counters.read("self", asked["interface"], asked["device"], asked["device_port"])}


def _is_open(port: int, protocol: str) -> bool:
    return kernel_tables.is_open("self", port, "tcp" if protocol == "tcp" else "udp")


def _is_taken(port: int) -> bool:
    """Whether a server could not listen on it, for any address. IPv6 counts where there is any."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                tried.bind(("", port))
        except OSError as failure:
            if failure.errno in (errno.EADDRINUSE, errno.EACCES):
                return True
    return False


def _introduction(folder: Path) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "name": platform.node(),
        "folder": str(folder),
        "python": sys.executable,
        "python_version": platform.python_version(),
        "machine": platform.machine(),
        "time_s": time.time(),
        "cores": sorted(os.sched_getaffinity(0)),
        "user": os.getuid(),
    }


def _make_folder() -> Path:
    """A folder of its own for this session, after what earlier ones left that were killed."""
    place = Path(tempfile.gettempdir())
    for left in place.glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            # Others may make folders of such names here, and links in them.
            found = left.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                continue
            lock = os.open(left / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
    for name in place.glob(f"{COMMON_PREFIX}*"):
        with contextlib.suppress(OSError):
            if name.lstat().st_uid == os.getuid() and name.is_symlink() and not name.exists():
                name.unlink()
    folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder


def main() -> NoReturn:
    """Be the agent until rocelab is gone. Nothing is left afterwards."""
    kernel.set_process_name("rocelab-agent")
    # Slurm and people end a session by these.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    try:
        folder = _make_folder()
    except OSError as failure:
        # Where no folder can be written, Python names those that it has tried.
        where = f"{failure.filename}: " if failure.filename else ""
        advice = "" if where else ". Let TMPDIR name a folder that can be written there, in the shell that ssh starts"
        print(json.dumps({"event": "refusal", "error": f"{where}{failure.strerror}{advice}"}), flush=True)  # noqa: T201
        sys.exit(1)
    agent = Agent(folder)
    try:
        agent.serve()
    except BrokenPipeError:
        pass
    except Exception:  # noqa: BLE001, ssh shows it at the other end
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        agent.end_programs()
        agent.forget_name()
        shutil.rmtree(folder, ignore_errors=True)
        # What is left to be written has no reader.
        os._exit(0)
