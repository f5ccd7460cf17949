"""What goes wrong: the networks, hosts and peers that a run has to live with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .scene import LINK, PORT, Scene
from .transports import IWARP, ROCE_V1, ROCE_V2, Transport

#: How long a link is down: shorter than what a program's retries last.
LINK_DOWN_S: Final = 1.0
STOPPED_S: Final = 5.0
#: Programs that compute, for each processor.
OVERSUBSCRIBED: Final = 8
TINY_BUFFER_BYTES: Final = 64 << 10
STRANGERS: Final = str(Path(__file__).with_name("strangers.py"))
EVERY: Final = (ROCE_V2, ROCE_V1, IWARP)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong during a run."""

    id: str
    #: How many packets are lost, percent.
    loss_percent: float = 0.0
    #: At the end to which things happen.
    env: Mapping[str, str] = field(default_factory=dict)
    #: What is done once its server listens.
    before: Callable[[Scene], None] | None = None
    #: What is done once the program is under way.
    act: Callable[[Scene], None] | None = None
    #: Whether the program must end well; else it has to say what was wrong.
    survived: bool = True
    #: How much later than without it a run may end, seconds.
    extra_s: float = 0.0
    #: Whether it makes sense where there are many ranks for each processor already.
    for_mpi: bool = True
    #: The transports for which it makes sense, and those of the short form.
    over: Sequence[Transport] = EVERY
    briefly_over: Sequence[Transport] = (ROCE_V2,)


def _link_down_and_up(scene: Scene) -> None:
    interface = scene.victim.interfaces[LINK]
    scene.on_victim("ip", "link", "set", interface, "down")
    time.sleep(LINK_DOWN_S)
    scene.on_victim("ip", "link", "set", interface, "up")


def _kill(scene: Scene) -> None:
    scene.signal("KILL")


def _kill_behind_a_dead_link(scene: Scene) -> None:
    """Nothing of its end gets out: the peer has a connection of which the other half is gone."""
    interface = scene.victim.interfaces[LINK]
    scene.on_victim("ip", "link", "set", interface, "down")
    scene.signal("KILL")
    time.sleep(LINK_DOWN_S)
    scene.on_victim("ip", "link", "set", interface, "up")


def _reset_connections(scene: Scene) -> None:
    scene.on_victim("ss", "--kill", "--tcp", "state", "established")


def _send_strangers(scene: Scene) -> None:
    """Have strangers at the listening port until the run is over."""
    stranger = scene.fabric.nodes[2]
    argv = [sys.executable, STRANGERS, scene.victim.addresses[LINK], str(PORT)]
    scene.started.append(scene.launcher.start(stranger, argv))


def _stop_and_continue(scene: Scene) -> None:
    scene.signal("STOP")
    time.sleep(STOPPED_S)
    scene.signal("CONT")


def _oversubscribe(scene: Scene) -> None:
    """Start programs that compute until the run is over."""
    for _ in range(OVERSUBSCRIBED * len(os.sched_getaffinity(0))):
        scene.started.append(scene.launcher.start(scene.victim, ["sh", "-c", "while :; do :; done"]))


FAULTS: Final[Sequence[Fault]] = (
    Fault("none"),
    Fault("loss 0.1 %", loss_percent=0.1, extra_s=5),
    Fault("loss 1 %", loss_percent=1, extra_s=10, briefly_over=EVERY),
    Fault("loss 5 %", loss_percent=5, extra_s=20),
    Fault("link down and up", act=_link_down_and_up, extra_s=10),
    Fault("peer killed", act=_kill, survived=False, extra_s=30, briefly_over=EVERY),
    Fault("peer stopped", act=_stop_and_continue, extra_s=STOPPED_S + 15),
    Fault(
        "tiny receive buffer",
        env={"URXE_RECEIVE_BUFFER": str(TINY_BUFFER_BYTES)},
        extra_s=20,
        # The buffers of TCP are the kernel's.
        over=(ROCE_V2, ROCE_V1),
    ),
    Fault("oversubscribed 8 times", act=_oversubscribe, extra_s=60, for_mpi=False),
    Fault(
        "killed, link dead",
        act=_kill_behind_a_dead_link,
        survived=False,
        extra_s=60,
        for_mpi=False,
        briefly_over=(),
    ),
    Fault(
        "connections reset",
        act=_reset_connections,
        survived=False,
        extra_s=30,
        over=(IWARP,),
        briefly_over=(IWARP,),
    ),
    Fault("strangers", before=_send_strangers, over=(IWARP,), briefly_over=(IWARP,)),
)
