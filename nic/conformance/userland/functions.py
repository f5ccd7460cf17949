"""Writes, builds and judges a C program that calls every public function of rdma-core once, on live objects of urxe.

Which functions there are, the headers say; how each is called and what it has to answer, functions.toml. A function
that is not in that table, because it is newer, must answer that it is not supported.
"""

from __future__ import annotations

import errno
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .headers import Function, Header, Parameter

HERE: Final = Path(__file__).resolve().parent
#: What is given for a parameter of such a type if the table does not say; with `fresh` objects for
#: the call alone.
OBJECTS: Final = {
    "struct ibv_ah *": "ah()",
    "struct ibv_buf *": "buf()",
    "struct ibv_comp_channel *": "channel()",
    "struct ibv_context *": "context()",
    "struct ibv_cq *": "cq()",
    "struct ibv_cq_ex *": "polled_cq_ex()",
    "struct ibv_device *": "device()",
    "struct ibv_dm *": "dm()",
    "struct ibv_flow *": "fake_flow()",
    "struct ibv_mr *": "mr()",
    "struct ibv_mw *": "mw(IBV_MW_TYPE_1)",
    "struct ibv_pd *": "pd()",
    "struct ibv_qp *": "qp(IBV_QPT_RC)",
    "struct ibv_qp_ex *": "started(IBV_QPT_RC)",
    "struct ibv_srq *": "srq()",
    "struct ibv_td *": "td()",
    "struct ibv_xrcd *": "xrcd()",
    "struct rdma_cm_event *": "some_event()",
    "struct rdma_cm_id *": "ready_id(RDMA_PS_TCP)",
    "struct rdma_event_channel *": "event_channel()",
    "struct sockaddr *": "address(7471)",
    "const char *": '""',
}
#: What a newer function has to answer: what libibverbs says of all that a device does not have.
UNSUPPORTED: Final = "EOPNOTSUPP"
#: Those of ibv_wr_* that begin and end a list of work requests.
_NO_REQUEST: Final = ("ibv_wr_start", "ibv_wr_abort")
_POINTER: Final = re.compile(r"(?:const )?(.*?) ?\*$")


class TableError(Exception):
    """functions.toml is not as it should be. The text says where."""


@dataclass(frozen=True, slots=True)
class Expected:
    """How a function is called, and what it has to answer."""

    #: `pointer`, `void`, a number, `NULL` or -1 with the name of an error, the name of one, or
    #: `value`: any.
    answer: str
    #: C expressions for the parameters that are not the default for their type. `a0` is the first
    #: argument, and so on.
    arguments: Mapping[str, str]
    #: What is called after it, and before what came of it is asked for.
    then: str | None = None
    #: Why it is not called.
    left_out: str | None = None


def table(path: Path = HERE / "functions.toml") -> dict[str, Expected]:
    """The table by function; for one behind a macro, the entry `name (symbol)` may tell the function apart."""
    read: dict[str, Expected] = {}
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
        values: dict[str, str] = {"answer": entry} if isinstance(entry, str) else dict(entry)
        left_out, then = values.pop("left_out", None), values.pop("then", None)
        if (left_out is None and "answer" not in values) or not all(isinstance(each, str) for each in values.values()):
            raise TableError(f"{path.name}: {name}: an entry is an answer, or a table with `answer` and arguments")
        read[name] = Expected(values.pop("answer", ""), values, then, left_out)
    return read


def program(header: Header, expected: Mapping[str, Expected]) -> str:
    """The C program for these headers."""
    calls: list[str] = []
    names: list[tuple[str, str]] = []
    for number, (title, function, is_symbol) in enumerate(_titles(header)):
        wanted = expected.get(title, expected.get(function.name, Expected("", {})))
        if wanted.left_out is not None:
            continue
        calls.append(_call(f"call_{number}", function, wanted, header, is_symbol=is_symbol))
        names.append((title, f"call_{number}"))
    have = "".join(f"#define HAVE_{each.name}\n" for each in header.functions)
    tries = "".join(f'    try_call("{title}", {call});\n' for title, call in names)
    main = f'int main(void)\n{{\n    catch_signals();\n{tries}    puts("done");\n    return 0;\n}}\n'
    return "\n".join([have + '#include "cm_objects.h"\n', *calls, main])


def _titles(header: Header) -> Iterator[tuple[str, Function, bool]]:
    """The calls: of every function as a program writes it, and of what stands behind a macro."""
    for function in header.functions:
        yield function.name, function, False
        if function.is_hidden:
            yield f"{function.name} (symbol)", function, True


def _call(name: str, function: Function, wanted: Expected, header: Header, *, is_symbol: bool) -> str:
    given = wanted.arguments
    if unknown := given.keys() - {each.name for each in function.parameters}:
        raise TableError(f"functions.toml: {function.name} has no parameter {', '.join(sorted(unknown))}")
    lines = [
        f"    {each.type} a{index} = {given.get(each.name, _default(each, header))};"
        for index, each in enumerate(function.parameters)
    ]
    arguments = ", ".join(f"a{index}" for index in range(len(function.parameters)))
    first = function.parameters[0].type if function.parameters else ""
    # In parentheses, a name is not that of a macro.
    written = f"({function.name})({arguments})" if is_symbol else f"{function.name}({arguments})"
    if function.returns == "void" and first == "struct ibv_qp_ex *" and function.name not in _NO_REQUEST:
        # What became of a work request, the end of the list tells.
        then = [f"    {wanted.then};"] if wanted.then else []
        made = [f"    {written};", *then, "    returned_number(ibv_wr_complete(a0));"]
    elif function.returns == "void":
        made = [f"    {written};", "    returned_nothing();"]
    elif function.returns.endswith("*"):
        made = [f"    returned_pointer({written});"]
    else:
        made = [f"    returned_number((long long){written});"]
    return "\n".join([f"static void {name}(void)", "{", *lines, "    call_begins();", *made, "}\n"])


def _default(parameter: Parameter, header: Header) -> str:
    if (known := OBJECTS.get(parameter.type)) is not None:
        return known
    match = _POINTER.match(parameter.type)
    if match is None:
        return f"({parameter.type})0"
    target = match[1]
    if target == "void":
        return "buffer"
    if target.startswith("struct ") and not target.endswith("*"):
        first = header.structures.get(target.removeprefix("struct "))
        # What only a function that is refused can make, or what a later release keeps to itself.
        if first is None and target not in {"struct _compat_ibv_port_attr", "struct ibv_async_event"}:
            return "fake(0)"
        if first == "struct ibv_context *context":
            return f"fake(sizeof({target}))"
    if target == "struct _compat_ibv_port_attr":
        target = "struct ibv_port_attr"
    return f"zeroed(sizeof({target}))"


def build(source: Path, output: Path, include: Path, libraries: Path | None) -> None:
    """Build a program against the headers in `include`, with the libraries of a folder (None: this machine's)."""
    link = ["-libverbs", "-lrdmacm", "-lpthread"]
    if libraries is not None:
        link = [*(str(libraries / name) for name in ("libibverbs.so.1", "librdmacm.so.1")), "-lpthread"]
    command = [
        *("gcc", "-std=gnu17", "-g", "-Wall", "-Wno-unused-function", "-Wno-deprecated-declarations"),
        *("-Wno-incompatible-pointer-types", f"-I{include}", f"-I{HERE}", str(source), "-o", str(output)),
        *("-Wl,--allow-shlib-undefined", *link),
    ]
    subprocess.run(command, check=True)


def run(command: Sequence[str], limit_s: float) -> dict[str, str]:
    """What the program said of each call, once it has said that it is done."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False)
    answers = dict(_said(line) for line in done.stdout.splitlines())
    if done.returncode != 0 or "done" not in answers:
        said = done.stdout[-4000:] + done.stderr[-4000:]
        raise AssertionError(f"the program ended with status {done.returncode}\n{said}")
    del answers["done"]
    return answers


def _said(line: str) -> tuple[str, str]:
    match = re.match(r"(\w+(?: \(symbol\))?) ?(.*)", line)
    return (match[1], match[2]) if match else ("", line)


def spoken(said: str) -> str:
    """What a call answered, in the words of the table: errors by name, in the convention that the call follows."""
    match = re.fullmatch(r"(void|pointer|NULL|-?\d+) (-?\d+)", said)
    if match is None:
        return said
    result, number = match[1], int(match[2])
    if result in ("void", "pointer"):
        return result
    if result in ("NULL", "-1"):
        return f"{result} {_error(number)}"
    value = int(result)
    if -4096 < value < 0:
        return f"-{_error(-value)}"
    return _error(value) if value in errno.errorcode else result


def _error(number: int) -> str:
    name = errno.errorcode.get(number, str(number))
    return UNSUPPORTED if number == errno.EOPNOTSUPP else name


def differences(answers: Mapping[str, str], expected: Mapping[str, Expected]) -> list[str]:
    """What is not as the table has it, one line for each function."""
    lines: list[str] = []
    for title, said in answers.items():
        wanted = expected.get(title, expected.get(title.removesuffix(" (symbol)")))
        answer = spoken(said)
        if not _agrees(said, answer, wanted):
            what = wanted.answer if wanted else f"{UNSUPPORTED}, as the table does not have it"
            lines.append(f"{title}: {answer}; should be {what}")
    return lines


def _agrees(said: str, answer: str, wanted: Expected | None) -> bool:
    came_back = re.fullmatch(r"(?:void|pointer|NULL|-?\d+) -?\d+", said) is not None
    if wanted is None:
        return came_back and (answer == "void" or re.fullmatch(f"(-1 |NULL |-)?{UNSUPPORTED}", answer) is not None)
    if wanted.answer == "value":
        return came_back
    # A number that is also that of an error is written as a number where it is not one.
    return wanted.answer in (answer, said.split(maxsplit=1)[0])
