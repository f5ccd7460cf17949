"""rocelab-sock itself, over loopback: every kind of job, wrong data, wrong use, and a peer that talks nonsense."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from rocelab.tools import sock

BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture(scope="module", params=["plain", pytest.param("sanitized", marks=pytest.mark.slow)])
def program(request: pytest.FixtureRequest) -> str:
    """The usual build, and one in which ASan and UBSan watch."""
    if request.param == "plain":
        if sock.program().path is None:
            pytest.skip("rocelab-sock is not built: make -C bench")
        return sock.program().name
    made = subprocess.run(
        ["make", "-C", str(BENCH), "SANITIZE=1", "build/sanitize/rocelab-sock"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if made.returncode != 0:
        pytest.skip(f"rocelab-sock cannot be built with sanitizers: {made.stderr.strip()[-200:]}")
    return str(BENCH / "build" / "sanitize" / "rocelab-sock")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def server(program: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    process = subprocess.Popen([program, "server", "--port", str(port)], stderr=subprocess.PIPE, text=True)
    until(lambda: is_listening(port), process)
    try:
        yield process, port
    finally:
        process.kill()
        process.communicate()


def client(program: str, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [program, "client", "127.0.0.1", "--port", str(port), *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def measure(program: str, *options: str) -> dict[str, Any]:
    with server(program) as (process, port):
        done = client(program, port, *options)
        assert done.returncode == 0, done.stderr
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    report: dict[str, Any] = json.loads(done.stdout)
    return report


JOBS = [
    (protocol, test, waiting, size)
    for protocol, test, waiting, size in itertools.product(
        ("tcp", "udp"),
        ("latency", "bandwidth", "bidirectional"),
        ("blocking", "busy-poll", "spin"),
        (1, 1000, 65507, 1 << 20),
    )
    if protocol == "tcp" or (size <= 65507 and waiting != "spin")
]


@pytest.mark.parametrize(("protocol", "test", "waiting", "size"), JOBS)
def test_every_kind_of_job(program: str, protocol: str, test: str, waiting: str, size: int) -> None:
    options = ("--protocol", protocol, "--test", test, "--waiting", waiting, "--size", str(size))
    report = measure(program, *options, "--messages", "20", "--warmup", "3")
    assert report["content_checked"] is True
    each_way = 20 * size
    if test == "latency":
        latency = report["latency_us"]
        assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["max"]
        assert latency["min"] <= latency["mean"] <= latency["max"]
        assert report["client"]["elapsed_s"] * 1e6 == pytest.approx(2 * 20 * latency["mean"], rel=0.01, abs=1)
        return
    assert report["client"]["sent_bytes"] == each_way
    assert report["server"]["sent_bytes"] == (each_way if test == "bidirectional" else 0)
    received = report["client"]["received_bytes"] + report["server"]["received_bytes"]
    sent = report["client"]["sent_bytes"] + report["server"]["sent_bytes"]
    assert received == sent - report["lost_messages"] * size
    if protocol == "tcp":
        assert report["lost_messages"] == 0
        elapsed_s = report["client"]["elapsed_s"]
        assert report["bandwidth_mbps"] == pytest.approx(received * 8 / elapsed_s / 1e6, rel=1e-3)


@pytest.mark.parametrize("test", ["latency", "bandwidth", "bidirectional"])
@pytest.mark.parametrize("waiting", ["blocking", "busy-poll", "spin"])
@pytest.mark.parametrize("size_bytes", [1, 5000, 3_000_000])
def test_messages_that_are_lent_to_the_kernel_arrive_as_they_are(
    program: str, test: str, waiting: str, size_bytes: int
) -> None:
    options = ("--test", test, "--waiting", waiting, "--size", str(size_bytes), "--messages", "40", "--zero-copy")
    report = measure(program, *options)
    assert report["server"]["received_bytes"] == 40 * size_bytes


@pytest.mark.parametrize("option", ["--zero-copy", "--waiting spin", "--kernel-poll poll"])
def test_what_datagrams_do_not_have(program: str, option: str) -> None:
    done = subprocess.run(
        [program, "client", "localhost", "--protocol", "udp", *option.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"{' '.join(option.split()[:2] if 'spin' in option else option.split()[:1])} is for TCP" in done.stderr


#: What a client says first for one message of one byte: the job, of which the test and the way of
#: waiting are open.
JOB = "rocelab-sock 6 tcp {} {} none 1 1 0 0 1 0 0 0\n"


@pytest.mark.parametrize("test", ["latency", "bandwidth"])
def test_an_end_that_looks_first_asks_repeatedly_and_then_sleeps(program: str, test: str, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is missing: apt-get install strace")
    port, trace = free_port(), tmp_path / "trace"
    argv = [strace, "-f", "-e", "trace=recvfrom", "-o", str(trace), program, "server", "--port", str(port)]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: is_listening(port), process)
        with closing(socket.create_connection(("127.0.0.1", port))) as control:
            control.sendall(JOB.format(test, "spin").encode())
            with closing(socket.create_connection(("127.0.0.1", port))):
                until(lambda: is_asleep(trace), process)
                calls = trace.read_text().splitlines()
    finally:
        process.kill()
        process.communicate()
    vain = [line for line in calls if "MSG_DONTWAIT" in line and "EAGAIN" in line]
    # It looks at the clock only at every sixteenth time.
    assert len(vain) >= 16


def is_asleep(trace: Path) -> bool:
    """Whether the last call has not returned, and is one that may sleep, but not of the control conversation."""
    # strace fills numbers of fewer than five digits up with spaces.
    process, _, call = trace.read_text().rpartition("\n")[2].partition(" ")
    if not call.lstrip().startswith("recvfrom(") or ") = " in call:
        return False
    # strace tells the flags only when the call returns.
    words = Path("/proc", process, "syscall").read_text().split()
    return len(words) > 4 and int(words[4], 16) & (socket.MSG_DONTWAIT | socket.MSG_WAITALL) == 0


def is_listening(port: int) -> bool:
    # The port shows in /proc/net/tcp6 without a connection, which would be taken for the client's.
    return f":{port:04X} 00000000000000000000000000000000:0000 0A" in Path("/proc/net/tcp6").read_text()


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


@pytest.mark.parametrize("test", ["latency", "bandwidth", "bidirectional"])
@pytest.mark.parametrize("waiting", ["blocking", "busy-poll"])
def test_both_ends_report_what_the_kernel_polls(program: str, test: str, waiting: str) -> None:
    options = ("--test", test, "--waiting", waiting, "--size", "100", "--messages", "10")
    plain, polled = measure(program, *options), measure(program, *options, "--kernel-poll", "poll")
    for end in ("client", "server"):
        assert (plain[end]["busy_poll_us"], plain[end]["prefer_busy_poll"]) == (usual_busy_poll_us(), False)
        assert (polled[end]["busy_poll_us"], polled[end]["prefer_busy_poll"]) == (100, False)
        # Over loopback nothing comes by NAPI.
        assert polled[end]["napi_id"] is None


#: linux/socket.h
SO_PREFER_BUSY_POLL = 69


def usual_busy_poll_us() -> int:
    return int(Path("/proc/sys/net/core/busy_read").read_text())


def test_polling_in_place_of_interrupts_is_set_or_fails_the_run(program: str) -> None:
    options = ("--messages", "10", "--kernel-poll", "prefer")
    with closing(socket.socket()) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PREFER_BUSY_POLL, 1)
            may = True
        except PermissionError:
            may = False
    if may:
        report = measure(program, *options)
        assert all(report[end]["prefer_busy_poll"] is True for end in ("client", "server"))
        return
    with server(program) as (_, port):
        done = client(program, port, *options)
    assert done.returncode == 1
    assert "SO_PREFER_BUSY_POLL cannot be set to 1: Operation not permitted; it needs CAP_NET_ADMIN" in done.stderr
    assert done.stdout == ""


def test_polling_without_interrupts_is_refused_to_ordinary_users(program: str) -> None:
    with server(program) as (_, port):
        argv = [program, "client", "127.0.0.1", "--port", str(port), "--kernel-poll", "prefer"]
        # As root of a user namespace, which is an ordinary user to the kernel.
        made = subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            pytest.skip(f"no user namespaces here: {made.stderr.strip()}")
        done = subprocess.run(["unshare", "--user", *argv], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "SO_PREFER_BUSY_POLL cannot be set to 1: Operation not permitted; it needs CAP_NET_ADMIN" in done.stderr


def test_a_stream_without_delay(program: str) -> None:
    report = measure(program, "--test", "bandwidth", "--size", "64", "--messages", "1000", "--no-delay")
    assert report["client"]["sent_bytes"] == 64000
    assert report["content_checked"] is True


@pytest.mark.parametrize("test", ["latency", "bandwidth", "bidirectional"])
def test_both_ends_report_what_their_connection_had(program: str, test: str) -> None:
    report = measure(program, "--test", test, "--size", "100", "--messages", "10")
    with closing(socket.socket()) as plain:
        usual = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    for end in ("client", "server"):
        assert report[end]["congestion_control"] == usual
        assert 0 < report[end]["mss_bytes"] < 65536
        assert report[end]["send_buffer_bytes"] > 100
        assert report[end]["receive_buffer_bytes"] > 100


def test_datagrams_have_neither_congestion_control_nor_segments(program: str) -> None:
    report = measure(program, "--protocol", "udp", "--messages", "10")
    for end in ("client", "server"):
        assert report[end]["congestion_control"] is None
        assert report[end]["mss_bytes"] is None
        assert report[end]["receive_buffer_bytes"] > 0


def test_warm_up_may_be_left_out(program: str) -> None:
    assert measure(program, "--messages", "1", "--warmup", "0")["messages"] == 1


@contextmanager
def corrupting_proxy(to_port: int) -> Iterator[int]:
    """Passes TCP connections on. The first (control) stays as it is; the bytes of the second are turned over."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets = [listener]

    def pump(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
        # An end that goes is how this test ends. With unread data it goes with a reset; the other
        # end has to see that, too.
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(change(data))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        for change in (lambda data: data, lambda data: bytes(byte ^ 0xFF for byte in data)):
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", to_port))
            open_sockets.extend((near, far))
            threading.Thread(target=pump, args=(near, far, change), daemon=True).start()
            threading.Thread(target=pump, args=(far, near, lambda data: data), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        for one in open_sockets:
            one.close()
        thread.join(5)


@pytest.mark.parametrize("test", ["latency", "bandwidth", "bidirectional"])
def test_wrong_data_fails_the_run(program: str, test: str) -> None:
    with server(program) as (_, port), corrupting_proxy(port) as proxy:
        done = client(program, proxy, "--test", test, "--size", "100", "--messages", "10")
    assert done.returncode == 1
    assert "wrong data" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["client"], "host name or address is missing"),
        (["client", "h", "--size", "0"], "--size must be 1 to 1073741824"),
        (["client", "h", "--size", "-1"], "a whole number is needed"),
        (["client", "h", "--size", "1k"], "a whole number is needed"),
        (["client", "h", "--size", "99999999999999999999"], "a whole number is needed"),
        (["client", "h", "--protocol", "udp", "--size", "65508"], "1 to 65507"),
        (["client", "h", "--messages", "0"], "--messages must be"),
        (["client", "h", "--seconds", "1"], "--seconds is for --test bandwidth over TCP"),
        (["client", "h", "--seconds", "100001"], "--seconds must be 0 to 100000"),
        (["client", "h", "--margin", "0"], "--margin 1 to 100000"),
        (["client", "h", "--waiting", "sleepy"], "blocking, busy-poll or spin"),
        (["client", "h", "--kernel-poll", "always"], "none, poll or prefer"),
        (["client", "h", "--port", "65536"], "a port is 1 to 65535"),
        (["client", "h", "i"], "not expected here"),
        (["server", "--colour", "red"], "unrecognized option"),
        (["dance"], "rocelab-sock client HOST"),
        ([], "rocelab-sock client HOST"),
    ],
)
def test_wrong_use_says_what_is_allowed(program: str, options: list[str], says: str) -> None:
    done = subprocess.run([program, *options], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    ["--size 64", "--size 100000 --waiting busy-poll", "--size 7 --waiting spin", "--size 65536 --zero-copy"],
)
def test_a_stream_may_go_on_for_some_seconds(program: str, options: str) -> None:
    report = measure(program, "--test", "bandwidth", "--seconds", "1", *options.split())
    received, elapsed_s = report["server"]["received_bytes"], report["server"]["elapsed_s"]
    assert received > 0
    assert report["seconds"] == 1
    assert report["messages"] == received // report["size_bytes"]
    assert report["bandwidth_mbps"] == pytest.approx(received * 8 / elapsed_s / 1e6, rel=1e-3)
    # The sender's own window has what it sent, whole messages or not.
    assert report["client"]["sent_bytes"] > 0
    assert report["lost_messages"] == 0


def test_a_sender_that_closes_within_a_message_fails_the_run(program: str) -> None:
    with server(program) as (process, port), closing(socket.create_connection(("127.0.0.1", port))) as control:
        control.sendall(b"rocelab-sock 6 tcp bandwidth blocking none 100 1 0 1 1 0 0 0\n")
        with closing(socket.create_connection(("127.0.0.1", port))) as data:
            assert control.recv(100).startswith(b"ready")
            # Each phase ends on a byte: no warm-up, no number of messages, four that are compared.
            message = bytes((at * 2654435761 & 0xFFFFFFFF) >> 24 for at in range(100))
            data.sendall(b"\1" + b"\1" + 4 * message + b"\1" + 2 * message + message[:50])
            data.shutdown(socket.SHUT_WR)
            _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "closed the connection within a message" in said


def test_nobody_there(program: str) -> None:
    done = client(program, free_port())
    assert done.returncode == 1
    assert "Connection refused" in done.stderr


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\n",
        b"rocelab-sock 5 tcp latency blocking none 1 1 1 0 0 0\n",
        b"rocelab-sock 6 tcp latency blocking none 0 1 1 0 1 0 0 0\n",
        b"rocelab-sock 6 tcp latency blocking none 99999999999999 1 1 0 1 0 0 0\n",
        b"rocelab-sock 6 tcp juggling blocking none 1 1 1 0 1 0 0 0\n",
        b"rocelab-sock 6 tcp latency blocking always 1 1 1 0 1 0 0 0\n",
        b"rocelab-sock 6 tcp latency blocking none 1 1 1 5 1 0 0 0\n",
        b"rocelab-sock 6 tcp bandwidth blocking none 1 1 1 5 0 0 0 0\n",
        b"x" * 5000,
        b"",
    ],
)
def test_a_server_refuses_nonsense(program: str, nonsense: bytes) -> None:
    with server(program) as (process, port), closing(socket.create_connection(("127.0.0.1", port))) as peer:
        peer.sendall(nonsense)
        with suppress(OSError):  # it may be gone already
            peer.shutdown(socket.SHUT_WR)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.startswith("rocelab-sock: ")
    assert "runtime error" not in said
    assert "AddressSanitizer" not in said


def test_the_port_is_taken(program: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        argv = [program, "server", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
