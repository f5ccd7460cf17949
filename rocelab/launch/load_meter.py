"""How much of the processors others take while a step runs, read from /proc.

Others have what is neither idle nor ours. Ours is rocelab, the processes of its fabric, and all
they start. CPU time of those that have ended is in the `cutime` of the process that waited for
them, so the sum over the family misses nothing. Of the time that the kernel spends on packets, all
is ours:

- Where the kernel counts interrupts apart from processes (CONFIG_IRQ_TIME_ACCOUNTING), its columns `irq` and `softirq`
  are taken off. Where that is not known, too: others are then found to take too little rather than too much.
- Where it does not, the time of interrupts is within that of the program they interrupted, and is not taken off again.
  The threads that take over (`ksoftirqd`, `napi`) count as ours.

Field numbers: proc_pid_stat(5) and proc_stat(5). /proc counts in ticks of 10 ms, which over 0.25 s is 0.04 cores.
A look takes 0.2 ms among a hundred processes, and one for names 1 ms. It runs on hosts as well, so it imports nothing
of rocelab.
"""

from __future__ import annotations

import gzip
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

#: Seconds between two looks at every process of the machine, for the names of those that use most.
NAMES_EVERY_S: Final = 5.0
#: Seconds that are looked at, at least: a shorter step is judged with what went on before it,
#: because of the ticks.
WINDOW_MIN_S: Final = 0.25
#: How many names of other programs are told.
NAMES_KEPT: Final = 3
#: How often the family is read at most until two readings agree: a program may end just then.
_READINGS_MAX: Final = 4

#: linux/sched.h: a thread of the kernel.
_PF_KTHREAD: Final = 0x00200000
_STAT_BYTES_MAX: Final = 1 << 16


class _Process(NamedTuple):
    name: str
    parent: int
    is_kernel: bool
    own_ticks: int
    """Of its threads."""
    waited_ticks: int
    """Of the processes it has waited for."""
    start_ticks: int


class _Mark(NamedTuple):
    at_s: float
    idle_s: float
    steal_s: float
    interrupts_s: float
    family_s: float


class Taken(NamedTuple):
    """What others took during a step, in cores."""

    others_cores: float
    steal_cores: float
    cores: int
    """How many were looked at."""


class LoadMeter:
    """Looks at the machine at the beginning and the end of each step."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        root_pid: int | None = None,
        cores: Collection[int] | None = None,
        interrupts_apart: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root_pid` (this process) and all below it are ours. `cores`: which are looked at (all that we may use).

        And so is what has `mark` in its environment, once that is set: daemons of others start ranks of MPI.
        """
        self.mark: bytes | None = None
        self._proc = str(proc)
        self._root_pid = os.getpid() if root_pid is None else root_pid
        self._cores = frozenset(os.sched_getaffinity(0) if cores is None else cores)
        self._apart = _counts_interrupts_apart() if interrupts_apart is None else interrupts_apart
        self._clock = clock
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._family: set[int] = set()
        self._others: set[int] = set()
        self._marks: list[_Mark] = []
        self._named_at_s: float | None = None
        self._seen: dict[tuple[int, int], int] = {}
        self._by_name: Counter[str] = Counter()

    @property
    def cores(self) -> int:
        """How many are looked at."""
        return len(self._cores)

    def begin(self) -> None:
        """A step begins."""
        mark = self._mark()
        if mark is not None:
            self._marks.append(mark)

    def end(self) -> Taken | None:
        """The step has ended. None if it was the first and a short one, or if this system does not tell."""
        ended = self._mark()
        if ended is None:
            return None
        old_enough = [mark for mark in self._marks if ended.at_s - mark.at_s >= WINDOW_MIN_S]
        if not old_enough:
            return None
        begun = old_enough[-1]
        # What is older is not needed again.
        self._marks = [mark for mark in self._marks if mark.at_s >= begun.at_s]
        return self._between(begun, ended)

    def _between(self, begun: _Mark, ended: _Mark) -> Taken:
        wall_s = ended.at_s - begun.at_s
        idle_s, steal_s = ended.idle_s - begun.idle_s, ended.steal_s - begun.steal_s
        busy_s = self.cores * wall_s - idle_s - steal_s
        if self._apart:
            busy_s -= ended.interrupts_s - begun.interrupts_s
        others_s = busy_s - (ended.family_s - begun.family_s)
        return Taken(max(0.0, others_s) / wall_s, max(0.0, steal_s) / wall_s, self.cores)

    def note_names(self) -> None:
        """Between steps: look at all processes, if the last time was some seconds ago."""
        now_s = self._clock()
        if self._named_at_s is not None and now_s - self._named_at_s < NAMES_EVERY_S:
            return
        is_first = self._named_at_s is None
        self._named_at_s = now_s
        self._find_family()
        seen: dict[tuple[int, int], int] = {}
        for pid in self._others:
            process = self._process(pid)
            if process is None or process.is_kernel:
                continue
            identity = (pid, process.start_ticks)
            seen[identity] = process.own_ticks
            # What was there before the run counts from now on, what came later from its beginning.
            before = process.own_ticks if is_first else self._seen.get(identity, 0)
            self._by_name[process.name] += process.own_ticks - before
        self._seen = seen

    def top(self) -> Mapping[str, float]:
        """The other programs that used most so far: name to CPU seconds."""
        return {
            name: round(ticks / self._ticks_per_s, 2)
            for name, ticks in self._by_name.most_common(NAMES_KEPT)
            if ticks > 0
        }

    def _mark(self) -> _Mark | None:
        self._find_family()
        family_s = self._family_ticks() / self._ticks_per_s
        at_s = self._clock()
        idle = steal = interrupts = 0
        found = 0
        for line in _read(f"{self._proc}/stat").splitlines():
            if not line.startswith("cpu"):
                break
            label, *fields = line.split()
            if label == "cpu" or int(label[3:]) not in self._cores:
                continue
            ticks = [int(field) for field in fields]
            if len(ticks) < 8:
                return None
            idle, steal, interrupts = idle + ticks[3] + ticks[4], steal + ticks[7], interrupts + ticks[5] + ticks[6]
            found += 1
        if found < self.cores:
            return None
        per_s = self._ticks_per_s
        return _Mark(at_s, idle / per_s, steal / per_s, interrupts / per_s, family_s)

    def _find_family(self) -> None:
        """Sort the processes that are new into ours and others; only those are read."""
        try:
            alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208, many times a second
        except OSError:
            return
        self._family &= alive
        self._others &= alive
        new = {pid: process for pid in alive - self._family - self._others if (process := self._process(pid))}
        grown = True
        while grown:
            ours = {pid for pid, process in new.items() if self._is_ours(pid, process)}
            grown = bool(ours)
            self._family |= ours
            new = {pid: process for pid, process in new.items() if pid not in ours}
        self._others |= new.keys()

    def _is_ours(self, pid: int, process: _Process) -> bool:
        if process.is_kernel:
            kind, _, core = process.name.partition("/")
            return not self._apart and (kind == "napi" or (kind == "ksoftirqd" and int(core) in self._cores))
        return pid == self._root_pid or process.parent in self._family or self._is_marked(pid)

    def _is_marked(self, pid: int) -> bool:
        # Split at its ends: a value may have the mark in it.
        return self.mark is not None and self.mark in _read_bytes(f"{self._proc}/{pid}/environ").split(b"\0")

    def _family_ticks(self) -> int:
        """CPU time of the family, read until it is twice the same: a process may end meanwhile."""
        last = -1
        for _ in range(_READINGS_MAX):
            processes = [self._process(pid) for pid in sorted(self._family, reverse=True)]
            total = sum(process.own_ticks + process.waited_ticks for process in processes if process is not None)
            if total == last:
                break
            last = total
        return last

    def _process(self, pid: int) -> _Process | None:
        # The name may have spaces and brackets in it.
        before, _, behind = _read(f"{self._proc}/{pid}/stat").rpartition(")")
        fields = behind.split()
        if len(fields) < 20:
            return None
        return _Process(
            name=before.partition("(")[2],
            parent=int(fields[1]),
            is_kernel=bool(int(fields[6]) & _PF_KTHREAD),
            own_ticks=int(fields[11]) + int(fields[12]),
            waited_ticks=int(fields[13]) + int(fields[14]),
            start_ticks=int(fields[19]),
        )


def _read(path: str) -> str:
    return _read_bytes(path).decode("utf-8", "replace")


def _read_bytes(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _STAT_BYTES_MAX)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _counts_interrupts_apart() -> bool:
    """Whether the kernel says so, or does not say."""
    for path in (Path("/proc/config.gz"), Path(f"/boot/config-{platform.release()}")):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        return b"CONFIG_IRQ_TIME_ACCOUNTING=y" in text
    return True
