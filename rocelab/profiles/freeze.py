"""What the values of every profile were when its version was given: a change without a new version is seen.

``python -m rocelab.profiles.freeze`` writes ``frozen.toml`` again, and refuses a profile whose values are others under
the same version.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from rocelab.profiles import model

_FILE = "frozen.toml"
#: What says nothing of the hardware.
_WORDS = {"title", "sources", "version"}


def frozen() -> Mapping[str, str]:
    """By profile, version and digest of its values, as they were written down."""
    text = resources.files("rocelab.profiles").joinpath(_FILE).read_text(encoding="utf-8")
    found: dict[str, str] = tomllib.loads(text)["profiles"]
    return found


def current() -> Mapping[str, str]:
    """The same of the profiles as they are."""
    kinds: Mapping[str, Mapping[str, model.AnyProfile]] = {
        "adapters": model.adapters(),
        "hosts": model.hosts(),
        "mpis": model.mpis(),
        "stacks": model.stacks(),
        "switches": model.switches(),
        "workloads": model.workloads(),
    }
    return {
        f"{kind}/{name}": f"{profile.version} {_digest(profile)}"
        for kind, known in kinds.items()
        for name, profile in known.items()
    }


def _digest(profile: model.AnyProfile) -> str:
    values = profile.model_dump(mode="json", exclude=_WORDS)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def changed_without_version(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Profiles whose values are others, and whose version is the same."""
    return [
        name
        for name, now in after.items()
        if name in before and before[name] != now and before[name].split()[0] == now.split()[0]
    ]


def _main() -> None:
    after = current()
    try:
        before = frozen()
    except FileNotFoundError:
        before = {}
    if wrong := changed_without_version(before, after):
        sys.exit(f"raise the version of {', '.join(wrong)}: the values are others than before")
    lines = ["# Version and digest of the values of each profile: python -m rocelab.profiles.freeze", "[profiles]"]
    lines += [f'"{name}" = "{value}"' for name, value in after.items()]
    (Path(__file__).parent / _FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _main()
