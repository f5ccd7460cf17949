"""How Linux siw is built for a kernel, from a mirror that the tests make."""

from __future__ import annotations

import io
import lzma
import shutil
import tarfile
from pathlib import Path

import pytest

from . import kernels, siw_module
from .kernels import Kernel
from .siw_module import FOLDER, PARAMETERS, BuildError, made_a_parameter, siw_of
from .test_kernels import VERSION, Mirror

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in siw_module.TOOLS), reason="there is no make, gcc or dpkg-deb"
)
KERNEL = Kernel(Path("bookworm/vmlinuz"), VERSION, ())
MAIN = "const bool mpa_crc_required;\nu_char mpa_version = 2;\n\n/* that of peers */\nconst bool peer_to_peer;\n"
FILES = {
    "siw_main.c": MAIN,
    "siw_cm.c": "static __be16 rtr_type = READ | WRITE;\nstatic const bool other;\nif (peer_to_peer) return;\n",
    "siw.h": "extern const bool mpa_crc_required;\nextern const bool other;\nextern u_char mpa_version;\n",
}
#: Instead of a compiler: what it would read.
MAKEFILE = b"modules:\n\tcat $(M)/siw_main.c $(M)/siw_cm.c $(M)/siw.h >$(M)/siw.ko\n"


def packed(files: dict[str, str]) -> bytes:
    """The source of a kernel, with what comes before siw and after it."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, text in {"init/main.c": "", **{FOLDER + each: files[each] for each in files}, "net/x.c": ""}.items():
            entry = tarfile.TarInfo(f"linux-source-7.2/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return lzma.compress(raw.getvalue())


@pytest.fixture
def a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """One with what siw is built of; it is not published yet."""
    for module in (kernels, siw_module):
        monkeypatch.setattr(module, "BUILT", tmp_path / "built")
    monkeypatch.setattr("rxe.mirror.KEYS", tmp_path / "no keys")
    made = Mirror(tmp_path / "mirror")
    headers = f"usr/src/linux-headers-{VERSION}"
    needs = f"linux-headers-{VERSION}-common (= 1), linux-image-{VERSION} (= 1)"
    made.add(
        f"linux-headers-{VERSION}", {f"{headers}/Makefile": f"include /{headers}-common/Makefile\n".encode()}, needs
    )
    made.add(f"linux-headers-{VERSION}-common", {f"{headers}-common/Makefile": MAKEFILE})
    return made


def test_constants_of_siw_are_parameters_of_the_module(a_mirror: Mirror) -> None:
    a_mirror.add("linux-source-7.2", {"usr/src/linux-source-7.2.tar.xz": packed(FILES)})
    a_mirror.publish("sid")
    built = siw_of(KERNEL, "sid", a_mirror.url).read_text()
    for parameter in PARAMETERS:
        assert f"module_param({parameter.name}, {parameter.kind}, 0644);\n" in built
    assert "\nextern bool mpa_crc_required;\nextern const bool other;\n" in built
    assert "static __be16 rtr_type = READ | WRITE;\n" in built
    assert "const bool peer_to_peer;" not in built


def test_the_source_is_that_of_the_kernel(a_mirror: Mirror) -> None:
    a_mirror.add("linux-source-7.2", {"usr/src/linux-source-7.2.tar.xz": packed(FILES)})
    older = a_mirror.entries[-1].replace("Version: 1\n", "Version: 0\n").replace("linux-source-7.2.deb", "none.deb")
    a_mirror.entries.insert(0, older)
    a_mirror.publish("sid")
    assert siw_of(KERNEL, "sid", a_mirror.url).exists()


def test_it_is_built_once_and_leaves_nothing_else(a_mirror: Mirror) -> None:
    a_mirror.add("linux-source-7.2", {"usr/src/linux-source-7.2.tar.xz": packed(FILES)})
    a_mirror.publish("sid")
    module = siw_of(KERNEL, "sid", a_mirror.url)
    shutil.rmtree(a_mirror.folder)
    assert siw_of(KERNEL, "sid", a_mirror.url) == module
    left = [path for path in kernels.BUILT.rglob("*") if path.is_file()]
    assert left == [module]


def test_a_kernel_that_the_release_has_no_more_is_to_be_fetched_again(a_mirror: Mirror) -> None:
    a_mirror.publish("sid")
    with pytest.raises(BuildError, match=r"no package linux-headers-6\.1\.0-1-amd64; .* remove bookworm"):
        siw_of(Kernel(Path("bookworm/vmlinuz"), "6.1.0-1-amd64", ()), "sid", a_mirror.url)


def test_source_that_is_another_than_expected_is_said(a_mirror: Mirror) -> None:
    a_mirror.add("linux-source-7.2", {"usr/src/linux-source-7.2.tar.xz": packed({**FILES, "siw_main.c": ""})})
    a_mirror.publish("sid")
    with pytest.raises(BuildError, match=r"siw_main\.c declares mpa_version 0 times"):
        siw_of(KERNEL, "sid", a_mirror.url)


def test_what_make_says_is_told(a_mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    a_mirror.add("linux-source-7.2", {"usr/src/linux-source-7.2.tar.xz": packed({**FILES, "other.c": ""})})
    a_mirror.publish("sid")
    monkeypatch.setattr(siw_module, "is_for_modules", lambda name: False)
    with pytest.raises(BuildError, match=r"make ended with status 2:\n(.*\n)*.*No such file or directory"):
        siw_of(KERNEL, "sid", a_mirror.url)


def test_source_without_siw_is_said(a_mirror: Mirror) -> None:
    a_mirror.add("linux-source-7.2", {"usr/src/linux-source-7.2.tar.xz": packed({})})
    a_mirror.publish("sid")
    with pytest.raises(BuildError, match="has no drivers/infiniband/sw/siw/"):
        siw_of(KERNEL, "sid", a_mirror.url)


def test_only_the_declaration_becomes_a_parameter() -> None:
    peers = next(parameter for parameter in PARAMETERS if parameter.name == "peer_to_peer")
    text = "/* peer_to_peer; */\nconst bool peer_to_peer;\n\tif (peer_to_peer)\n\t\treturn;\n"
    assert made_a_parameter(text, peers).count("module_param") == 1
