"""A few of the programs of `make interop`, and a guest to run them with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .guest import GuestError, fetched

INTEROP = Path(__file__).with_name("interop.py")
OWN_NAMESPACE = ["unshare", "--map-root-user", "--net"]

pytestmark = [
    pytest.mark.fabric,
    pytest.mark.nightly(reason="a guest with emulated processors takes three minutes"),
    pytest.mark.timeout(900),
]


def test_programs_run_between_urxe_and_linux_rxe() -> None:
    try:
        fetched()
    except (GuestError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no guest with Linux rxe: {error}")
    if subprocess.run([*OWN_NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no network namespaces on this machine")
    brief = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rfEs", "-m", "brief"]
    done = subprocess.run([*OWN_NAMESPACE, *brief, str(INTEROP)], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    # The first line of the message is what a summary of all tests shows.
    wrong = "; ".join(line for line in lines if line.startswith(("FAILED", "ERROR", "SKIPPED"))) or done.stderr
    assert done.returncode == 0, f"{wrong}\n{done.stdout}"
    assert " skipped" not in lines[-1], f"{wrong}\n{done.stdout}"
