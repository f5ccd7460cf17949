"""What is fetched of a Debian release, from a mirror that the tests make."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from . import guest, kernels, mirror
from .guest import why_no_kvm
from .mirror import INDEX, MirrorError, Release

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb")
VERSION = "7.2.1-amd64"


class Mirror:
    """A mirror with one release in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = folder.as_uri()
        self.entries: list[str] = []

    def add(self, name: str, files: dict[str, bytes], depends: str = "") -> Path:
        content = self.folder / "content" / name
        control = [f"Package: {name}", "Version: 1", "Architecture: amd64", "Maintainer: none", "Description: none"]
        control += [f"Depends: {depends}"] if depends else []
        for path, code in {**files, "DEBIAN/control": ("\n".join(control) + "\n").encode()}.items():
            (content / path).parent.mkdir(parents=True, exist_ok=True)
            (content / path).write_bytes(code)
        archive = self.folder / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", "-Znone", content, archive], check=True, capture_output=True)
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        self.entries.append("\n".join([*control, f"Filename: {archive.name}", f"SHA256: {sha256}"]))
        return archive

    def publish(self, suite: str) -> None:
        index = self.folder / "dists" / suite / INDEX
        index.parent.mkdir(parents=True)
        index.write_bytes(lzma.compress(("\n\n".join(self.entries) + "\n").encode()))
        sha256 = hashlib.sha256(index.read_bytes()).hexdigest()
        (self.folder / "dists" / suite / "InRelease").write_text(f"SHA256:\n {sha256} {index.stat().st_size} {INDEX}\n")


def module(*depends: str) -> bytes:
    return b"\x7fELF\0depends=" + ",".join(depends).encode() + b"\0"


@pytest.fixture
def a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """One that has a kernel in many packages, as that of Linux 7 is, and is not signed."""
    monkeypatch.setattr(kernels, "BUILT", tmp_path / "built")
    monkeypatch.setattr(mirror, "KEYS", tmp_path / "no keys")
    made = Mirror(tmp_path / "mirror")
    made.add("linux-image-amd64-dbg", {})
    made.add("linux-image-amd64", {}, f"linux-base-{VERSION}, linux-image-{VERSION} (= 1)")
    needs = f"kmod | busybox, linux-binary-{VERSION} (= 1), linux-modules-{VERSION} (= 1)"
    made.add(f"linux-image-{VERSION}", {}, needs)
    made.add(f"linux-binary-{VERSION}", {f"usr/lib/modules/{VERSION}/vmlinuz": b"kernel"})
    folder = f"usr/lib/modules/{VERSION}/kernel/drivers"
    modules = {
        f"{folder}/rdma_rxe.ko.xz": lzma.compress(module("ib_core", "udp-tunnel")),
        f"{folder}/ib_core.ko": module(),
        f"{folder}/udp-tunnel.ko": module("ib_core"),
        f"{folder}/sound.ko": module(),
    }
    made.add(f"linux-modules-{VERSION}", modules)
    made.publish("sid")
    return made


def test_a_kernel_has_the_modules_that_rxe_needs_in_order(a_mirror: Mirror) -> None:
    kernel = kernels.kernel_of("sid", a_mirror.url)
    assert kernel.version == VERSION
    assert kernel.image.read_bytes() == b"kernel"
    assert [each.name.split("-", 1)[1] for each in kernel.modules] == ["ib_core.ko", "udp_tunnel.ko", "rdma_rxe.ko"]
    assert kernel.modules[-1].read_bytes() == module("ib_core", "udp-tunnel")


def test_a_kernel_may_be_one_package(a_mirror: Mirror) -> None:
    a_mirror.entries.clear()
    a_mirror.add("linux-image-amd64", {}, "linux-image-6.1.0-50-amd64 (= 1)")
    files = {"boot/vmlinuz-6.1.0-50-amd64": b"older", "lib/modules/6.1.0-50-amd64/kernel/rdma_rxe.ko": module()}
    a_mirror.add("linux-image-6.1.0-50-amd64", files)
    a_mirror.publish("bookworm")
    kernel = kernels.kernel_of("bookworm", a_mirror.url)
    assert (kernel.version, kernel.image.read_bytes()) == ("6.1.0-50-amd64", b"older")
    assert [each.name for each in kernel.modules] == ["00-rdma_rxe.ko"]


def test_a_kernel_is_fetched_once(a_mirror: Mirror) -> None:
    first = kernels.kernel_of("sid", a_mirror.url)
    shutil.rmtree(a_mirror.folder)
    assert kernels.kernel_of("sid", a_mirror.url) == first
    assert [each.name for each in kernels.BUILT.iterdir()] == ["sid"]


def test_it_is_fetched_again_when_other_modules_are_needed(a_mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.kernel_of("sid", a_mirror.url)
    monkeypatch.setattr(kernels, "MODULES", ("sound",))
    assert [each.name for each in kernels.kernel_of("sid", a_mirror.url).modules] == ["00-sound.ko"]


def test_a_package_with_other_content_is_refused(a_mirror: Mirror) -> None:
    archive = a_mirror.folder / f"linux-modules-{VERSION}.deb"
    archive.write_bytes(archive.read_bytes() + b"\n")
    with pytest.raises(MirrorError, match=f"{archive.name} has the SHA-256"):
        kernels.kernel_of("sid", a_mirror.url)
    assert not any(kernels.BUILT.iterdir())


def test_an_index_with_other_content_is_refused(a_mirror: Mirror) -> None:
    index = a_mirror.folder / "dists" / "sid" / INDEX
    index.write_bytes(lzma.compress(lzma.decompress(index.read_bytes()) + b"\n"))
    with pytest.raises(MirrorError, match=r"Packages\.xz of sid has the SHA-256"):
        Release("sid", a_mirror.url)


@pytest.mark.skipif(
    shutil.which("gpgv") is None or not mirror.KEYS.exists(), reason="gpgv or Debian's keys are missing"
)
def test_a_release_that_debian_did_not_sign_is_refused(a_mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(MirrorError, match="not signed by Debian"):
        Release("sid", a_mirror.url)


def test_what_a_mirror_does_not_have_is_said(a_mirror: Mirror) -> None:
    with pytest.raises(MirrorError, match="dists/trixie/InRelease"):
        kernels.kernel_of("trixie", a_mirror.url)
    with pytest.raises(MirrorError, match="sid has no package busybox-static"):
        Release("sid", a_mirror.url).package("busybox-static")


def test_why_there_is_no_kvm_is_said(tmp_path: Path) -> None:
    assert why_no_kvm(tmp_path / "kvm") == f"{tmp_path}/kvm: No such file or directory"
    (tmp_path / "kvm").touch()
    assert why_no_kvm(tmp_path / "kvm") == f"{tmp_path}/kvm: Inappropriate ioctl for device"


@pytest.mark.skipif(not os.access(guest.KVM, os.R_OK | os.W_OK), reason="there is no KVM")
def test_kvm_takes_processors_that_are_made_for_guests(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu vme svm\n")
    assert why_no_kvm(cpuinfo=tmp_path / "cpuinfo") is None
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu vme svmx\n")
    assert why_no_kvm(cpuinfo=tmp_path / "cpuinfo") == "the processors have neither VMX nor SVM"
