"""Packages in fresh systems: each way to get rocelab, on each release, by a user without rights. `make test-packages`.

The systems have what docs/install.md names, and no compiler and no checkout.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

import fresh  # noqa: E402, it lies beside what is tested
import oci  # noqa: E402

PACKAGES = HERE.parent / ".build" / "packages"
PAGE = HERE.parent / "docs" / "install.md"
#: How long the programs and the study may take after the download, in seconds.
LIMIT_S = 120.0
BINDS = {PACKAGES: "/packages"}
#: What lintian asks of uploads to Debian alone: a number of the bug that announces a package.
UNRELEASED = "initial-upload-closes-no-bugs"
PINGPONG = """
set -e
urxe run -- ibv_rc_pingpong -d urxe_lo -g 0 > /tmp/server 2>&1 &
for _ in $(seq 50); do
    sleep 0.2
    urxe run -- ibv_rc_pingpong -d urxe_lo -g 0 127.0.0.1 && break
done
wait $!
cat /tmp/server
"""


def named(way: str) -> list[str]:
    """The packages of the distribution that the page names for a way of installing, on the line with its mark."""
    found = re.search(rf"<!-- {way} -->\s+[^\n]*apt-get install ([^\n]+)", PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"docs/install.md names no packages for {way}"
    return [word for word in found[1].split() if not word.startswith((".", "-"))]


def commands(way: str) -> str:
    """What the page has a user type after the packages of the distribution are there."""
    found = re.search(rf"<!-- {way} -->\n((?: {{4}}\S.*\n)+)", PAGE.read_text(encoding="utf-8"))
    assert found is not None, f"docs/install.md has no commands for {way}"
    lines = [line.strip() for line in found[1].splitlines()]
    typed = [line for line in lines if "apt-get install" not in line]
    assert "rocelab run glance" in typed, typed
    return "\n".join(typed)


def made(pattern: str) -> Path:
    files = sorted(PACKAGES.glob(pattern))
    if not files:
        pytest.skip(f"SKIPPED: there is no {pattern} in .build/packages (make packages)")
    return files[-1]


def system(release: str, name: str, packages: list[str], files: list[Path]) -> Path:
    if (lacking := oci.missing()) is not None:
        pytest.skip(f"SKIPPED: {lacking}")
    try:
        return fresh.make(release, name, packages, files=files)
    except fresh.FreshError as error:
        pytest.fail(str(error), pytrace=False)


def sh(root: Path, script: str, surroundings: oci.Surroundings, **options: int) -> str:
    done = oci.run(root, ["sh", "-c", script], surroundings, binds=BINDS, **options)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def in_time(root: Path, script: str, surroundings: oci.Surroundings, *, user: int = 1000) -> str:
    """What a script prints that has to end in time, and to make a report."""
    started = time.monotonic()
    printed = sh(root, script, surroundings, user=user)
    took_s = time.monotonic() - started
    report = re.search(r"^Report: (\S+)$", printed, re.MULTILINE)
    assert report is not None, printed
    assert took_s < LIMIT_S, f"it took {took_s:.0f} s"
    return printed


def measures(root: Path, script: str, *, enter: str = "cd") -> None:
    """The device, and a study of a minute, both in time."""
    printed = in_time(root, f"{enter}\n{PINGPONG}\n{script} 2>&1", oci.MACHINE)
    assert "1000 iters in" in printed
    assert re.search(r"Latency, 64 B +[\d.]+ .s +[\d.]+ .s", printed), printed


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("release", list(fresh.RELEASES))
def test_a_wheel_in_a_virtual_environment(release: str) -> None:
    wheel = made("rocelab-*_x86_64.whl")
    root = system(release, "wheel", named("wheel"), [])
    download, _, use = commands("wheel").partition("urxe run")
    folder = f"rm -rf $HOME/tried && mkdir $HOME/tried && cd $HOME/tried && ln -s /packages/{wheel.name} ."
    sh(root, f"set -e\n{folder}\n{download}", oci.MACHINE)
    measures(root, f"urxe run{use}", enter="cd $HOME/tried && . venv/bin/activate")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("release", list(fresh.RELEASES))
def test_debian_packages(release: str) -> None:
    python = fresh.RELEASES[release].replace(".", "")
    files = [made("urxe_*_amd64.deb"), made(f"rocelab_*+py{python}_amd64.deb")]
    root = system(release, "deb", named("deb"), files)
    measures(root, commands("deb"))
    assert "ibv_rc_pingpong" not in sh(root, "man -w urxe 2>&1 || test -e /usr/share/man/man1/urxe.1.gz", oci.MACHINE)


@pytest.mark.timeout(1800)
def test_lintian_finds_no_error_in_the_debian_packages() -> None:
    files = [made("urxe_*_amd64.deb"), made("rocelab_*+py313_amd64.deb")]
    if shutil.which("lintian") is None:
        pytest.skip("SKIPPED: apt-get install lintian")
    command = ["lintian", "--fail-on", "error", "--allow-root", "--suppress-tags", UNRELEASED, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_for_64_bit_arm_start_in_qemu(tmp_path: Path) -> None:
    wheel = made("urxe-*_aarch64.whl")
    qemu, libc = shutil.which("qemu-aarch64"), Path("/usr/aarch64-linux-gnu")
    if qemu is None or not libc.is_dir():
        pytest.skip("SKIPPED: apt-get install qemu-user libc6-arm64-cross")
    zipfile.ZipFile(wheel).extractall(tmp_path)
    [urxe] = tmp_path.glob("*.data/scripts/urxe")
    urxe.chmod(0o755)
    start = [qemu, "-L", str(libc)]
    listed = subprocess.run([*start, str(urxe), "devices"], capture_output=True, text=True, check=False)
    assert re.search(r"^urxe_lo +lo +ACTIVE", listed.stdout, re.MULTILINE), listed.stdout + listed.stderr
    [library] = tmp_path.glob("*.data/data/lib/urxe/liburxe.so")
    start += ["-E", f"LD_PRELOAD={library}"]
    loaded = subprocess.run([*start, str(urxe), "--version"], capture_output=True, text=True, check=False)
    assert (loaded.returncode, loaded.stderr) == (0, "")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of the image, as an engine unpacks it."""
    archive = made("urxe-image_*_amd64.oci.tar")
    if (lacking := oci.missing()) is not None or shutil.which("umoci") is None:
        pytest.skip(f"SKIPPED: {lacking or 'apt-get install umoci'}")
    folder = tmp_path_factory.mktemp("image")
    layout, bundle = folder / "layout", folder / "bundle"
    layout.mkdir()
    subprocess.run(["tar", "-C", layout, "-xf", archive], check=True)
    subprocess.run(["umoci", "unpack", "--image", f"{layout}:urxe", bundle], check=True)
    config = json.loads((bundle / "config.json").read_text(encoding="utf-8"))
    assert config["process"]["user"]["uid"] == 1000
    assert config["process"]["args"] == ["urxe", "devices"]
    root: Path = bundle / "rootfs"
    assert not (root / "etc" / "pip.conf").exists(), "the image has what is of this machine"
    return root


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("user", [0, 1000, 65534, 1234567])
def test_an_image_without_any_right_as_any_user(image: Path, user: int) -> None:
    assert "1000 iters in" in sh(image, PINGPONG, oci.CONTAINER, user=user)
    write = PINGPONG.replace("ibv_rc_pingpong -d urxe_lo -g 0", "ib_write_bw -d urxe_lo -x 0 -s 65536 -n 1000")
    assert "65536" in sh(image, write, oci.CONTAINER, user=user)


@pytest.mark.timeout(1800)
def test_an_image_that_may_make_no_network_simulates_one(image: Path) -> None:
    printed = in_time(image, f"{PINGPONG}\ncd && rocelab run --fabric virtual glance 2>&1", oci.CONTAINER)
    assert "1000 iters in" in printed


@pytest.mark.timeout(1800)
def test_an_image_that_may_make_a_network_measures_over_it(image: Path) -> None:
    measures(image, "rocelab run glance")
