"""The command: `python -m soak --minutes 30 --json FILE`, on the first two processors it may use."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from .soak import Run, as_dict, pairs, soak

#: As in the issue that asked for it: both of two cores.
CORES = 2
ROW = "{:28} {:24} {:>6} {:>5} {:>7}  {}"


def main() -> int:
    """Run, print a row for each run, and write the result; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(
        prog="make soak", description="Unmodified programs on urxe, while things go wrong."
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="for how long (default 30)")
    parser.add_argument("--seconds", type=float, help="of each run (default: 10, or 3 of a soak below 10 minutes)")
    parser.add_argument("--only", default="", help="runs with this in their workload or fault alone")
    parser.add_argument("--json", type=Path, help="the result file")
    chosen = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    seconds = chosen.seconds or (10.0 if chosen.minutes >= 10 else 3.0)
    started_s = time.monotonic()
    selected = ((workload, fault) for workload, fault in pairs() if chosen.only in f"{workload.id} {fault.id}")
    print(ROW.format("workload", "fault", "s", "fds", "MiB", "outcome"))
    runs: list[Run] = []
    for run in soak(started_s + 60 * chosen.minutes, seconds, selected):
        row = ROW.format(run.workload, run.fault, run.seconds, run.descriptors, run.memory_mib, run.outcome)
        print(row, flush=True)
        runs.append(run)
    bad = [run for run in runs if not run.is_good]
    minutes = round((time.monotonic() - started_s) / 60, 1)
    print(f"{len(runs)} runs in {minutes} minutes, {len(bad)} of them bad")
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        result = {"schema": 1, "minutes": minutes, "bad": len(bad), "runs": [as_dict(run) for run in runs]}
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if bad or not runs else 0


sys.exit(main())
