"""``rocelab --version``: what is installed, and which results it reads."""

from __future__ import annotations

import rocelab
from rocelab.results import READABLE_VERSIONS, SCHEMA_VERSION
from rocelab.study.provenance import commit, urxe_version


def text() -> str:
    """A line each for rocelab, with its commit where it is a checkout, for urxe, and for the format of results."""
    revision, changed = commit()
    of_commit = "" if revision is None else f" (commit {revision[:12]}{', changed since' if changed else ''})"
    urxe = urxe_version()
    readable = ", ".join(map(str, READABLE_VERSIONS))
    return "\n".join(
        (
            f"rocelab {rocelab.__version__}{of_commit}",
            "urxe: not found; `make build` builds it" if urxe is None else f"urxe {urxe}",
            f"results: writes format version {SCHEMA_VERSION}, reads {readable}",
        )
    )
