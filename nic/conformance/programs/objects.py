"""A cluster of Ceph whose messages go over RDMA: a monitor and an OSD with objects in memory; a client stores some.

Usage: objects.py server|client CEPH FOLDER ADDRESS DEVICE

CEPH is where Ceph is unpacked, FOLDER is the same for both, ADDRESS is the server's, DEVICE the RDMA device of each.
The server listens on a port of its own, with TCP, once the first object is stored.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

READY_PORT = 18515
LIMIT_S = 120.0
BYTES = 3_000_000
POOL = "pool"
CONFIGURATION = """[global]
fsid = {id}
mon_host = [v2:{address}:3300/0]
mon_initial_members = a
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
# All messages, of daemons and clients. By itself it would register 4 GiB for them.
ms_type = async+rdma
ms_async_rdma_device_name = {device}
ms_async_rdma_receive_queue_len = 256
ms_async_rdma_receive_buffers = 1024
ms_async_rdma_send_buffers = 256
ms_bind_msgr1 = false
# One copy, in memory.
osd_objectstore = memstore
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_data_avail_crit = 1
mon_data = {folder}/mon
osd_data = {folder}/osd
run_dir = {folder}
admin_socket = {folder}/$name.$pid.asok
log_file = {folder}/$name.$pid.log
mon_cluster_log_file = {folder}/cluster.log
osd_class_dir = {libraries}/rados-classes
erasure_code_dir = {libraries}/ceph/erasure-code
plugin_dir = {libraries}/ceph
"""


@dataclass
class Cluster:
    """Where its programs and files are."""

    ceph: Path
    folder: Path
    address: str
    device: str

    @property
    def configuration(self) -> Path:
        """What all of them are told."""
        return self.folder / "ceph.conf"

    def configure(self) -> str:
        """Write the configuration; the name of the cluster."""
        identity = str(uuid.uuid4())
        libraries = next(self.ceph.glob("usr/lib/*/rados-classes")).parent
        text = CONFIGURATION.format(
            id=identity, address=self.address, device=self.device, folder=self.folder, libraries=libraries
        )
        self.configuration.write_text(text, encoding="utf-8")
        return identity

    def command(self, program: str, *words: object) -> list[str]:
        """A command line."""
        path = self.ceph / "usr/bin" / program
        # A script, for the Python that its modules were built for.
        start = ["/usr/bin/python3", str(path)] if program == "ceph" else [str(path)]
        return [*start, "--conf", str(self.configuration), *map(str, words)]

    def run(self, program: str, *words: object) -> str:
        """Run a program, and give what it prints."""
        done = subprocess.run(
            self.command(program, *words), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode != 0:
            sys.exit(f"{program} {words} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def serve(self) -> None:
        """Make the cluster, and keep it up until this is stopped."""
        identity, disk = self.configure(), uuid.uuid4()
        (self.folder / "osd").mkdir()
        daemons: list[subprocess.Popen[bytes]] = []
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        monitors = self.folder / "monmap"
        try:
            self.run(
                "monmaptool", "--create", "--fsid", identity, "--addv", "a", f"[v2:{self.address}:3300/0]", monitors
            )
            self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)
            daemons.append(subprocess.Popen(self.command("ceph-mon", "-f", "-i", "a", "--public-addr", self.address)))
            self.run("ceph", "osd", "new", disk)
            self.run("ceph-osd", "--mkfs", "-i", 0, "--osd-uuid", disk)
            daemons.append(subprocess.Popen(self.command("ceph-osd", "-f", "-i", 0, "--public-addr", self.address)))
            self.run("ceph", "osd", "pool", "create", POOL, 8)
            self.run("rados", "--pool", POOL, "put", "first", self.configuration)
            with socket.create_server(("", READY_PORT)):
                while all(daemon.poll() is None for daemon in daemons):
                    time.sleep(0.2)
            sys.exit("a daemon has ended")
        finally:
            for daemon in daemons:
                daemon.kill()

    def use(self) -> None:
        """Store an object and many, and read them."""
        sent, received = self.folder / "sent", self.folder / "received"
        sent.write_bytes(random.Random(7).randbytes(BYTES))
        self.run("rados", "--pool", POOL, "put", "object", sent)
        self.run("rados", "--pool", POOL, "get", "object", received)
        if sent.read_bytes() != received.read_bytes():
            sys.exit("what was read is not what was written")
        bench = ("--pool", POOL, "bench", 30)
        # Four at a time; reading compares them with what was written.
        self.run("rados", *bench, "write", "-b", 65536, "-t", 4, "--max-objects", 100, "--no-cleanup")
        self.run("rados", *bench, "seq", "-t", 4)
        print("all data right", flush=True)


if __name__ == "__main__":
    role, ceph, folder, address, device = sys.argv[1:]
    cluster = Cluster(Path(ceph), Path(folder), address, device)
    if role == "server":
        cluster.serve()
    else:
        cluster.use()
