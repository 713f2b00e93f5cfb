"""Whether what is started here outlives the login session, and the systemd units that let it where a session ends all.

Knows systemd's files by name, and of the agent only how it is started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from dtagent.errors import DtagentError
from dtagent.locations import make_private, own_python, write_atomic
from dtagent.names import ALREADY_RUNNING, ERROR_LOG
from dtagent.protocol.places import usual_root
from dtagent.system import users

START_TIMEOUT_S = 20.0

_LOGIND_PLACES = ("usr/lib/systemd", "usr/local/lib/systemd", "run/systemd", "etc/systemd")
"""From the weakest to the strongest."""
_SESSION_SCOPE = re.compile(r"/session-[^/]+\.scope(/|$)", re.MULTILINE)
_OF_THE_SESSION = ("SSH_", "XDG_SESSION_", "XDG_SEAT", "XDG_VTNR", "DBUS_SESSION_", "TERM", "SHLVL", "OLDPWD", "PWD")
"""What variables begin with that mean nothing once the session is over."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnitError(DtagentError):
    """systemd would not start it."""


def can_outlive_logout(system: Path = Path("/")) -> bool:
    """Whether this user has a service manager that no logout ends, and the programs to talk to it.

    Args:
        system: root of the host's files.
    """
    lingers = (system / "var/lib/systemd/linger" / users.name_of(os.getuid())).exists()
    has_manager = _private_socket(system).exists()
    return lingers and has_manager and all(map(shutil.which, ("systemctl", "systemd-run")))


def logout_kills(system: Path = Path("/")) -> bool:
    """Whether a job that is started now would be killed when the login session of its user ends.

    Args:
        system: root of the host's files.
    """
    if not (system / "run/systemd/system").is_dir() or can_outlive_logout(system):
        return False
    place = _read(system / "proc/self/cgroup")
    if _SESSION_SCOPE.search(place):
        return kills_user_processes(system)
    # The user's own service manager goes after the last session, and takes all that it started with it.
    lingers = (system / "var/lib/systemd/linger" / users.name_of(os.getuid())).exists()
    return f"/user@{os.getuid()}.service" in place and not lingers


def kills_user_processes(system: Path = Path("/")) -> bool:
    """Whether logind kills what a session of this user leaves behind, as its configuration says."""
    settings = {"KillUserProcesses": "no", "KillOnlyUsers": "", "KillExcludeUsers": "root"}
    main = next(
        (path for place in reversed(_LOGIND_PLACES) if (path := system / place / "logind.conf").is_file()), None
    )
    text = _read(main) if main else ""
    # What a distribution was built with stands in its file as a comment.
    built_with = re.search(r"^#\s*KillUserProcesses\s*=\s*(\w+)", text, re.MULTILINE)
    if built_with:
        settings["KillUserProcesses"] = built_with.group(1)
    drop_ins: dict[str, Path] = {}
    for place in _LOGIND_PLACES:
        drop_ins.update({path.name: path for path in (system / place / "logind.conf.d").glob("*.conf")})
    for part in (text, *(_read(drop_ins[name]) for name in sorted(drop_ins))):
        for name, value in re.findall(r"^\s*(Kill\w+)\s*=[ \t]*(.*?)\s*$", part, re.MULTILINE):
            is_list = name in ("KillOnlyUsers", "KillExcludeUsers")
            settings[name] = f"{settings[name]} {value}" if is_list and value else value
    user = users.name_of(os.getuid())
    only, excluded = settings["KillOnlyUsers"].split(), settings["KillExcludeUsers"].split()
    kills = settings["KillUserProcesses"].lower() in ("yes", "y", "true", "t", "on", "1")
    return kills and user not in excluded and (not only or user in only)


def start_daemon(root: Path, options: list[str], system: Path = Path("/")) -> None:
    """Write the unit of the daemon for this root and start it; return when it serves.

    Raises:
        UnitError: systemd would not.
        OSError: the unit cannot be written.
    """
    # On the host's own memory file system: a home may be shared with hosts where none of this is true.
    directory = _runtime_directory(system) / "systemd/user"
    make_private(directory)
    name = unit_name(root)
    # Jobs are to find what they do where there is no unit: the environment of a login, tokens and all. So it goes where
    # the unit does, in memory for this user alone, and not on a disk.
    variables = directory / f"{name}.env"
    write_atomic(variables, environment_file(dict(os.environ)))
    (root / "daemon.env").unlink(missing_ok=True)  # Of an agent before 0.2.
    write_atomic(directory / name, unit_text(root, variables, options))
    for action in (["daemon-reload"], ["reset-failed", name], ["start", name]):
        done = _run(["systemctl", "--user", *action], START_TIMEOUT_S, system)
        if done.returncode and action[0] != "reset-failed":
            raise UnitError(f"systemctl --user {' '.join(action)}: {done.stderr.decode(errors='replace').strip()}")


def unit_name(root: Path) -> str:
    """Return what the daemon of a root is called: `dtagent.service` for the usual one."""
    if root == Path(usual_root()):
        return "dtagent.service"
    return f"dtagent-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}.service"


def unit_text(root: Path, variables: Path, options: list[str]) -> str:
    """Return the unit of the daemon, whose environment is in a file."""
    argv = [own_python(), "-I", "-m", "dtagent", "daemon", "--root", str(root), *options]
    return f"""\
[Unit]
Description=dtagent, which runs and watches the jobs of dttui

[Service]
Type=notify
EnvironmentFile={_escaped(str(variables))}
ExecStart={" ".join(map(_quoted, argv))}
StandardOutput=null
StandardError=append:{_escaped(str(root / ERROR_LOG))}
# Jobs are in scopes of their own; where one could not have that, it is here, and is not to end with the daemon.
KillMode=process
TimeoutStopSec=10
Restart=on-failure
# Another daemon serves already.
RestartPreventExitStatus={ALREADY_RUNNING}
"""


def environment_file(environment: dict[str, str]) -> str:
    """Return variables as systemd reads them, but not those that belong to a session."""
    lines = []
    for name, value in sorted(environment.items()):
        if _NAME.fullmatch(name) and not name.startswith(_OF_THE_SESSION) and value.isprintable():
            escaped = re.sub(r'(["\\$`])', r"\\\1", value)
            lines.append(f'{name}="{escaped}"\n')
    return "".join(lines)


def scope_argv(name: str) -> list[str]:
    """Return what stands before a command line that is to run in a scope of its own and to make cgroups in it."""
    options = ["--quiet", "--collect", f"--unit={name}", "--property=Delegate=yes"]
    return ["systemd-run", "--user", "--scope", *options, "--"]


def user_environment(system: Path = Path("/")) -> dict[str, str]:
    """Return the environment with what leads to the user's service manager, which a login without PAM lacks."""
    return {**os.environ, "XDG_RUNTIME_DIR": str(_runtime_directory(system))}


def _run(argv: list[str], timeout_s: float, system: Path) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=user_environment(system),
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnitError(f"{argv[0]}: {error}") from error


def _runtime_directory(system: Path) -> Path:
    return system / "run/user" / str(os.getuid())


def _private_socket(system: Path) -> Path:
    return _runtime_directory(system) / "systemd/private"


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    return '"' + _escaped(re.sub(r'(["\\])', r"\\\1", text)).replace("$", "$$") + '"'
