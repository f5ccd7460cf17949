"""Each line of docs/ci.md, of the action and of the include for GitLab, in a fresh Debian. `make test-packages`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fresh_systems import HERE, PACKAGES, made, system

import oci

PAGE = HERE.parent / "docs" / "ci.md"
ROOT_USER = 0


@pytest.fixture(scope="module")
def root() -> Path:
    """What an image of a CI has: Python and certificates."""
    return system("trixie", "ci", ["python3-venv", "ca-certificates", "sudo"], [])


@pytest.fixture
def wheel() -> str:
    return f"/packages/{made('urxe-*_x86_64.whl').name}"


def run(root: Path, script: str, **environment: str) -> str:
    done = oci.run(
        root, ["bash", "-e", "-o", "pipefail", "-c", script], oci.MACHINE,
        user=ROOT_USER, binds={PACKAGES: "/packages"}, environment=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def parsed(name: str) -> Any:
    return yaml.safe_load((HERE.parent / name).read_text(encoding="utf-8"))


@pytest.mark.timeout(1800)
def test_the_action_installs_a_device_and_runs_a_command_with_it(root: Path, wheel: str) -> None:
    action, page = parsed("action.yml"), yaml.safe_load(blocks("yaml")[0])
    [used] = [step for step in page["jobs"]["test"]["steps"] if "rocelab" in step.get("uses", "")]
    given = {name: each.get("default") for name, each in action["inputs"].items()} | used["with"] | {"package": wheel}
    script = "export RUNNER_TEMP=/tmp/runner GITHUB_PATH=/tmp/path; mkdir $RUNNER_TEMP\n"
    for step in action["runs"]["steps"]:
        for name, value in step.get("env", {}).items():
            key = re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", value)
            assert key is not None, f"{value} is no input"
            script += f"export {name}='{given[key[1]]}'\n"
        assert "${{" not in step["run"], "a step takes what it needs from variables"
        script += f"( {step['run']} )\n"
    # What the jobs of the page run after it, with tests of their own.
    own = "apt-get install -q -y make\nmkdir /tmp/own && cd /tmp/own\nprintf 'test:\\n\\tibv_devices\\n' > Makefile\n"
    later = "\n".join(step["run"] for step in page["jobs"]["test"]["steps"] if "run" in step)
    assert "urxe run -- make test" in later
    printed = run(root, f'{script}export PATH="$(cat /tmp/path):$PATH"\n{own}{later}')
    assert re.search(r"^urxe_lo +lo +ACTIVE", printed, re.MULTILINE), printed
    assert "hca_id:\turxe_lo" in printed, printed
    assert re.search(r"^ +urxe_lo\s", printed, re.MULTILINE), printed


@pytest.mark.timeout(1800)
def test_the_include_for_gitlab_gives_jobs_the_device(root: Path, wheel: str) -> None:
    job = parsed("packaging/ci/gitlab.yml")[".rdma"]
    page = yaml.safe_load(blocks("yaml")[1])["test"]
    assert page["extends"] == ".rdma"
    script = "\n".join(["rm -rf /opt/urxe", *job["before_script"], *page["script"]])
    assert "hca_id:\turxe_lo" in run(root, script, URXE_PACKAGE=wheel)


@pytest.mark.timeout(1800)
def test_every_command_of_the_page_does_what_it_says(root: Path, wheel: str) -> None:
    [test] = blocks("python")
    install = "apt-get update -q && apt-get install -q -y ibverbs-utils\nmkdir /tmp/w && cd /tmp/w\n"
    script = f"{install}cat > test_pingpong.py <<'END'\n{test}END\n" + "\n".join(blocks("sh"))
    printed = run(root, script, URXE_PACKAGE=wheel)
    assert printed.count("hca_id:\turxe_lo") == 2, printed
    assert "1 passed" in printed, printed
