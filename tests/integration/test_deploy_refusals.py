"""Hosts that cannot have the agent: each is refused with its reason, and stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dttui.errors import AgentError
from dttui.fleet.deployment import root_program
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.fleet.deployment.wheels import Requirement, Wheel
from tests.integration.deploy_fixtures import (
    ARCHITECTURE,
    PROBE,
    answering,
    deploy_far,
    deploy_here,
    names,
)


async def test_a_wheel_that_changed_on_the_way_is_refused_and_nothing_stays(
    wheelhouse: Path, requirements: tuple[Requirement, ...], agent: Wheel, tmp_path: Path
) -> None:
    changed = replace(agent, content=agent.content[:-1] + b"?")

    with pytest.raises(AgentError, match=rf"here: {agent.file_name} did not arrive as it was sent"):
        await deploy_here(tmp_path / "root", WheelSource(wheelhouse, requirements, changed))

    assert names(tmp_path) == set()


async def test_a_host_without_room_is_refused_with_both_numbers_before_anything_is_written(
    source: WheelSource, tmp_path: Path
) -> None:
    message = r"here: [\d.]+ MiB are free for .*/root, and 95367431640625\.0 MiB are needed"
    with pytest.raises(AgentError, match=message):
        await deploy_here(tmp_path / "root", source, room_bytes=10**20)

    assert names(tmp_path) == set()


async def test_a_host_with_the_agent_needs_no_room(host: Path, source: WheelSource) -> None:
    assert not (await deploy_here(host, source, room_bytes=10**20)).changed


def make_link(root: Path) -> None:
    root.symlink_to(root.parent)


def make_file(root: Path) -> None:
    root.touch()


def make_open(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "message"),
    [(make_link, "is a link or a file"), (make_file, "is a link or a file"), (make_open, "others can write to")],
)
async def test_an_unsafe_root_is_refused(
    make: Callable[[Path], None], message: str, source: WheelSource, tmp_path: Path
) -> None:
    make(tmp_path / "root")

    with pytest.raises(AgentError, match=message) as caught:
        await deploy_here(tmp_path / "root", source)

    assert caught.value.hint


def test_the_file_system_of_a_path_is_known() -> None:
    assert root_program.file_system_of(Path("/proc/self")) == "proc"
    assert root_program.file_system_of(Path("/")) not in ("", "proc")


@pytest.mark.parametrize("kind", ["nfs4", "9p", "smbfs", "fuse.juicefs", "fuse.sshfs"])
def test_a_root_on_a_network_file_system_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_program, "file_system_of", lambda path: kind)

    with pytest.raises(root_program.Refusal, match="network-file-system"):
        root_program.inspect_root(Path("/var/tmp/dtagent-none"))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"architecture": "ppc64le"}, "no agent for ppc64le, only for x86_64, aarch64"),
        ({"architecture": "x86_64 (32 bit)"}, r"no agent for x86_64 \(32 bit\)"),
        ({"libc": ""}, "not glibc"),
        ({"implementation": "pypy"}, "not a usual CPython"),
        ({"free_threaded": True}, "not a usual CPython"),
        ({"has_venv": False}, "/usr/bin/python3 lacks the venv module"),
        ({"executable_mount": False}, "/var/tmp/dtagent-1000 is mounted noexec"),
        ({"free_bytes": 2**20}, r"far: 1\.0 MiB are free for /var/tmp/dtagent-1000, and 16\.0 MiB are needed"),
        ({"free_bytes": None}, "answer makes no sense"),
    ],
)
async def test_a_host_that_the_wheels_are_not_for_is_refused(
    found: dict[str, Any], message: str, source: WheelSource
) -> None:
    with pytest.raises(AgentError, match=message):
        await deploy_far(answering({"result": {**PROBE, **found}}), source)


async def test_what_a_login_shell_prints_is_left_out(source: WheelSource) -> None:
    result = {"result": {**PROBE, "libc": "musl"}}

    with pytest.raises(AgentError, match="not glibc"):
        await deploy_far(answering(b"Welcome!\ndttui-deploy", b"\nquota: 5%", b"\n", result), source)


@pytest.mark.parametrize(
    ("status", "stderr", "message"),
    [
        (
            42,
            b"dttui-bootstrap: no python>=3.10 (found: python3=3.6.8 /usr/bin/python3=3.6.8)\n",
            "no Python 3.10 or later; found: python3=3.6.8 /usr/bin/python3=3.6.8$",
        ),
        (42, b"dttui-bootstrap: no python>=3.10 (found: none)\n", "no Python 3.10 or later; found: none$"),
        (1, b"Traceback\nMemoryError\x1b[2J\n", "ended with exit status 1: MemoryError$"),
        (127, b"", "ended with exit status 127: it said nothing"),
    ],
)
async def test_a_program_that_ends_without_an_answer_is_explained(
    status: int, stderr: bytes, message: str, source: WheelSource
) -> None:
    with pytest.raises(AgentError, match=message):
        await deploy_far(answering(b"Welcome!\n", status=status, stderr=stderr), source)


async def test_a_shell_that_prints_without_end_is_refused(source: WheelSource) -> None:
    with pytest.raises(AgentError, match="prints without end"):
        await deploy_far(answering(*[b"y\n" * 50_000] * 20), source)


async def test_a_refusal_that_is_new_to_us_is_shown_as_it_is(source: WheelSource) -> None:
    with pytest.raises(AgentError, match=r"far: the host refused: from-the-\{future\}$"):
        await deploy_far(answering({"refusal": "from-the-{future}\x1b[2J"}), source)


async def test_an_incomplete_wheelhouse_leaves_the_host_as_it_was(
    requirements: tuple[Requirement, ...], agent: Wheel, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()

    with pytest.raises(AgentError, match=rf"here: {empty} lacks wheels for {ARCHITECTURE}: dacite==") as caught:
        await deploy_here(tmp_path / "root", WheelSource(empty, requirements, agent))

    assert "pip download" in caught.value.hint
    assert not (tmp_path / "root").exists()
