"""Whether a job outlives the login session: by systemd's files, and by units of its own where there may be any."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dtagent.linger import (
    can_outlive_logout,
    environment_file,
    kills_user_processes,
    logout_kills,
    unit_name,
    unit_text,
)
from dtagent.protocol.places import usual_root

from tests.agent.conversation import Conversation

UID = os.getuid()
USER = getpass.getuser()
SESSION = "1:name=systemd:/user.slice/user-7.slice/session-12.scope\n0::/user.slice/user-7.slice/session-12.scope\n"
KILLS = "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=\n"


class Host:
    """A host's files below a directory, as far as these decisions look at them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch
        self.programs = root / "programs"
        self.programs.mkdir(parents=True)
        monkeypatch.setenv("PATH", f"{self.programs}:{os.environ['PATH']}")
        (root / "run/systemd/system").mkdir(parents=True)
        self.write("proc/self/cgroup", SESSION)

    def write(self, name: str, text: str = "") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(f"#!{sys.executable} -I\n{text}")
        path.chmod(0o700)

    def enable_linger(self) -> None:
        self.write(f"var/lib/systemd/linger/{USER}")
        self.write(f"run/user/{UID}/systemd/private")
        for name in ("systemctl", "systemd-run"):
            self.program(name, "")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "host", monkeypatch)


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, False),
        ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=no\n"}, False),
        ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n#KillExcludeUsers=root\n"}, USER != "root"),
        ({"usr/lib/systemd/logind.conf": KILLS}, True),
        ({"usr/lib/systemd/logind.conf": KILLS, "etc/systemd/logind.conf": "[Login]\n"}, False),
        (
            {"etc/systemd/logind.conf": KILLS, "etc/systemd/logind.conf.d/9.conf": "[Login]\nKillUserProcesses=0\n"},
            False,
        ),
        (
            {"etc/systemd/logind.conf.d/1.conf": KILLS, "usr/lib/systemd/logind.conf.d/2.conf": "KillUserProcesses=no"},
            False,
        ),
        (
            {"etc/systemd/logind.conf.d/2.conf": KILLS, "usr/lib/systemd/logind.conf.d/2.conf": "KillUserProcesses=no"},
            True,
        ),
        ({"run/systemd/logind.conf.d/kill.conf": KILLS}, True),
        ({"etc/systemd/logind.conf": f"{KILLS}KillExcludeUsers=other {USER}\n"}, False),
        ({"etc/systemd/logind.conf": f"{KILLS}KillOnlyUsers=other\n"}, False),
        ({"etc/systemd/logind.conf": f"{KILLS}KillOnlyUsers=other\nKillOnlyUsers={USER}\n"}, True),
        ({"etc/systemd/logind.conf": f"{KILLS}KillOnlyUsers=other\nKillOnlyUsers=\n"}, True),
    ],
)
def test_what_logind_kills_is_read_as_logind_reads_it(host: Host, files: dict[str, str], kills: bool) -> None:
    for name, text in files.items():
        host.write(name, text)
    assert kills_user_processes(host.root) == kills
    assert logout_kills(host.root) == kills


def test_a_job_is_killed_where_its_session_ends_all_and_nothing_else_holds_it(host: Host) -> None:
    host.write("etc/systemd/logind.conf", KILLS)
    assert logout_kills(host.root)
    host.write("proc/self/cgroup", "0::/system.slice/ssh.service\n")
    assert not logout_kills(host.root), "no session holds it: sshd without PAM"
    host.write("proc/self/cgroup", f"0::/user.slice/user-{UID}.slice/user@{UID}.service/app.slice/run.scope\n")
    assert logout_kills(host.root), "the user's service manager ends with the last session"
    host.enable_linger()
    assert not logout_kills(host.root)


def test_linger_mends_it_only_where_the_service_manager_can_be_asked(host: Host) -> None:
    host.write("etc/systemd/logind.conf", KILLS)
    host.enable_linger()
    assert can_outlive_logout(host.root)
    assert not logout_kills(host.root)
    (host.root / f"run/user/{UID}/systemd/private").unlink()
    assert not can_outlive_logout(host.root)
    assert logout_kills(host.root)


def test_without_systemd_nothing_kills(host: Host) -> None:
    host.write("etc/systemd/logind.conf", KILLS)
    shutil.rmtree(host.root / "run/systemd")
    assert not logout_kills(host.root)


def test_each_root_has_a_unit_of_its_own(tmp_path: Path) -> None:
    assert unit_name(Path(usual_root())) == "dtagent.service"
    assert unit_name(tmp_path / "a") != unit_name(tmp_path / "b")


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    unit = tmp_path / "dtagent.service"
    unit.write_text(unit_text(Path("/var/tmp/od d%1$HOME"), Path("/run/u/od d%.env"), ["--idle-exit", "60"]))
    # A supervisor that could not have a scope of its own must outlive the daemon.
    assert "KillMode=process\n" in unit.read_text()
    assert "EnvironmentFile=/run/u/od d%%.env\n" in unit.read_text()
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert str(unit.name) not in done.stderr
    assert done.returncode == 0, done.stderr


def test_the_environment_is_kept_but_for_what_belongs_to_the_session() -> None:
    text = environment_file(
        {
            "PATH": "/opt/cuda/bin:/bin",
            "QUOTED": 'a "b" $c \\ `d`',
            "SSH_AUTH_SOCK": "/tmp/x",
            "XDG_SESSION_ID": "3",
            "BASH_FUNC_f%%": "() { :; }",
            "LINES2": "a\nb",
            "UNDECODED": "\udcff",
        }
    )
    assert text == 'PATH="/opt/cuda/bin:/bin"\nQUOTED="a \\"b\\" \\$c \\\\ \\`d\\`"\n'


SYSTEMCTL = r"""
import json, os, pathlib, shlex, socket, subprocess, sys
action, *names = sys.argv[2:]
units = pathlib.Path(os.environ["XDG_RUNTIME_DIR"], "systemd/user")
with open(units.parent / "told", "a") as told:
    told.write(json.dumps(sys.argv[1:]) + "\n")
if action == "start":
    lines = (units / names[0]).read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    variables = pathlib.Path(unit["EnvironmentFile"]).read_text().splitlines()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(units.parent / "notify"))
        ready.settimeout(20)
        environment = dict(shlex.split(line)[0].split("=", 1) for line in variables)
        subprocess.Popen(
            shlex.split(unit["ExecStart"]),
            env={**environment, "NOTIFY_SOCKET": ready.getsockname()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(unit["StandardError"].partition(":")[2], "ab"),
            start_new_session=True,
        )
        assert ready.recv(100) == b"READY=1"
"""
"""A service manager that starts one unit as systemd does a Type=notify service."""
SYSTEMD_RUN = r"""
import json, os, sys
at = sys.argv.index("--")
with open(os.path.join(os.environ["XDG_RUNTIME_DIR"], "systemd/told"), "a") as told:
    told.write(json.dumps(["systemd-run", *sys.argv[1:at]]) + "\n")
if os.path.exists(os.path.join(os.environ["XDG_RUNTIME_DIR"], "broken")):
    sys.exit("Failed to connect to bus: Connection refused")
os.execvp(sys.argv[at + 1], sys.argv[at + 1:])
"""
"""A scope that is none: what systemd-run leaves to the program it becomes is the same."""


@pytest.mark.lab
@pytest.mark.parametrize("works", [True, False])
def test_where_linger_is_on_daemon_and_supervisors_are_systemds(
    can_have_lab: None, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    host.enable_linger()
    host.program("systemctl", SYSTEMCTL if works else "raise SystemExit('Failed to connect to bus')")
    host.program("systemd-run", SYSTEMD_RUN)
    if not works:
        host.write(f"run/user/{UID}/broken")
    told = host.root / f"run/user/{UID}/systemd/told"
    (host.root / "var/lib").mkdir(exist_ok=True)
    monkeypatch.setenv("LOGIN_TOKEN", "of the login")
    mounts = " && ".join(f"mount --bind {shlex.quote(str(host.root / name))} /{name}" for name in ("run", "var/lib"))
    interpreter = host.programs / "python"
    interpreter.write_text(f'#!/bin/sh\nexec unshare --mount sh -c \'{mounts} && exec {sys.executable} "$@"\' - "$@"\n')
    interpreter.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    monkeypatch.setenv("DTTUI_TEST_MARK", "kept")
    with Conversation(tmp_path / "root") as agent:
        agent.prepare("held")
        agent.start("held", [["sh", "-c", 'echo "$DTTUI_TEST_MARK $TOKEN"']], secrets={"TOKEN": "secret"})
        assert agent.streams("held")["0.out"] == b"kept secret\n"
    calls = [json.loads(line) for line in told.read_text().splitlines()]
    started = [call for call in calls if "start" in call]
    assert started == ([["--user", "start", unit_name(tmp_path / "root")]] if works else [])
    (scope,) = [call for call in calls if call[0] == "systemd-run"]
    assert {"--user", "--scope", "--property=Delegate=yes"} <= set(scope)
    assert "secret" not in told.read_text()
    on_disk = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert [path for path in on_disk if b"of the login" in path.read_bytes()] == []
