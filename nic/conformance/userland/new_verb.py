"""A libibverbs with verbs that no release has: on objects of urxe, programs are told that it has none.

`make test-distros` runs it. The library is that of the newest root, built from Debian's source with
two more verbs. They are among those that it passes on to the driver of a device, which is where
every new verb of the last years came in.
"""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import tarfile
import urllib.request
from pathlib import Path

import pytest

from .roots import HERE, MIRROR, ROOT, ROOTS, RootError, find
from .test_functions import in_a_namespace

LIMIT_S = 1200.0
BUILT = ROOT / ".build" / "new-verb"
#: The verbs, with what stands before their parameters, their parameters, the arguments, the
#: context, and the refusal.
POINTER = ("struct ibv_mr *", "lend_mr", "struct ibv_pd *pd, size_t length", "pd, length", "pd->context")
NUMBER = ("int ", "measure_qp", "struct ibv_qp *qp, uint64_t *measure", "qp, measure", "qp->context")
REFUSALS = {"lend_mr": "errno = EOPNOTSUPP;\n\treturn NULL;", "measure_qp": "return EOPNOTSUPP;"}
#: The operation that they stand before: in the middle of the alphabet.
NEXT = "modify_cq"

pytestmark = pytest.mark.timeout(LIMIT_S + 60)


def source() -> tuple[str, Path]:
    """The version of the newest root's libibverbs, and its source as Debian has it."""
    try:
        root = find(ROOTS[-1].name)
    except RootError as error:
        pytest.skip(str(error))
    changes = root.path / "usr/share/doc/libibverbs1/changelog.Debian.gz"
    first = gzip.decompress(changes.read_bytes()).decode().splitlines()[0]
    version = re.sub(r"-[^-]*$", "", first.partition("(")[2].partition(")")[0])
    tarball = BUILT / f"rdma-core_{version}.orig.tar.gz"
    if not tarball.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        url = f"{MIRROR}/pool/main/r/rdma-core/{tarball.name}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data = answer.read()
        except OSError as error:
            pytest.skip(f"{url} cannot be read: {error}")
        partial = tarball.with_suffix(".partial")
        partial.write_bytes(data)
        partial.rename(tarball)
    return version, tarball


def insert(path: Path, before: str, text: str) -> None:
    """Put text before the one place in a file that the pattern matches."""
    old = path.read_text(encoding="utf-8")
    new, count = re.subn(f"(?=^{before})", lambda _: text, old, flags=re.MULTILINE)
    assert count == 1, f"{path.name} has {count} places for {before!r}"
    path.write_text(new, encoding="utf-8")


def add_verbs(folder: Path) -> None:
    """Add them to the source of libibverbs, as its own developers add one."""
    library = folder / "libibverbs"
    for returns, name, parameters, arguments, context in (POINTER, NUMBER):
        insert(library / "driver.h", rf"\tint \(\*{NEXT}\)", f"\t{returns}(*{name})({parameters});\n")
        refusal = f"static {returns}{name}({parameters})\n{{\n\t{REFUSALS[name]}\n}}\n\n"
        insert(library / "dummy_ops.c", rf"static int {NEXT}\(", refusal)
        insert(library / "dummy_ops.c", rf"\t{NEXT},", f"\t{name},\n")
        insert(library / "dummy_ops.c", rf"\tSET_OP\(vctx, {NEXT}\);", f"\tSET_PRIV_OP_IC(vctx, {name});\n")
        with (library / "verbs.c").open("a", encoding="utf-8") as verbs:
            verbs.write(f"\n{returns}ibv_{name}({parameters});\n")
            body = f"return get_ops({context})->{name}({arguments});"
            verbs.write(f"{returns}ibv_{name}({parameters})\n{{\n\t{body}\n}}\n")
    versions = library / "libibverbs.map.in"
    newest = re.findall(r"^(IBVERBS_1\.\d+) \{", versions.read_text(encoding="utf-8"), re.MULTILINE)[-1]
    stanza = f"IBVERBS_1.999 {{\n\tglobal:\n\t\tibv_lend_mr;\n\t\tibv_measure_qp;\n}} {newest};\n\n"
    insert(versions, r"IBVERBS_PRIVATE_@IBVERBS_PABI_VERSION@ \{", stanza)


@pytest.fixture(scope="module")
def library() -> Path:
    """The folder with that libibverbs."""
    version, tarball = source()
    if missing := [tool for tool in ("cmake", "gcc", "pkg-config") if shutil.which(tool) is None]:
        pytest.skip(f"there is no {missing[0]}; install the Debian package {missing[0]}")
    folder = BUILT / version
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(tarball) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    add_verbs(unpacked)
    build = folder / "build"
    options = ["-DNO_PYVERBS=1", "-DNO_MAN_PAGES=1", "-DCMAKE_BUILD_TYPE=Release"]
    for command in (
        ["cmake", "-S", str(unpacked), "-B", str(build), *options],
        ["cmake", "--build", str(build), "--target", "ibverbs", "--parallel", "2"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode != 0:
            pytest.skip(f"rdma-core {version} cannot be built here: {(done.stdout + done.stderr)[-2000:]}")
    return build / "lib"


def test_a_verb_that_nobody_has_is_refused(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "new_verb"
    command = ["gcc", "-std=gnu17", "-Wall", str(HERE / "new_verb.c"), "-o", str(binary)]
    subprocess.run([*command, str(library / "libibverbs.so.1"), "-Wl,--allow-shlib-undefined"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    done = subprocess.run(in_a_namespace([str(binary)], None, tmp_path), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (
        0,
        "ibv_lend_mr NULL EOPNOTSUPP\nibv_measure_qp EOPNOTSUPP\n",
    ), done.stderr
