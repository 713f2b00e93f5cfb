"""What of a job's controller depends on the login session that starts it: whether it may outlive that, and its keys."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from pathlib import Path

from dttui.locations import local_user
from dttui.transport.ssh.agent_socket import is_forwarded
from dttui.variables import for_a_process, learn, variables

QUERY_TIMEOUT_S = 5.0
_LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


def own_scope(system: Path = Path("/")) -> list[str]:
    """Return what stands before a command line that is to outlive the session, where the user's manager lets it.

    Args:
        system: root of this machine's files.
    """
    lingers = (system / "var/lib/systemd/linger" / local_user()).exists()
    has_manager = (system / "run/user" / str(os.getuid()) / "systemd/private").exists()
    if lingers and has_manager and shutil.which("systemd-run"):
        return ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--"]
    return []


def logout_kills(system: Path = Path("/")) -> bool:
    """Whether systemd ends what this user leaves running at logout, as logind itself says.

    Args:
        system: root of this machine's files.
    """
    if not (system / "run/systemd/system").is_dir() or own_scope(system):
        return False
    answers = _ask_logind("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
    if len(answers) != 3 or answers[0] != "b true":
        return False
    only, excluded = (set(answer.replace('"', "").split()[2:]) for answer in answers[1:])
    return local_user() not in excluded and (not only or local_user() in only)


def take_agent(path: str) -> None:
    """Use an ssh-agent that a client brings, where the one that was there has gone with its session."""
    if path and _answers(path) and not _answers(variables().get("SSH_AUTH_SOCK", "")):
        learn("SSH_AUTH_SOCK", path)


def agent_is_forwarded() -> bool:
    """Whether the ssh-agent is one that the login session forwards, and that goes with it."""
    path = variables().get("SSH_AUTH_SOCK", "")
    return bool(path) and is_forwarded(Path(path))


def _answers(path: str) -> bool:
    if not path:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent, contextlib.suppress(OSError):
        agent.settimeout(1.0)
        agent.connect(path)
        return True
    return False


def _ask_logind(*names: str) -> list[str]:
    try:
        done = subprocess.run(
            ["busctl", "get-property", *_LOGIND, *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=QUERY_TIMEOUT_S,
            env=for_a_process(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode(errors="replace").splitlines()
