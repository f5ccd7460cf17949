"""The kernels that guests boot: those of Debian 11 to 13 and sid, each with the modules that Linux rxe needs.

Each is fetched once, and kept in .build; so is what a guest starts with besides, a busybox of Debian 12.
"""

from __future__ import annotations

import contextlib
import lzma
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .mirror import DEBIAN, MirrorError, Release, extract

ROOT: Final = Path(__file__).resolve().parents[3]
#: What is fetched, and what the runs leave behind.
BUILT: Final = ROOT / ".build" / "rxe"
#: The releases whose kernels are booted, with Linux 6.1, 6.12 and one of the newest. All runs are
#: on the first.
SUITES: Final = ("bookworm", "trixie", "sid")
#: Those that urxe itself runs on, with Linux 5.10 before them.
EVERY: Final = ("bullseye", *SUITES)
#: The modules that a guest needs besides those that they depend on. A kernel may have some of them
#: built in.
MODULES: Final = (
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "sch_prio",
    "sch_ingress",
    "sch_netem",
    "cls_u32",
    "act_mirred",
    "ifb",
    "veth",
    "crc32_generic",
    "crc32c_generic",
    "crc32c_intel",
    "libcrc32c",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
)
#: The packages that a kernel is made of. The first depends on the one with this version's image,
#: which since Linux 7 only depends on others, with the image and with the modules.
NEWEST: Final = "linux-image-amd64"
PARTS: Final = re.compile(r"linux-(image|binary|modules)-")
IMAGE: Final = re.compile(r"boot/vmlinuz-[^/]+|(usr/)?lib/modules/[^/]+/vmlinuz")
MODULE: Final = re.compile(r"(usr/)?lib/modules/.*\.ko(\.\w+)?")
BUSYBOX: Final = re.compile(r"(usr/)?bin/busybox")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel, ready to boot."""

    image: Path
    #: What `uname -r` says.
    version: str
    #: Each after those that it depends on.
    modules: tuple[Path, ...]


def kernel_of(suite: str, mirror: str = DEBIAN) -> Kernel:
    """The kernel of a release. Where it has to be fetched, this needs the network of the host.

    Raises MirrorError.
    """
    folder = BUILT / suite
    asked_for = folder / "modules"
    if not asked_for.exists() or asked_for.read_text() != "\n".join(MODULES):
        with new_folder() as scratch:
            _make(scratch, suite, mirror)
            _replace(scratch / "made", folder)
    (image,) = folder.glob("vmlinuz-*")
    return Kernel(image, image.name.removeprefix("vmlinuz-"), tuple(sorted(folder.glob("*.ko"))))


def busybox(mirror: str = DEBIAN) -> Path:
    """A busybox that needs no libraries. See kernel_of."""
    program = BUILT / "busybox"
    if not program.exists():
        with new_folder() as scratch:
            release = Release(SUITES[0], mirror)
            archive = release.fetch(release.package("busybox-static"), scratch)
            (found,) = extract(archive, BUSYBOX, scratch)
            found.chmod(0o755)
            found.replace(program)
    return program


def _make(scratch: Path, suite: str, mirror: str) -> None:
    """Make the folder of a release's kernel in `scratch/made`: its image, its modules, and what these are from."""
    release = Release(suite, mirror)
    made, unpacked = scratch / "made", scratch / "unpacked"
    made.mkdir()
    unpacked.mkdir()
    packages = [*release.with_needed(NEWEST, lambda name: PARTS.match(name) is not None)]
    images: list[Path] = []
    for package in packages:
        archive = release.fetch(package, scratch)
        images += extract(archive, IMAGE, scratch)
        extract(archive, MODULE, unpacked)
    origin = [f"{package.name} {package.version} {package.sha256}\n" for package in packages]
    versions = [name.removeprefix("linux-image-") for name in (package.name for package in packages) if name != NEWEST]
    if len(images) != 1 or not versions:
        raise MirrorError(f"{suite} has {len(images)} kernels in its packages:\n{''.join(origin)}")
    images[0].rename(made / f"vmlinuz-{versions[0]}")
    for place, (name, code) in enumerate(in_order(_by_name(unpacked))):
        (made / f"{place:02}-{name}.ko").write_bytes(code)
    (made / "packages").write_text("".join(origin))
    (made / "modules").write_text("\n".join(MODULES))


def _by_name(folder: Path) -> Mapping[str, Path]:
    """The modules of a folder by their names, in which a dash is as good as an underscore."""
    return {re.sub(r"\.ko.*", "", path.name).replace("-", "_"): path for path in folder.iterdir()}


def in_order(files: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """The modules that a guest needs, each after those that it depends on. What is built in is not among them."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[str, bytes]]:
        path = files.get(name)
        if name in done or path is None:
            return
        done.add(name)
        code = _unpacked(path)
        depends = re.search(rb"\0depends=([^\0]*)\0", code)
        for other in depends[1].decode().split(",") if depends else []:
            yield from visit(other.replace("-", "_"))
        yield name, code

    for wanted in MODULES:
        yield from visit(wanted)


def _unpacked(module: Path) -> bytes:
    if module.suffix == ".xz":
        return lzma.decompress(module.read_bytes())
    if module.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", str(module)], stdout=subprocess.PIPE, check=True).stdout
    return module.read_bytes()


@contextlib.contextmanager
def new_folder() -> Iterator[Path]:
    """A folder for what is being made, which goes with what is left in it."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT, prefix="new-") as folder:
        yield Path(folder)


def _replace(made: Path, folder: Path) -> None:
    """Put a folder in its place; what was there goes with the scratch folder of the other."""
    with contextlib.suppress(FileNotFoundError):
        folder.rename(made.with_name("old"))
    made.rename(folder)
