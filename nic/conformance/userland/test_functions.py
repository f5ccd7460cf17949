"""Every public function of libibverbs and librdmacm, here and in newer distributions, on live objects of urxe."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rocelab.tools.interconnects import urxe

from .functions import Expected, build, differences, program, run, spoken, table
from .headers import Header, read
from .roots import ROOTS, Root, RootError, find

HOST = Path("/usr/include")
LIMIT_S = 280.0
#: What the libraries export for drivers, for their tools, and for programs older than the headers.
NOT_IN_HEADERS = r"(_?verbs|ibv_cmd|ibv_copy|rdma_lib|ib_|__)\w*|ibv_(register_driver|read_sysfs_file|get_sysfs_path)"
NOT_IN_HEADERS += r"|ibv_(query_gid_type|read_ibdev_sysfs_file|dmabuf_heap_\w+|do(nt)?fork_range)"

pytestmark = pytest.mark.timeout(600)


def other_userland(name: str | None) -> Root | None:
    """The root of a distribution; None is this machine."""
    if name is None:
        return None
    try:
        return find(name)
    except RootError as error:
        pytest.skip(str(error))


def headers_of(root: Root | None, folder: Path) -> Path:
    """A folder with rdma-core's headers and no others."""
    include = folder / "include"
    include.mkdir()
    for name in ("infiniband", "rdma"):
        (include / name).symlink_to((root.path / "usr/include" if root else HOST) / name)
    return include


def libraries_of(root: Root) -> Path:
    """Where a root has its shared libraries."""
    return next(iter(root.path.glob("usr/lib/*/libibverbs.so.1"))).parent


def in_a_namespace(argv: list[str], root: Root | None, folder: Path) -> list[str]:
    """What runs a program on urxe, in a network namespace with nothing but loopback."""
    own = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no namespaces")
    name = shutil.which(urxe().name) or urxe().name
    command = [name, "run", "--", *argv]
    if root is not None:
        command = root.inside(command, [Path(name).parent, folder])
    return [*own, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


@pytest.mark.parametrize("userland", [None, *(root.name for root in ROOTS)], ids=lambda name: name or "here")
def test_every_function_works_or_is_refused_as_documented(userland: str | None, tmp_path: Path) -> None:
    root = other_userland(userland)
    include = headers_of(root, tmp_path)
    header, expected = read(include), table()
    source, binary = tmp_path / "calls.c", tmp_path / "calls"
    source.write_text(program(header, expected), encoding="utf-8")
    build(source, binary, include, libraries_of(root) if root else None)
    answers = run(in_a_namespace([str(binary)], root, tmp_path), LIMIT_S)
    for title, said in answers.items():
        print(f"{title}: {spoken(said)}")
    called = {each.name for each in header.functions} - {name for name, each in expected.items() if each.left_out}
    assert called <= answers.keys()
    assert not differences(answers, expected)


@pytest.mark.parametrize("userland", [None, *(root.name for root in ROOTS)], ids=lambda name: name or "here")
def test_no_function_is_missed(userland: str | None) -> None:
    """What the libraries export is in the headers, as they are read here, or known not to be."""
    root = other_userland(userland)
    libraries = libraries_of(root) if root else next(iter(Path("/usr/lib").glob("*/libibverbs.so.1"))).parent
    declared = {each.name for each in read(root.path / "usr/include" if root else HOST).functions}
    exported: set[str] = set()
    for library in ("libibverbs.so.1", "librdmacm.so.1"):
        command = ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", str(libraries / library)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        exported |= set(re.findall(r" T (\w+)@@(?:IBVERBS|RDMACM)_\d", text))
    assert len(exported) > 100
    sockets = {name for name in exported if re.match(r"r(?!dma_)[a-z]", name)}
    assert not sorted(name for name in exported - declared - sockets if not re.fullmatch(NOT_IN_HEADERS, name))


def test_the_table_has_no_function_that_does_not_exist() -> None:
    """The newest headers are those of the last root."""
    root = other_userland(ROOTS[-1].name)
    assert root is not None
    declared = {each.name for each in read(root.path / "usr/include").functions}
    assert not sorted(table().keys() - declared)


HEADER = """
#define ibv_masked(a) __ibv_masked(a)
struct ibv_masked_thing { struct ibv_context *context; int handle; };
extern int ibv_masked(struct ibv_context *context);
static inline struct ibv_masked_thing *ibv_newer(struct ibv_context *context, uint8_t mac[6], void *unused)
{
    if (context) { return NULL; }
    return NULL;
}
"""


@pytest.fixture
def header(tmp_path: Path) -> Header:
    for name in ("infiniband", "rdma"):
        (tmp_path / name).mkdir()
    (tmp_path / "infiniband" / "verbs.h").write_text(HEADER)
    for name in ("rdma_cma.h", "rdma_verbs.h"):
        (tmp_path / "rdma" / name).write_text("")
    return read(tmp_path)


def test_functions_and_structures_are_read_from_headers(header: Header) -> None:
    masked, newer = header.functions
    assert (masked.name, masked.returns, masked.is_hidden) == ("ibv_masked", "int", True)
    assert (newer.name, newer.returns, newer.is_hidden) == ("ibv_newer", "struct ibv_masked_thing *", False)
    assert [(each.type, each.name) for each in newer.parameters] == [
        ("struct ibv_context *", "context"),
        ("uint8_t *", "mac"),
        ("void *", "unused"),
    ]
    assert header.structures == {"ibv_masked_thing": "struct ibv_context *context"}


def test_what_is_behind_a_macro_is_called_too(header: Header) -> None:
    text = program(header, {})
    assert "returned_number((long long)ibv_masked(a0));" in text
    assert "returned_number((long long)(ibv_masked)(a0));" in text


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("pointer 2", "pointer"),
        ("NULL 95", "NULL EOPNOTSUPP"),
        ("-1 22", "-1 EINVAL"),
        ("95 0", "EOPNOTSUPP"),
        ("-95 0", "-EOPNOTSUPP"),
        ("0 0", "0"),
        ("crashed Segmentation fault", "crashed Segmentation fault"),
    ],
)
def test_answers_are_told_in_words(said: str, answer: str) -> None:
    assert spoken(said) == answer


@pytest.mark.parametrize("said", ["crashed Segmentation fault", "crashed hung", "0 0", "NULL 0", "unmade line 1: x"])
def test_a_newer_function_has_to_say_that_it_is_not_supported(said: str) -> None:
    assert differences({"ibv_newer": said}, {}) != []
    assert differences({"ibv_newer": "95 0", "ibv_newest": "NULL 95"}, {}) == []


@pytest.mark.parametrize("said", ["crashed Segmentation fault", "unmade line 1: x"])
def test_no_value_is_as_good_as_a_crash(said: str) -> None:
    assert differences({"ibv_known": said}, {"ibv_known": Expected("value", {})}) != []
