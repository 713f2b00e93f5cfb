"""Where the agent is on a host whose usual place for it others have, or that the inventory names another for."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol import places
from dtagent.protocol.first_line import MAGIC

from dttui.fleet.deployment import root_program
from dttui.fleet.deployment.deploy import agent_digest, deploy_all, installation_request
from dttui.fleet.deployment.frame_program import MARK
from dttui.fleet.deployment.outcomes import AgentRemoval, AgentStatus, Deployment, Outcome
from dttui.fleet.deployment.remote_program import Program
from dttui.fleet.deployment.remove import remove_all
from dttui.fleet.deployment.status import status_all
from dttui.fleet.deployment.wheel_source import WheelSource
from dttui.inventory.models import Environment
from dttui.rpc.client import AgentClient
from dttui.transport.base import RemoteCommand
from dttui.transport.remote_commands import COMMANDS, bootstrap_input
from dttui.transport.ssh.transport import SshTransport
from tests.integration.deploy_fixtures import ARCHITECTURE, Nobody, names
from tests.integration.sshd import Sshd
from tests.waiting import PATIENCE_S, until

USER, OTHER = 54321, 54322
USUAL = f"/var/tmp/dtagent-{USER}"
PYTHON = "/usr/bin/python3"
"""Debian's own, which every user can run."""


@dataclass
class Machine:
    """A /var/tmp of its own, and a home that other machines may share; what runs there is `USER`'s."""

    var_tmp: Path
    home: Path
    boot: str = "5f0f-boot"

    def __post_init__(self) -> None:
        for directory, mode in ((self.var_tmp, 0o1777), (self.home, 0o755)):
            directory.mkdir(exist_ok=True)
            directory.chmod(mode)
        os.chown(self.home, USER, USER)

    def start(self, *argv: str, user: int = USER) -> subprocess.Popen[bytes]:
        """Start a program there."""
        boot = self.var_tmp.with_name(f"{self.var_tmp.name}.boot")
        boot.write_text(f"{self.boot}\n")
        mounts = ((self.var_tmp, "/var/tmp"), (self.home, "/mnt"), (boot, "/proc/sys/kernel/random/boot_id"))
        mounting = " && ".join(f"mount --bind '{what}' {where}" for what, where in mounts)
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "env", "-i"]
        command = ["unshare", "-m", "sh", "-c", f'{mounting} && exec "$@"', "sh", *become]
        environment = ["HOME=/mnt", "PATH=/usr/bin:/bin"]
        pipe = subprocess.PIPE
        return subprocess.Popen([*command, *environment, *argv], stdin=pipe, stdout=pipe, stderr=pipe, cwd="/")

    def run(self, *argv: str, given: bytes = b"", user: int = USER) -> tuple[int, bytes, bytes]:
        """Run one to its end; return status and output."""
        with self.start(*argv, user=user) as process:
            output, errors = process.communicate(given, 120)
            return process.returncode, output, errors

    def connect(self) -> tuple[int, bytes]:
        """Run what reaches the agent."""
        status, output, _errors = self.run("sh", "-c", COMMANDS[RemoteCommand.AGENT])
        return status, output

    def ask(self, program: Program, request: dict[str, Any], contents: bytes = b"") -> dict[str, Any]:
        """Push a program and return its last word."""
        given = bootstrap_input(program.text(), PYTHON) + json.dumps({"root": None, **request}).encode() + b"\n"
        _status, output, errors = self.run("sh", "-c", COMMANDS[RemoteCommand.BOOTSTRAP], given=given + contents)
        said = [json.loads(line[len(MARK) :]) for line in output.splitlines() if line.startswith(MARK)]
        assert said, errors
        return dict(said[-1])

    def find(self) -> str:
        """Return where the search in Python finds the root; empty for nowhere."""
        program = Path(places.__file__).read_text() + "\nprint(find_root() or '')"
        status, output, errors = self.run(PYTHON, "-I", "-c", program)
        assert status == 0, errors
        return output.decode().strip()

    def plant(self, name: str, owner: int = USER, mode: int = 0o700) -> Path:
        """Make a directory in /var/tmp whose agent says by which path it was run."""
        root = self.var_tmp / name
        (root / "current/bin").mkdir(parents=True)
        program = root / "current/bin/python"
        program.write_text("#!/bin/sh\necho ran $0\n")
        program.chmod(0o755)
        for path in (root, *root.rglob("*")):
            os.chown(path, owner, owner)
        root.chmod(mode)
        return root


def squat(machine: Machine, how: str) -> None:
    """Take the usual place."""
    name = Path(USUAL).name
    if how == "directory":
        machine.plant(name, OTHER, 0o755)
    elif how == "open":
        machine.plant(name, USER, 0o777)
    elif how == "link":
        machine.plant("elsewhere", OTHER, 0o755)
        (machine.var_tmp / name).symlink_to("/var/tmp/elsewhere")
    elif how == "link to our own":
        machine.plant("elsewhere", USER)
        (machine.var_tmp / name).symlink_to("/var/tmp/elsewhere")
    elif how == "pipe":
        os.mkfifo(machine.var_tmp / name)
    else:
        (machine.var_tmp / name).write_text("x")
    os.chown(machine.var_tmp / name, USER if how == "open" else OTHER, OTHER, follow_symlinks=False)


SQUATTED = ["directory", "link", "link to our own", "file", "pipe"]


@pytest.fixture
def machine(can_have_lab: None, tmp_path: Path) -> Machine:
    return Machine(tmp_path / "one", tmp_path / "home")


@pytest.mark.lab
@pytest.mark.parametrize("how", ["nothing", "ours", "open", *SQUATTED])
def test_shell_and_python_find_the_same_place(machine: Machine, how: str) -> None:
    name = Path(USUAL).name
    if how == "ours":
        machine.plant(name)
    elif how != "nothing":
        squat(machine, how)
    assert (machine.find(), machine.connect()[0]) == {
        "nothing": (USUAL, 127),
        "ours": (USUAL, 0),
        "open": (USUAL, 127),
    }.get(how, ("", 127))
    if how in ("nothing", "ours", "open"):
        return
    records = machine.home / ".local/state/dtagent/roots"
    records.mkdir(parents=True, mode=0o700)
    here = [machine.plant(f"{name}-{mark * 32}") for mark in "abc"]
    machine.plant(f"{name}-{'d' * 32}", OTHER, 0o755)
    machine.plant(f"{name}-{'e' * 32}", USER, 0o777)
    id_file = Path("/etc/machine-id")
    machine_id = id_file.read_text().strip() if id_file.exists() else ""
    for key, mark in (
        ("another-boot", "b"),
        (f"{machine_id}-{machine.boot}", "d"),
        (f"{machine_id}-{machine.boot}", "e"),
        (f"{machine_id}-{machine.boot}", "f"),
        ("yet-another", "c"),
        ("zz", "a"),
    ):
        (records / f"{key}-{mark}").write_text(f"/var/tmp/{name}-{mark * 32}\n")
    (records / f"{machine_id}-{machine.boot}-link").symlink_to("zz-a")
    (records / "aa-elsewhere").write_text("/mnt/root\n")
    shutil.copytree(here[0], machine.home / "root")
    for path in (machine.home, *machine.home.rglob("*")):
        os.chown(path, USER, USER, follow_symlinks=False)
    found = machine.find()
    assert found == f"/var/tmp/{name}-{'b' * 32}"
    assert machine.connect() == (0, f"ran {found}/current/bin/python\n".encode())
    (records / f"{machine_id}-{machine.boot}-a").write_text(f"/var/tmp/{name}-{'a' * 32}\n")
    os.chown(records / f"{machine_id}-{machine.boot}-a", USER, USER)
    found = machine.find()
    assert found == f"/var/tmp/{name}-{'a' * 32}"
    assert machine.connect() == (0, f"ran {found}/current/bin/python\n".encode())
    records.chmod(0o777)
    assert (machine.find(), machine.connect()[0]) == ("", 127)


@pytest.mark.lab
async def test_where_others_have_the_usual_place_the_agent_lives_in_another_that_everything_finds(
    machine: Machine, source: WheelSource, tmp_path: Path
) -> None:
    squat(machine, "link")
    before = machine.ask(Program.AGENTS, {"action": "inspect"})["result"]
    wheels = await source.wheels(ARCHITECTURE)
    request = installation_request(agent_digest(source, ARCHITECTURE), None, wheels)
    installed = machine.ask(Program.DEPLOYMENT, request, b"".join(wheel.content for wheel in wheels))

    assert (before["probe"]["current"], before["daemon"]) == (None, None)
    root = re.fullmatch(rf"({USUAL}-[0-9a-f]{{32}})/agents/[0-9a-f]+", installed["result"]["directory"])
    assert root is not None
    place = machine.var_tmp / Path(root[1]).name
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    # Whatever was installed names the place and not the way by which it was reached.
    version = place / "agents" / request["digest"]
    scripts = [path for path in (version / "bin").iterdir() if not path.is_symlink()]
    assert not any(b"/proc/self" in path.read_bytes() for path in (*scripts, version / "pyvenv.cfg"))
    assert [path.read_text() for path in (machine.home / ".local/state/dtagent/roots").iterdir()] == [f"{root[1]}\n"]

    twin = Machine(tmp_path / "two", machine.home)  # Of the same image, and for what it says of the same boot.
    squat(twin, "directory")
    assert twin.connect() == (127, b"")
    for boot in ("5f0f-boot", "another-boot"):
        machine.boot = boot
        assert machine.find() == root[1]
        assert machine.ask(Program.DEPLOYMENT, {"action": "probe"})["result"]["root"] == root[1]
        assert machine.connect() == (0, MAGIC)
        assert machine.ask(Program.AGENTS, {"action": "inspect"})["result"]["daemon"]["digest"] == request["digest"]
        status, by_hand, errors = machine.run(f"{root[1]}/current/bin/dtagent", "status")
        assert (status, errors) == (0, b"")
        assert f"serves {root[1]}, pid" in by_hand.decode()
        assert machine.ask(Program.AGENTS, {"action": "retire"})["result"]["had_daemon"] is True

    assert machine.ask(Program.AGENTS, {"action": "remove", "jobs": True, "checkpoints": True})["result"]["removed"]
    assert not place.exists()
    assert names(machine.home / ".local/state") == set()


@pytest.mark.lab
def test_an_agent_that_was_not_deployed_takes_and_keeps_another_place_too(machine: Machine) -> None:
    squat(machine, "directory")
    program = Path(places.__file__).read_text() + "\nprint(take_root())"
    first, second = (machine.run(PYTHON, "-I", "-c", program)[1] for _time in range(2))
    assert first == second
    assert re.fullmatch(rf"{USUAL}-[0-9a-f]{{32}}\n", first.decode())


@pytest.mark.lab
def test_a_place_of_ours_that_others_can_write_to_is_refused_and_not_left_with_its_jobs(machine: Machine) -> None:
    squat(machine, "open")
    request = {"action": "install", "digest": "0" * 16, "files": [], "requirements": ""}
    assert machine.ask(Program.DEPLOYMENT, request) == {"refusal": "root-open", "path": USUAL}
    assert machine.ask(Program.AGENTS, {"action": "inspect"})["refusal"] == "root-open"
    assert names(machine.var_tmp) == {Path(USUAL).name}
    assert names(machine.home) == set()


@pytest.mark.lab
def test_a_place_that_cannot_be_recorded_is_refused_with_the_way_out(machine: Machine) -> None:
    squat(machine, "file")
    (machine.home / ".local").write_text("in the way")
    request = {"action": "install", "digest": "0" * 16, "files": [], "requirements": ""}
    assert machine.ask(Program.DEPLOYMENT, request)["refusal"] == "root-unrecorded"
    assert names(machine.var_tmp) == {Path(USUAL).name}


@contextlib.contextmanager
def unprotected_links() -> Iterator[None]:
    """Have the kernel follow whatever link is in a directory of everybody's."""
    switch = Path("/proc/sys/fs/protected_symlinks")
    before = switch.read_text()
    with contextlib.suppress(OSError):
        switch.write_text("0")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            switch.write_text(before)


@pytest.mark.lab
async def test_what_is_exchanged_for_the_root_during_a_deployment_gets_nothing_of_it(
    machine: Machine, source: WheelSource
) -> None:
    """The root is made; then /var/tmp lets another user move it away, who puts a link to a directory of his there."""
    wheels = await source.wheels(ARCHITECTURE)
    request = installation_request("0" * 16, None, wheels)
    given = bootstrap_input(Program.DEPLOYMENT.text(), PYTHON) + json.dumps(request).encode() + b"\n"
    with unprotected_links(), machine.start("sh", "-c", COMMANDS[RemoteCommand.BOOTSTRAP]) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.flush()
        while b'"receive"' not in process.stdout.readline():
            assert process.poll() is None
        agents = machine.var_tmp / Path(USUAL).name / "agents"
        await until(lambda: any(agents.glob("*/incoming")), "the place for the wheels")
        (staging,) = agents.iterdir()
        target = machine.var_tmp / "target"
        (target / "root/agents" / staging.name / "incoming").mkdir(parents=True)  # The names can be foreseen.
        for path in (target, *target.rglob("*")):
            path.chmod(0o777)
            os.chown(path, OTHER, OTHER)
        machine.var_tmp.chmod(0o777)
        swap = f"mv {USUAL} /var/tmp/aside && ln -s /var/tmp/target/root {USUAL}"
        assert machine.run("sh", "-c", swap, user=OTHER)[0] == 0
        output, _errors = process.communicate(b"".join(wheel.content for wheel in wheels), 120)
    assert [path for path in target.rglob("*") if not path.is_dir()] == []
    assert (machine.var_tmp / Path(USUAL).name).is_symlink()
    assert names(machine.var_tmp / "aside") == {"agents", "current"}
    assert b'"result"' in output


@pytest.mark.lab
def test_who_plants_links_while_a_root_is_made_is_never_followed(can_have_lab: None, tmp_path: Path) -> None:
    open_directory, target = tmp_path / "open", tmp_path / "target"
    for path in (open_directory, target):
        path.mkdir()
        path.chmod(0o1777)
    root = open_directory / "root"
    attacker = os.fork()
    if attacker == 0:
        while True:
            with contextlib.suppress(OSError):
                root.symlink_to(target)
            with contextlib.suppress(OSError):
                root.unlink()
    made = 0
    try:
        with unprotected_links():
            # Longer where it was never made: who plants the link may be the one that stands still.
            for number in range(400_000):
                if number >= 400 and made:
                    break
                with contextlib.suppress(root_program.Refusal):
                    place = root_program.inspect_root(root, makes=True)
                    (place / "agents").mkdir()
                    made += 1
                    (place / "agents").rmdir()
                    with contextlib.suppress(OSError):
                        root.rmdir()
    finally:
        os.kill(attacker, 9)
        os.waitpid(attacker, 0)
    assert made
    assert list(target.iterdir()) == []


@pytest.mark.lab
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda top: top.chmod(0o777), "root-exchangeable"),
        (lambda top: os.chown(top, OTHER, OTHER), "root-exchangeable"),
        (lambda top: (top / "way").symlink_to(top), "root"),
        (lambda top: plant_link(top, "way"), "root-exchangeable"),
        (lambda top: (top / "way").symlink_to("way"), "root-not-directory"),
        (lambda top: (top / "way").mkdir(), "root"),
        (lambda top: (top / "way/root/letters").mkdir(parents=True), "root-foreign"),
        (lambda top: (top / "way/root").mkdir(mode=0o700, parents=True), "root"),
    ],
)
def test_a_root_is_reached_only_where_nobody_else_can_lead_it_astray(
    can_have_lab: None, tmp_path: Path, make: Any, code: str
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    make(top)
    try:
        found = root_program.inspect_root(top / "way" / "root").name
    except root_program.Refusal as refusal:
        found = refusal.code
    assert found == code or (code == "root" and found.isdigit())


def plant_link(top: Path, name: str) -> None:
    """Have another user's link lead to where all would be well."""
    top.chmod(0o1777)
    (top / name).symlink_to(top.parent)
    os.chown(top / name, OTHER, OTHER, follow_symlinks=False)


async def test_an_agent_root_of_the_inventory_holds_over_ssh_for_every_verb(
    sshd: Sshd, transport: SshTransport, source: WheelSource, newer: WheelSource, tmp_path: Path
) -> None:
    root = tmp_path / "local disk" / "agent's %1 $HOME"
    host: Environment = sshd.environment(
        agent_root=f"{tmp_path}//local disk/./agent's %1 $HOME/", python=sys.executable
    )
    deployed = (await deploy_all([host], transport, Nobody(), source=source))[0]
    assert isinstance(deployed, Deployment), deployed
    assert deployed.directory == str(root / "agents" / deployed.digest)
    client = await AgentClient.connect(host, transport, Nobody(), PATIENCE_S)
    assert client.hello is not None
    await client.close()
    seen = (await status_all([host], transport, Nobody(), source=source))[0]
    assert isinstance(seen, AgentStatus), seen
    assert (seen.state, seen.seen.probe.root) == ("up-to-date", str(root))
    assert seen.seen.daemon is not None
    upgraded = (await deploy_all([host], transport, Nobody(), source=newer, only_upgrade=True))[0]
    assert isinstance(upgraded, Deployment), upgraded
    assert upgraded.outcome in (Outcome.UPGRADED, Outcome.REPAIRED)
    assert (root / "agent.sock").exists()
    removed = (await remove_all([host], transport, Nobody()))[0]
    assert isinstance(removed, AgentRemoval), removed
    assert removed.removed
    assert not root.exists()
