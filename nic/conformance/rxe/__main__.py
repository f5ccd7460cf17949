"""What `make interop` does before its runs: fetches the kernels that are not there yet, and says what is missing.

Usage, in nic/conformance: python -m rxe
"""

from __future__ import annotations

from .guest import GuestError, fetched, why_no_kvm
from .kernels import EVERY


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


if __name__ == "__main__":
    fetch()
