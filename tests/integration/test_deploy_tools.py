"""Tools beside an agent: on this machine with one that the test makes, on an isolated bare host with py-spy itself."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dtagent
import pytest

from dttui.errors import AgentError
from dttui.fleet.deployment.deploy import deploy_all
from dttui.fleet.deployment.outcomes import AgentRemoval, AgentStatus, Deployment, Outcome, ToolDeployment
from dttui.fleet.deployment.remove import remove_all
from dttui.fleet.deployment.status import status_all
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.deployment.wheels import Requirement, Wheel, build_agent_wheel, zip_wheel
from dttui.inventory.models import Environment
from dttui.transport.local import LocalTransport
from tests.fake_transport import FakeTransport
from tests.integration.deploy_fixtures import (
    ARCHITECTURE,
    PROBE,
    Nobody,
    answering,
    current,
    deploy_here,
    here,
    is_gone,
    names,
)
from tests.integration.headless import dttui, dttui_here, write_job
from tests.lab.hosts import Lab
from tests.waiting import wait_until

NAME = "py-spy"
WORKS = "#!/bin/sh\necho py-spy {version}\n"
ROOT = "/var/tmp/spied"
SCRIPT = """\
import time

def stuck():
    print("here", flush=True)
    time.sleep(600)

stuck()
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A directory of the wheels of tools."""
    directory = tmp_path / "house"
    directory.mkdir()
    return directory


def make_tool(house: Path, version: str = "1.0", text: str = WORKS, architecture: str = ARCHITECTURE) -> Requirement:
    """Write the wheel of a tool, and return what pins it."""
    program = f"py_spy-{version}.data/scripts/{NAME}"
    content = zip_wheel({program: text.format(version=version).encode()}, f"py_spy-{version}.dist-info/RECORD")
    (house / f"py_spy-{version}-py2.py3-none-manylinux2014_{architecture}.whl").write_bytes(content)
    return Requirement(NAME, version, frozenset({hashlib.sha256(content).hexdigest()}))


@pytest.fixture
def tools_source(house: Path, requirements: tuple[Requirement, ...], wheelhouse: Path, agent: Wheel) -> WheelSource:
    """The source of agents, with the wheels of tools beside theirs."""
    for path in wheelhouse.iterdir():
        (house / path.name).symlink_to(path)
    return WheelSource(house, requirements, agent)


def tree(root: Path) -> list[tuple[Path, int]]:
    return sorted((path, path.lstat().st_mtime_ns) for path in root.rglob("*"))


async def test_a_tool_comes_beside_the_agent_and_a_second_deployment_changes_nothing(
    host: Path, house: Path, tools_source: WheelSource
) -> None:
    tool, said = make_tool(house), list[str]()
    before = current(host)
    first = await deploy_here(host, tools_source, tools=(tool,), on_progress=said.append)
    whole = tree(host)
    second = await deploy_here(host, tools_source, tools=(tool,), on_progress=said.append)

    assert (first.changed, first.outcome) == (False, Outcome.UP_TO_DATE)
    assert first.tools == (ToolDeployment(NAME, "1.0", Outcome.INSTALLED),)
    assert second.tools == (ToolDeployment(NAME, "1.0", Outcome.UP_TO_DATE),)
    assert stat.S_IMODE((host / "tools" / NAME).stat().st_mode) == 0o700
    assert names(host / "tools") == {NAME, f"{NAME}.json"}
    assert (current(host), tree(host)) == (before, whole)
    assert said.count("unpacking tools") == 1


async def test_a_dry_run_says_what_would_be_brought_and_fetches_and_changes_nothing(
    host: Path, source: WheelSource
) -> None:
    before = tree(host)
    nowhere = Requirement(NAME, "1.0", frozenset({"0" * 64}))
    told = await deploy_here(host, source, tools=(nowhere,), dry_run=True)

    assert told.tools == (ToolDeployment(NAME, "1.0", Outcome.INSTALLED),)
    assert tree(host) == before


async def test_a_tool_comes_to_a_host_that_had_no_agent_too(
    tmp_path: Path, house: Path, tools_source: WheelSource
) -> None:
    done = await deploy_here(tmp_path / "new", tools_source, tools=(make_tool(house),))

    assert (done.outcome, done.tools[0].outcome) == (Outcome.INSTALLED, Outcome.INSTALLED)
    assert (tmp_path / "new" / "tools" / NAME).exists()


async def test_a_tool_stays_over_an_upgrade_is_told_by_status_and_goes_with_the_agent(
    host: Path, house: Path, tools_source: WheelSource, newer: WheelSource
) -> None:
    tool = make_tool(house)
    await deploy_here(host, tools_source, tools=(tool,))
    (upgraded,) = await deploy_all([here(host)], LocalTransport(), Nobody(), source=newer, only_upgrade=True)
    (seen,) = await status_all([here(host)], LocalTransport(), Nobody(), source=newer)
    (again,) = await deploy_all([here(host)], LocalTransport(), Nobody(), source=newer, tools=(tool,))
    (removed,) = await remove_all([here(host)], LocalTransport(), Nobody())

    assert isinstance(upgraded, Deployment)
    assert upgraded.outcome is Outcome.UPGRADED
    assert isinstance(seen, AgentStatus)
    (kept,) = seen.document()["tools"]
    assert kept == {"name": NAME, "version": "1.0", "wheel": min(tool.hashes), "is_whole": True}
    assert isinstance(again, Deployment)
    assert (again.changed, again.tools[0].outcome) == (False, Outcome.UP_TO_DATE)
    assert isinstance(removed, AgentRemoval)
    assert (removed.removed, removed.kept, is_gone(host)) == (True, (), True)


@pytest.mark.parametrize("damage", ["the program", "the record"])
async def test_a_tool_whose_files_have_changed_is_told_and_brought_anew(
    damage: str, host: Path, house: Path, tools_source: WheelSource, tmp_path: Path
) -> None:
    tool = make_tool(house)
    await deploy_here(host, tools_source, tools=(tool,))
    (host / "tools" / (NAME if damage == "the program" else f"{NAME}.json")).write_text("[]")
    inventory = tmp_path / "inventory.json"
    document = {"name": "here", "host": "localhost", "local": True, "agent_root": str(host)}
    inventory.write_text(json.dumps({"environments": [document]}))
    told = dttui("agents", "status", "--inventory", inventory).stdout
    mended = await deploy_here(host, tools_source, tools=(tool,))

    assert "is damaged: dttui agents deploy --with py-spy" in told
    assert mended.tools == (ToolDeployment(NAME, "1.0", Outcome.REPAIRED),)
    assert (host / "tools" / NAME).read_text() == WORKS.format(version="1.0")


async def test_another_version_takes_the_place_of_the_one_before(
    host: Path, house: Path, tools_source: WheelSource
) -> None:
    await deploy_here(host, tools_source, tools=(make_tool(house),))
    done = await deploy_here(host, tools_source, tools=(make_tool(house, "1.1"),))

    assert done.tools == (ToolDeployment(NAME, "1.1", Outcome.UPGRADED),)
    assert (host / "tools" / NAME).read_text() == WORKS.format(version="1.1")


async def test_a_tool_that_does_not_run_there_leaves_everything_as_it_was(
    host: Path, house: Path, tools_source: WheelSource, requirements: tuple[Requirement, ...], tmp_path: Path
) -> None:
    await deploy_here(host, tools_source, tools=(make_tool(house),))
    before = current(host), names(host / "agents"), names(host / "tools")
    broken = make_tool(house, "1.1", "#!/bin/sh\necho it lacks a library; exit 1\n")
    package = Path(shutil.copytree(Path(dtagent.__file__).parent, tmp_path / "newer" / "dtagent"))
    (package / "extra.py").write_text("new = True\n")
    newer = WheelSource(house, requirements, build_agent_wheel(requirements, package))

    with pytest.raises(AgentError, match="py-spy does not run there: it lacks a library") as caught:
        await deploy_here(host, newer, tools=(broken,))

    assert "--with py-spy" in caught.value.hint
    assert (current(host), names(host / "agents"), names(host / "tools")) == before
    assert (host / "tools" / NAME).read_text() == WORKS.format(version="1.0")


async def test_a_wheel_of_another_content_or_architecture_is_refused_and_nothing_is_sent(
    host: Path, house: Path, tools_source: WheelSource
) -> None:
    before = tree(host)
    changed = make_tool(house)
    make_tool(house, text=WORKS + "# changed\n")
    with pytest.raises(AgentError, match=r"py_spy-1\.0-.*\.whl .* hash differs"):
        await deploy_here(host, tools_source, tools=(changed,))
    foreign = make_tool(house, "2.0", architecture="riscv64")
    with pytest.raises(AgentError, match=rf"lacks wheels for {ARCHITECTURE}: py-spy==2\.0"):
        await deploy_here(host, tools_source, tools=(foreign,))

    assert tree(host) == before


async def test_a_host_of_an_architecture_without_wheels_is_told_so(source: WheelSource) -> None:
    host = answering({"result": {**PROBE, "architecture": "riscv64"}})
    environment = Environment(name="far", host="192.0.2.1")
    tool = Requirement(NAME, "1.0", frozenset({"0" * 64}))
    (told,) = await deploy_all([environment], FakeTransport({"far": host}), Nobody(), source=source, tools=(tool,))
    assert isinstance(told, AgentError)
    assert "there is no agent for riscv64, only for x86_64, aarch64" in told.message


@pytest.fixture
def spied(lab3: Lab, tmp_path: Path) -> Iterator[Path]:
    """An inventory by which the bare host has an agent in a directory of this test's."""
    inventory = lab3.inventory(tmp_path / "inventory.yaml")
    inventory.write_text(inventory.read_text().replace("  zone:", f"  agent_root: {ROOT}\n  zone:"))
    yield inventory
    dttui_here("agents", "remove", "gpu3", "--inventory", inventory, "--yes", "--force", "--jobs", "--checkpoints")
    assert lab3["gpu3"].run(["test", "-e", ROOT], check=False).returncode == 1


def row_of(*words: str | Path) -> dict[str, Any]:
    """Do something about the agent of the bare host, and return what came of it."""
    done = dttui_here("agents", *words, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)
    assert isinstance(row, dict)
    return row


@pytest.mark.timeout(300)
def test_with_py_spy_on_a_bare_host_stacks_tells_where_a_command_stands_also_while_it_is_stopped(
    spied: Path, lab3: Lab, tmp_path: Path
) -> None:
    """A job that runs already is told from then on; a second deployment and an upgrade leave py-spy as it is."""
    wanted = ("deploy", "gpu3", "--inventory", spied, "--with", NAME)
    kept = ["sh", "-c", f"cd {ROOT} && find tools current agents -printf '%p %T@ %l\\n' | grep -v __pycache__ | sort"]
    assert row_of("deploy", "gpu3", "--inventory", spied)["tools"] == []
    source = tmp_path / "source"
    source.mkdir()
    (source / "wait.py").write_text(SCRIPT)
    run = {"command": ["/usr/bin/python3", "wait.py"], "workdir": "source"}
    job_file = write_job(tmp_path, {"gpu3": 1}, framework="command", run=run)
    started = dttui_here("--apply", job_file, "--inventory", spied, "--detach")
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    wait_until(lambda: "here" in dttui_here("logs", job).stdout, "it to stand still", 60)

    def told(*words: str) -> str:
        return dttui_here("stacks", job, "--short", *words).stdout

    assert told().startswith("rank 0 on gpu3: no stack could be read")
    would = row_of(*wanted, "--dry-run")
    assert would["tools"] == [{"name": NAME, "version": "0.4.3", "outcome": "installed"}]
    assert told().startswith("rank 0 on gpu3: no stack could be read")

    first = row_of(*wanted)
    assert (first["changed"], first["tools"]) == (False, would["tools"])
    assert told() == "rank 0 on gpu3 is at wait.py:5 (stuck)\n"
    (pid,) = (item.pid for item in lab3["gpu3"].processes() if item.cmdline.endswith("wait.py"))
    lab3["gpu3"].run(["kill", "-STOP", str(pid)])
    wait_until(lambda: "is stopped by a signal (SIGSTOP)" in told(), "it to stop", 60)
    assert told().endswith(", at wait.py:5 (stuck)\n")
    lab3["gpu3"].run(["kill", "-CONT", str(pid)])

    before = lab3["gpu3"].run(kept).stdout
    assert row_of(*wanted)["tools"] == [{"name": NAME, "version": "0.4.3", "outcome": "up-to-date"}]
    assert row_of("upgrade", "gpu3", "--inventory", spied)["tools"] == []
    assert lab3["gpu3"].run(kept).stdout == before
    assert "py-spy 0.4.3" in dttui_here("agents", "status", "gpu3", "--inventory", spied).stdout
    (seen,) = row_of("status", "gpu3", "--inventory", spied)["tools"]
    assert (seen["name"], seen["version"], seen["is_whole"]) == (NAME, "0.4.3", True)
    assert dttui_here("stop", job).returncode == 0


def test_an_unknown_tool_is_refused_before_any_host_is_looked_at(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"environments": [{"name": "down", "host": "127.0.0.1", "port": 1}]}))
    done = dttui_here("agents", "deploy", "--inventory", inventory, "--with", "gdb")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'there is no tool "gdb"' in done.stderr
    assert "Those that dttui brings: py-spy" in done.stderr
