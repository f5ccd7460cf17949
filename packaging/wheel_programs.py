"""Puts compiled programs into a wheel: what hatchling calls while it builds one.

`ROCELAB_WHEEL_TREE` names a folder with bin, lib and share, as `packaging/install_urxe` makes it, and
`ROCELAB_WHEEL_PLATFORM` the platform of the wheel, such as `manylinux_2_28_x86_64`. A wheel that is built without them
has Python alone, and rocelab then looks for its programs in PATH.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProgramsHook(BuildHookInterface[Any]):
    """Adds what is in the tree to the wheel's scripts and data."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See BuildHookInterface."""
        tree = os.environ.get("ROCELAB_WHEEL_TREE")
        if tree is None or version == "editable":
            return
        platform = os.environ.get("ROCELAB_WHEEL_PLATFORM")
        if not platform:
            message = "ROCELAB_WHEEL_TREE is set, so ROCELAB_WHEEL_PLATFORM has to say for which platform it was built"
            raise ValueError(message)
        files = sorted(path for path in Path(tree).rglob("*") if path.is_file())
        if not files:
            raise ValueError(f"{tree}, which ROCELAB_WHEEL_TREE names, has no files")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        for path in files:
            name = path.relative_to(tree)
            if name.parts[0] == "bin":
                build_data["shared_scripts"][str(path)] = name.name
            else:
                build_data["shared_data"][str(path)] = str(name)
