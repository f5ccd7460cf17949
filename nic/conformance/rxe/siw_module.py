"""Builds Linux siw, the kernel's software iWARP device, which Debian's kernels come without.

Its source is that of the same release, and so are the headers and scripts that modules are built with. They are
unpacked, not installed, and only the module is kept. What siw has as constants are parameters of this module, which
have siw's values until they are set.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from .kernels import BUILT, Kernel, new_folder
from .mirror import DEBIAN, MirrorError, Package, Release

#: Where siw is in the kernel's source.
FOLDER: Final = "drivers/infiniband/sw/siw/"
HEADERS: Final = re.compile(r"linux-(headers|kbuild)-")
SOURCE: Final = re.compile(r"usr/src/linux-source-[\d.]+\.tar\.xz")
#: What a build needs of the machine.
TOOLS: Final = ("make", "gcc", "dpkg-deb")
BUILD_LIMIT_S: Final = 600


class BuildError(Exception):
    """The module cannot be built. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant of siw that becomes a parameter of the module."""

    name: str
    #: What the kernel calls its type.
    kind: str
    file: str
    #: What siw has, as /sys shows it.
    usual: str


#: siw has `rtr_type` in the order of the wire: on this processor 0x40 is a READ, and 0x80 a WRITE.
PARAMETERS: Final = (
    Parameter("mpa_version", "byte", "siw_main.c", "2"),
    Parameter("mpa_crc_required", "bool", "siw_main.c", "N"),
    Parameter("peer_to_peer", "bool", "siw_main.c", "N"),
    Parameter("rtr_type", "ushort", "siw_cm.c", "192"),
)


def siw_of(kernel: Kernel, suite: str, mirror: str = DEBIAN) -> Path:
    """The module for the kernel of a release. Where it has to be built, this needs the network of the host.

    Raises MirrorError and BuildError.
    """
    module = BUILT / "siw" / kernel.version / "siw.ko"
    if not module.exists():
        missing = [tool for tool in TOOLS if shutil.which(tool) is None]
        if missing:
            raise BuildError(f"there is no {' and no '.join(missing)}")
        with new_folder() as folder:
            release = Release(suite, mirror)
            try:
                headers = [*release.with_needed(f"linux-headers-{kernel.version}", is_for_modules)]
            except MirrorError as error:
                again = f"{suite} may have a newer kernel by now: remove {kernel.image.parent}, and it is fetched"
                raise BuildError(f"{error}; {again}") from error
            numbers = ".".join(kernel.version.split(".")[:2])
            source = release.package(f"linux-source-{numbers}", headers[0].version)
            for package in headers:
                unpack(release.fetch(package, folder), folder)
            take_source(release, source, folder)
            built = build(folder, kernel.version)
            module.parent.mkdir(parents=True, exist_ok=True)
            built.replace(module)
    return module


def is_for_modules(name: str) -> bool:
    """Whether a package that others need is one that modules are built with."""
    return HEADERS.match(name) is not None


def unpack(archive: Path, folder: Path) -> None:
    done = subprocess.run(["dpkg-deb", "-x", str(archive), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"dpkg-deb cannot unpack {archive.name}: {done.stderr.strip()}")


def take_source(release: Release, package: Package, folder: Path) -> None:
    """Put the source of siw into `folder/siw`, of a package that has that of the whole kernel."""
    archive = release.fetch(package, folder)
    taken = folder / "siw"
    taken.mkdir()
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as unpacking:
        assert unpacking.stdout is not None
        try:
            with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
                for member in files:
                    if SOURCE.fullmatch(member.name.removeprefix("./")):
                        content = files.extractfile(member)
                        assert content is not None
                        copy_siw(content, taken)
                        break
        finally:
            # What follows is of no use.
            unpacking.kill()
    if not any(taken.iterdir()):
        raise BuildError(f"{archive.name} has no {FOLDER}")


def copy_siw(packed: IO[bytes], into: Path) -> None:
    """Copy siw out of the kernel's source, and read no further than its folder."""
    with tarfile.open(fileobj=packed, mode="r|xz") as files:
        for member in files:
            _, found, name = member.name.partition(FOLDER)
            if found and member.isfile():
                content = files.extractfile(member)
                assert content is not None
                (into / name).write_bytes(content.read())
            elif not found and any(into.iterdir()):
                return


def build(folder: Path, version: str) -> Path:
    """Build the module in `folder/siw`, with the headers that are unpacked in the folder."""
    source = folder / "siw"
    for parameter in PARAMETERS:
        path = source / parameter.file
        path.write_text(made_a_parameter(path.read_text(), parameter))
    header = source / "siw.h"
    names = "|".join(parameter.name for parameter in PARAMETERS)
    header.write_text(re.sub(rf"^extern const (\w+ ({names});)", r"extern \1", header.read_text(), flags=re.MULTILINE))
    headers = folder / "usr" / "src" / f"linux-headers-{version}"
    # Debian's headers name the place where they are to be installed.
    for makefile in headers.parent.glob("*/Makefile"):
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{headers.parent}/"))
    line = ["make", "-C", str(headers), f"M={source}", "CONFIG_RDMA_SIW=m", "modules"]
    done = subprocess.run(
        line,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    module = source / "siw.ko"
    if done.returncode != 0 or not module.exists():
        raise BuildError(f"make ended with status {done.returncode}:\n{done.stdout[-2000:]}")
    return module


def made_a_parameter(source: str, parameter: Parameter) -> str:
    """A file of siw's in which a constant is a parameter of the module."""
    declared = re.compile(rf"^(static )?(const )?(\w+ {parameter.name}\b[^;()]*;)$", re.MULTILINE)
    parameter_too = rf"\1\3\nmodule_param({parameter.name}, {parameter.kind}, 0644);"
    made, count = declared.subn(parameter_too, source)
    if count != 1:
        raise BuildError(f"{parameter.file} declares {parameter.name} {count} times")
    return made
