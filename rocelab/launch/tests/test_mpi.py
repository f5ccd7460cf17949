"""Command lines and environments of MPI launchers; starting them for real is the programs' own tests' part."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from rocelab.devices import DevicePort
from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile, RemoteShell
from rocelab.launch import mpi
from rocelab.launch.namespace import NamespaceLauncher

SHELL = RemoteShell("/tmp/enter", {})
JOB = mpi.Job(
    ["bench", "latency"], ["node0", "node1"], ["eth7", "eth7"], ranks_per_node=2, wrapper=["urxe", "run", "--"]
)


def implementation(kind: mpi.Kind) -> mpi.Mpi:
    return mpi.Mpi(kind, Path("/opt/bin"), "install it")


def test_open_mpi() -> None:
    kind, transport = mpi.transport("soft-roce", "openmpi-ucx")
    argv = mpi.command(implementation(kind), JOB, SHELL)
    assert argv[0] == "/opt/bin/mpiexec"
    assert argv[argv.index("--host") + 1] == "node0:2,node1:2"
    assert argv[argv.index("-n") + 1] == "4"
    assert argv[argv.index("plm_ssh_agent") + 1] == "/tmp/enter"
    assert argv[-5:] == ["urxe", "run", "--", "bench", "latency"]
    assert mpi.environment(implementation(kind), JOB, transport)["UCX_NET_DEVICES"] == "urxe_eth7:1"


def test_ranks_that_share_a_core_let_each_other_run() -> None:
    kind, transport = mpi.transport("tcp", "openmpi-ob1")
    for cores, yields in ((4, False), (3, True)):
        job = dataclasses.replace(JOB, cores=cores)
        assert ("OMPI_MCA_mpi_yield_when_idle" in mpi.environment(implementation(kind), job, transport)) == yields


def test_mpich() -> None:
    kind, transport = mpi.transport("tcp", "mpich-ofi")
    argv = mpi.command(implementation(kind), JOB, SHELL)
    assert argv[argv.index("-launcher-exec") + 1] == "/tmp/enter"
    assert mpi.environment(implementation(kind), JOB, transport)["FI_TCP_IFACE"] == "eth7"


def on_devices(*devices: DevicePort) -> dict[str, str]:
    kind, transport = mpi.transport("roce", "openmpi-ucx")
    return mpi.environment(implementation(kind), dataclasses.replace(JOB, devices=devices), transport)


def test_a_device_is_named_with_its_port_and_its_address() -> None:
    found = on_devices(DevicePort("mlx5_0", 1, 3), DevicePort("mlx5_0", 1, 3))
    assert (found["UCX_NET_DEVICES"], found["UCX_IB_GID_INDEX"]) == ("mlx5_0:1", "3")


def test_different_devices_are_named_and_ucx_finds_addresses() -> None:
    found = on_devices(DevicePort("mlx5_0", 1, 3), DevicePort("mlx5_2", 2, 5))
    assert found["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_2:2"
    assert "UCX_IB_GID_INDEX" not in found
    assert "UCX_IB_GID_INDEX" not in on_devices(DevicePort("mlx4_0"), DevicePort("mlx4_0"))


def test_interfaces_of_several_names_are_all_named() -> None:
    job = dataclasses.replace(JOB, interfaces=["eno1", "enp3s0"])
    kind, transport = mpi.transport("soft-roce", "mpich-ucx")
    assert mpi.environment(implementation(kind), job, transport)["UCX_NET_DEVICES"] == "urxe_eno1:1,urxe_enp3s0:1"


@pytest.mark.parametrize("variant", ["openmpi-ucx", "mpich-ucx"])
def test_over_roce_v1_ranks_differ_by_their_address_alone(variant: str) -> None:
    def environment(name: str) -> dict[str, str]:
        kind, transport = mpi.transport("soft-roce", name)
        return mpi.environment(implementation(kind), JOB, transport)

    assert environment(f"{variant}-roce-v1") == {
        **environment(variant),
        "URXE_ROCE_V1": "on",
        "UCX_IB_GID_INDEX": "32",
    }


@pytest.mark.parametrize("variant", ["openmpi-ofi", "mpich-ofi"])
def test_over_iwarp_ranks_differ_by_the_transport_of_their_device_alone(variant: str) -> None:
    environments = []
    for interconnect in ("soft-roce", "soft-iwarp"):
        kind, transport = mpi.transport(interconnect, variant)
        environments.append(mpi.environment(implementation(kind), JOB, transport))
    assert environments[1] == {**environments[0], "URXE_TRANSPORT": "iwarp"}
    assert environments[1]["FI_VERBS_IFACE"] == "eth7"


@pytest.mark.parametrize("variant", ["openmpi-ucx", "mpich-ucx"])
def test_ranks_run_in_a_folder_that_all_nodes_have(variant: str) -> None:
    kind, _ = mpi.transport("soft-roce", variant)
    argv = mpi.command(implementation(kind), JOB, RemoteShell("/tmp/enter", {}, "/tmp/all"))
    assert argv[argv.index("-wdir") + 1] == "/tmp/all"
    assert "-wdir" not in mpi.command(implementation(kind), JOB, SHELL)


@pytest.mark.parametrize(("variant", "management"), [("openmpi-ucx", "pmix"), ("mpich-ucx", "pmi2")])
def test_where_the_site_wants_it_slurm_starts_the_ranks(variant: str, management: str) -> None:
    kind, _ = mpi.transport("soft-roce", variant)
    shell = RemoteShell("/tmp/enter", {}, "/tmp/all", ("srun", "--jobid=7"))
    argv = mpi.command(implementation(kind), dataclasses.replace(JOB, mapping="node"), shell)
    assert argv[:2] == ["srun", "--jobid=7"]
    assert {f"--mpi={management}", "--nodes=2", "--nodelist=node0,node1", "--ntasks=4", "--chdir=/tmp/all"} <= set(argv)
    assert "--distribution=cyclic" in argv
    assert argv[-5:] == ["urxe", "run", "--", "bench", "latency"]


def test_every_variant_is_of_one_implementation() -> None:
    for interconnect in ("tcp", "soft-roce", "soft-iwarp"):
        for variant in mpi.variants(interconnect):
            kind, transport = mpi.transport(interconnect, variant)
            assert variant.startswith(kind)
            assert transport.urxe == (interconnect != "tcp")
    assert mpi.variants("carrier-pigeon") == ()


def test_an_mpi_that_a_study_names(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mpiexec").touch()
    assert mpi.installed("openmpi", str(tmp_path)).folder == tmp_path / "bin"
    assert mpi.installed("openmpi", str(tmp_path / "bin")).folder == tmp_path / "bin"
    assert "names /nowhere" in mpi.installed("mpich", "/nowhere").remedy


OPEN_MPI = "echo 'mpiexec (Open MPI) 5.0.5'; echo; echo 'Report bugs to https://example.org'"
OPEN_MPI_4 = "echo 'mpiexec (Open MPI) 4.1.4'"
MPICH = "echo 'HYDRA build details:'; echo '    Version:                                 4.2.0'"
OTHER = "echo 'Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 1'"


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("kind", "script", "version", "says"),
    [
        ("openmpi", OPEN_MPI, "5.0.5", None),
        ("mpich", MPICH, "4.2.0", None),
        ("openmpi", OPEN_MPI_4, "4.1.4", "is Open MPI 4.1.4; 5 and newer can be used"),
        ("openmpi", MPICH, None, "is not the Open MPI that it is taken for: it is MPICH 4.2.0"),
        ("mpich", OPEN_MPI_4, None, "is not the MPICH that it is taken for: it is Open MPI 4.1.4"),
        ("mpich", OTHER, None, "it says 'Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 1' of itself"),
        ("mpich", "exit 3", None, "it says 'nothing' of itself"),
    ],
)
def test_an_mpi_says_which_it_is(
    tmp_path: Path, kind: mpi.Kind, script: str, version: str | None, says: str | None
) -> None:
    found = mpi.installed(kind, str(program(tmp_path, "mpiexec", script)))
    assert found.version == version
    assert found.problem is None if says is None else says in str(found.problem)


def test_the_system_may_have_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in (("mpiexec.openmpi", OPEN_MPI), ("mpiexec.hydra", MPICH), ("mpiexec", OPEN_MPI)):
        program(tmp_path, name, script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert [mpi.installed(kind, "system").version for kind in mpi.KINDS] == ["5.0.5", "4.2.0"]
    (tmp_path / "mpiexec.hydra").unlink()
    assert "it is Open MPI 5.0.5" in str(mpi.installed("mpich", "system").problem)


def test_what_is_not_there_has_no_problem_but_that() -> None:
    assert mpi.installed("mpich", "/nowhere").problem is None
    assert mpi.installed("mpich", "/nowhere").version is None


@pytest.mark.fabric
def test_the_remote_shell_starts_programs_on_other_nodes() -> None:
    try:
        made = emulated.up([LinkProfile("direct", "direct")])
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made as fabric:
        launcher = NamespaceLauncher(fabric)
        core = max(os.sched_getaffinity(0))
        with launcher.remote_shell({"COLOUR": "blue"}, {"node1": [core]}) as shell:

            def over(*command: str) -> tuple[int, str]:
                argv = [shell.program, "-x", *command]
                finished = launcher.start(fabric.nodes[0], argv, env=shell.env).wait(20)
                return finished.exit_status, finished.stdout + finished.stderr

            assert over("node1", "uname -n; echo $COLOUR") == (0, "node1\nblue\n")
            assert over("node1", "taskset -cp $$")[1].endswith(f": {core}\n")
            assert over("node1", "exit 7")[0] == 7
            status, words = over("node9", "true")
            assert status != 0
            assert "no node 'node9'" in words
            # What was asked for ends with the asker: no other process would end it.
            asking = launcher.start(fabric.nodes[0], [shell.program, "node1", "exec sleep 4321"], env=shell.env)
            sleeping = launcher.start(
                fabric.nodes[1], ["sh", "-c", "until pgrep -f 'sleep 4321' >&2; do sleep 0.05; done"]
            )
            assert sleeping.wait(20).exit_status == 0
            asking.stop()
            gone = launcher.start(
                fabric.nodes[1], ["sh", "-c", "while pgrep -x sleep -f 'sleep 4321'; do sleep 0.05; done"]
            )
            assert not gone.wait(20).timed_out
