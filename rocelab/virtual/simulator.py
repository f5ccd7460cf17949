"""Runs the simulator, and reads what it says."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rocelab.tools.base import Executable, Output, ToolError, last_words, own_program
from rocelab.virtual.under_way import UnderWay

_PROGRESS = re.compile(r"(\d+) of (\d+) ns")


def simulator() -> Executable:
    """Where rocelab-virtual is."""
    return own_program("rocelab-virtual")


def simulate(
    scenario: Mapping[str, Any],
    *,
    pcap: Path | None = None,
    progressed: Callable[[int, int], None] | None = None,
    among: UnderWay | None = None,
) -> dict[str, Any]:
    """What comes of a scenario. `progressed` is told the simulated time, and when it ends at the latest, in ns.

    It ends with the others that are under way ``among`` it. Raises ToolError if it cannot be simulated.
    """
    argv: Sequence[str] = [simulator().name, "--progress", *(["--pcap", str(pcap)] if pcap else [])]
    with (among or UnderWay()).start(argv) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(json.dumps(scenario))
            process.stdin.close()
        except BrokenPipeError:
            pass  # Its last words say why it does not listen.
        # A long outcome does not fit the pipe: the simulator would wait for its reader, and we
        # for its last words.
        outcomes: list[str] = []
        reader = threading.Thread(target=lambda out: outcomes.append(out.read()), args=(process.stdout,))
        reader.start()
        words = ""
        for line in process.stderr:
            found = _PROGRESS.fullmatch(line.strip())
            if found is None:
                words += line
            elif progressed is not None:
                progressed(int(found[1]), int(found[2]))
        reader.join()
    out = "".join(outcomes)
    if process.returncode != 0:
        raise ToolError(last_words(Output(out, words, process.returncode)))
    outcome: dict[str, Any] = json.loads(out)
    return outcome
