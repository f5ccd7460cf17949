"""What `make interop` does before its runs: fetches the kernels, builds Linux siw, and says what is missing.

Usage, in nic/conformance: python -m rxe
"""

from __future__ import annotations

from .guest import SIW, GuestError, fetched, why_no_kvm
from .kernels import EVERY, SUITES


def fetch() -> None:
    """Fetch what is missing, and say what that means for the runs."""
    if (why := why_no_kvm()) is not None:
        print(f"interop: no KVM ({why}): the guests' processors are emulated, which takes many times as long")
    for suite in EVERY:
        try:
            kernel, _ = fetched(suite)
            print(f"interop: {suite} has Linux {kernel.version}")
        except GuestError as error:
            print(f"interop: what runs on {suite} will be skipped: {error}")
    try:
        kernel, _ = fetched(SUITES[0], SIW)
        print(f"interop: Linux siw is built for Linux {kernel.version}")
    except GuestError as error:
        print(f"interop: what runs on Linux siw will be skipped: {error}")


if __name__ == "__main__":
    fetch()
