"""YARN on HDFS, for MapReduce jobs: the ResourceManager on the first node, a NodeManager on every other.

Tasks run beside the DataNodes: the first replica of what one writes stays on its node, and it reads one that is there.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rocelab.tools import hdfs
from rocelab.tools.cloud import NODE_FOLDER, TEMPORARY, Daemon, Place, java, settings

#: Of a NodeManager: a task or two, and on one of them the job's application master.
_NODE_MEMORY_MB: Final = 2048
_CONTAINER_MEMORY_MB: Final = 512
_CONTAINER_HEAP: Final = f"-Xmx384m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true -Djava.io.tmpdir={TEMPORARY}"
_PACKAGE: Final = "org.apache.hadoop.yarn.server"
_SCHEDULER: Final = f"{_PACKAGE}.resourcemanager.scheduler.fifo.FifoScheduler"
#: Guice makes classes at run time.
_OPENS: Final = ("--add-opens=java.base/java.lang=ALL-UNNAMED",)


def files(place: Place) -> Mapping[str, str]:
    """The files of settings; that of MapReduce takes the place of the one that names the local runner."""
    path = ",".join(hdfs.classpath(place))
    return {
        "mapred-site.xml": settings(
            {
                "mapreduce.framework.name": "yarn",
                "mapreduce.application.classpath": path,
                "yarn.app.mapreduce.am.resource.mb": _CONTAINER_MEMORY_MB,
                "yarn.app.mapreduce.am.command-opts": f"{_CONTAINER_HEAP} {' '.join(_OPENS)}",
                "mapreduce.map.memory.mb": _CONTAINER_MEMORY_MB,
                "mapreduce.reduce.memory.mb": _CONTAINER_MEMORY_MB,
                "mapred.child.java.opts": _CONTAINER_HEAP,
                # One attempt, and no second one beside it: what is measured runs once.
                "mapreduce.map.maxattempts": 1,
                "mapreduce.reduce.maxattempts": 1,
                "mapreduce.map.speculative": "false",
                "mapreduce.client.submit.file.replication": hdfs.REPLICATION,
            }
        ),
        "yarn-site.xml": settings(
            {
                "yarn.resourcemanager.hostname": place.master.name,
                "yarn.resourcemanager.scheduler.class": _SCHEDULER,
                "yarn.scheduler.minimum-allocation-mb": _CONTAINER_MEMORY_MB,
                # Else in /tmp, of all runs and for ever.
                "yarn.node-attribute.fs-store.root-dir": f"{NODE_FOLDER}/yarn/attributes",
                "yarn.application.classpath": path,
                "yarn.nodemanager.resource.memory-mb": _NODE_MEMORY_MB,
                "yarn.nodemanager.resource.cpu-vcores": 2,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.aux-services": "mapreduce_shuffle",
                "yarn.nodemanager.local-dirs": f"{NODE_FOLDER}/yarn/local",
                "yarn.nodemanager.log-dirs": f"{NODE_FOLDER}/yarn/logs",
                # That many percent of the node's memory file system may be in use.
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
                # A job's end is what is waited for.
                "yarn.app.mapreduce.client.max-retries": 10,
            }
        ),
        **{f"webapps/{name}/index.html": "" for name in ("cluster", "node", "mapreduce")},
    }


def daemons(place: Place) -> Sequence[Sequence[Daemon]]:
    """NodeManagers keep asking until there is a ResourceManager, so all are started at once."""
    path = hdfs.classpath(place)
    workers = [
        Daemon(
            f"NodeManager on {host.node}",
            host,
            _with_home(
                java(
                    192,
                    path,
                    f"{_PACKAGE}.nodemanager.NodeManager",
                    f"-Dyarn.nodemanager.hostname={host.name}",
                    options=_OPENS,
                )
            ),
        )
        for host in place.workers
    ]
    master = Daemon(
        f"ResourceManager on {place.master.node}",
        place.master,
        java(256, path, f"{_PACKAGE}.resourcemanager.ResourceManager", options=_OPENS),
        ready=r"registered with capability",
        ready_count=len(workers),
    )
    return [[*workers, master]]


def _with_home(argv: Sequence[str]) -> tuple[str, ...]:
    """NodeManagers start containers by ``$JAVA_HOME/bin/java``."""
    found = shutil.which("java")
    home = Path(found).resolve().parents[1] if found else Path("/usr")
    return ("env", f"JAVA_HOME={home}", *argv)
