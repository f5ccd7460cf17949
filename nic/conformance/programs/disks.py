"""A disk over iSER: tgt has it, and a client of libiscsi writes to it and reads it back.

Usage: disks.py server TGTD TGTADM FOLDER
       disks.py client SERVER

TGTD and TGTADM are the programs, FOLDER is where the disk is, SERVER an address. The server listens on a port of its
own, with TCP, once the disk can be had.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

#: The one that tgt listens on by itself.
PORT = 3260
READY_PORT = 18515
LIMIT_S = 60.0
TARGET = "iqn.2026-11.org.example:disk"
#: Over iSER, tgt lets in an initiator that it knows by address and by name; over TCP one of them is
#: enough.
INITIATOR = "iqn.2026-11.org.example:client"
LUN = 1
BLOCK_BYTES = 512
REQUEST_BYTES = 64 << 10
DISK_BYTES = 1 << 20
#: <iscsi/iscsi.h>
ISER_TRANSPORT, ISCSI_SESSION_NORMAL, ISCSI_HEADER_DIGEST_NONE = 1, 2, 0


def serve(tgtd: str, tgtadm: str, folder: str) -> None:
    """Serve a disk until this is stopped."""
    disk = Path(folder, "disk")
    disk.write_bytes(bytes(DISK_BYTES))
    env = {**os.environ, "TGT_IPC_SOCKET": str(Path(folder, "tgtd"))}
    # With the least memory that it takes.
    daemon = subprocess.Popen([tgtd, "-f", "--iser", "pool_sz_mb=128"], env=env)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        wait_for(daemon, [tgtadm, "--op", "show", "--mode", "system"], env)
        for words in (
            f"--op new --mode target --tid 1 --targetname {TARGET}",
            f"--op new --mode logicalunit --tid 1 --lun {LUN} --backing-store {disk}",
            "--op bind --mode target --tid 1 --initiator-address ALL",
            f"--op bind --mode target --tid 1 --initiator-name {INITIATOR}",
        ):
            subprocess.run([tgtadm, "--lld", "iser", *words.split()], env=env, check=True)
        with socket.create_server(("", READY_PORT)):
            daemon.wait()
    finally:
        daemon.kill()


def wait_for(daemon: subprocess.Popen[bytes], question: list[str], env: dict[str, str]) -> None:
    """Wait until a daemon answers a question."""
    deadline_s = time.monotonic() + LIMIT_S
    while (done := subprocess.run(question, env=env, capture_output=True, text=True, check=False)).returncode != 0:
        if daemon.poll() is not None or time.monotonic() > deadline_s:
            sys.exit(f"the daemon does not answer: {done.stderr}")
        time.sleep(0.05)


class Piece(ctypes.Structure):
    """`struct scsi_iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Disk:
    """A disk that libiscsi has logged in to."""

    def __init__(self, server: str) -> None:
        self._library = ctypes.CDLL("libiscsi.so.7")
        for name in ("iscsi_create_context", "iscsi_write16_sync", "iscsi_read16_iov_sync"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.iscsi_get_error.restype = ctypes.c_char_p
        self._context = ctypes.c_void_p(self._library.iscsi_create_context(INITIATOR.encode()))
        self._library.iscsi_init_transport(self._context, ISER_TRANSPORT)
        self._library.iscsi_set_targetname(self._context, TARGET.encode())
        self._library.iscsi_set_session_type(self._context, ISCSI_SESSION_NORMAL)
        self._library.iscsi_set_header_digest(self._context, ISCSI_HEADER_DIGEST_NONE)
        if self._library.iscsi_full_connect_sync(self._context, f"{server}:{PORT}".encode(), LUN) != 0:
            self._fail("login")

    def write(self, at: int, data: bytes) -> None:
        """Write whole blocks."""
        start = ctypes.c_uint64(at // BLOCK_BYTES)
        task = self._library.iscsi_write16_sync(
            self._context, LUN, start, data, len(data), BLOCK_BYTES, *(0, 0, 0, 0, 0)
        )
        self._check("write", task)

    def read(self, at: int, size: int) -> bytes:
        """Read whole blocks."""
        data = ctypes.create_string_buffer(size)
        piece = Piece(ctypes.addressof(data), size)
        start = ctypes.c_uint64(at // BLOCK_BYTES)
        task = self._library.iscsi_read16_iov_sync(
            self._context, LUN, start, size, BLOCK_BYTES, *(0, 0, 0, 0, 0), ctypes.byref(piece), 1
        )
        self._check("read", task)
        return data.raw

    def _check(self, what: str, task: int | None) -> None:
        # What a task begins with is its status; 0 is GOOD.
        if task is None or ctypes.c_int.from_address(task).value != 0:
            self._fail(what)

    def _fail(self, what: str) -> None:
        sys.exit(f"{what}: {self._library.iscsi_get_error(self._context).decode()}")


def use(server: str) -> None:
    """Write a disk full and read it."""
    disk = Disk(server)
    data = random.Random(7).randbytes(DISK_BYTES)
    places = range(0, DISK_BYTES, REQUEST_BYTES)
    for at in places:
        disk.write(at, data[at : at + REQUEST_BYTES])
    read = b"".join(disk.read(at, REQUEST_BYTES) for at in places)
    if read != data:
        sys.exit("what was read is not what was written")
    print("all data right", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(*sys.argv[2:])
    else:
        use(*sys.argv[2:])
