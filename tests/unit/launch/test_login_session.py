"""What a controller has of the login session: whether logout ends it, and which ssh-agent it uses."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

import pytest

from dttui.launch.login_session import agent_is_forwarded, logout_kills, own_scope, take_agent

USER = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that systemd runs, and a logind that says what the test has it say."""
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, text in (("busctl", f'cat "{tmp_path}/answer"'), ("systemd-run", "true")):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "kills"),
    [
        ('b true\nas 0\nas 1 "somebody"\n', True),
        (f'b true\nas 0\nas 1 "{USER}"\n', False),
        (f'b true\nas 2 "a" "{USER}"\nas 0\n', True),
        ('b true\nas 1 "a"\nas 0\n', False),
        ("b false\nas 0\nas 0\n", False),
        ("Failed to connect to bus\n", False),
    ],
)
def test_logind_says_whether_a_logout_ends_the_controller(system: Path, answer: str, kills: bool) -> None:
    (system / "answer").write_text(answer)
    assert logout_kills(system) is kills


def test_where_the_user_lingers_the_controller_goes_into_a_scope_that_no_logout_ends(system: Path) -> None:
    (system / "answer").write_text("b true\nas 0\nas 0\n")
    assert own_scope(system) == []
    for path in (system / "var/lib/systemd/linger" / USER, system / "run/user" / str(os.getuid()) / "systemd/private"):
        path.parent.mkdir(parents=True)
        path.touch()
    assert own_scope(system)[:3] == ["systemd-run", "--user", "--scope"]
    assert not logout_kills(system)


def test_without_systemd_a_logout_ends_nothing(tmp_path: Path) -> None:
    assert not logout_kills(tmp_path)


def test_a_client_s_agent_is_taken_only_where_the_own_one_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Short: the path of a socket holds 107 bytes at most.
    first, second = (f"{os.environ['DTTUI_DEMO_ROOT']}/{name}" for name in "ab")
    with socket.socket(socket.AF_UNIX) as old, socket.socket(socket.AF_UNIX) as new:
        for agent, path in ((old, first), (new, second)):
            agent.bind(path)
            agent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", first)
        take_agent(second)
        assert os.environ["SSH_AUTH_SOCK"] == first
        old.close()
        take_agent("")
        take_agent("/nowhere")
        assert os.environ["SSH_AUTH_SOCK"] == first
        take_agent(second)
        assert os.environ["SSH_AUTH_SOCK"] == second


@pytest.mark.parametrize(
    ("path", "connection", "forwarded"),
    [
        ("/tmp/ssh-XXXXabcd/agent.123", "10.0.0.1 22", True),
        ("/tmp/ssh-XXXXabcd/agent.123", None, False),
        ("/run/user/1000/keyring/ssh", "10.0.0.1 22", False),
        ("", "10.0.0.1 22", False),
    ],
)
def test_an_agent_is_forwarded_where_sshd_made_its_socket(
    path: str, connection: str | None, forwarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    if connection is not None:
        monkeypatch.setenv("SSH_CONNECTION", connection)
    assert agent_is_forwarded() is forwarded
