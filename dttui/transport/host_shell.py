"""How a person gets a shell on a host at their own terminal: by the way that dttui itself takes there."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from dttui import locations
from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment, Reach
from dttui.sanitize import clean
from dttui.variables import for_a_process

_TERMINAL = {"docker": "-t", "podman": "-t", "nerdctl": "-t", "kubectl": "-t", "oc": "-t", "srun": "--pty"}
"""What a program is told besides, so that there is a terminal on the other side."""
_INTERACTIVE = "-i"
_LOGIN = 'exec "${SHELL:-/bin/sh}" -l'
_USUAL_ROOT = '"/var/tmp/dtagent-$(id -u)"'


@dataclass(frozen=True)
class HostShell:
    """A command that gives a shell on a host."""

    name: str
    """Of the environment."""
    argv: tuple[str, ...]
    directory: str | None = None
    """On this machine, where it begins; `None` for where dttui runs."""
    told: str = ""
    """What is said before it begins."""


def host_shell(environment: Environment, job_id: str, known: str | None) -> HostShell:
    """Return what gives a shell on a host, in the directory that it has of a job if there is one.

    Args:
        environment: the host.
        job_id: of the job.
        known: a path in that directory, where one is known.
    """
    path = _job_directory(job_id, known)
    match environment.reach:
        case Reach.LOCAL:
            root = environment.agent_root or f"/var/tmp/dtagent-{os.getuid()}"  # noqa: S108 - looked into, not written to
            place = path or f"{root}/jobs/{job_id}"
            shell = for_a_process().get("SHELL") or "/bin/sh"
            return HostShell(environment.name, (shell,), place if Path(place).is_dir() else None)
        case Reach.EXEC:
            told = _("the job's directory there: {path}").format(path=path) if path is not None else ""
            return HostShell(environment.name, (*_at_a_terminal(environment.exec or ()), "sh"), told=told)
        case Reach.SSH:
            root = shlex.quote(environment.agent_root) if environment.agent_root is not None else _USUAL_ROOT
            place = shlex.quote(path) if path is not None else f"{root}/jobs/{job_id}"
            script = f"cd {place} 2>/dev/null; {_LOGIN}"
            words = _ssh(environment), f"exec sh -c {shlex.quote(script)}"
            return HostShell(environment.name, (*words[0], words[1]))


async def open_shell(shell: HostShell) -> int:
    """Have a person use a shell at this terminal until they leave it; return its exit status.

    Raises:
        HostUnreachableError: it cannot be started.
    """
    print(clean(_("a shell on {host}; `exit` leads back").format(host=shell.name)))
    if shell.told:
        print(clean(shell.told))
    sys.stdout.flush()
    # Ctrl-C is the shell's. What is ignored here would be ignored there, too; a handler is not passed on.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        process = await asyncio.create_subprocess_exec(*shell.argv, cwd=shell.directory, env=for_a_process())
        try:
            return await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
    except OSError as fault:
        message = _("{host}: {program} cannot be started on this machine: {reason}").format(
            host=shell.name, program=shell.argv[0], reason=fault.strerror or fault
        )
        raise HostUnreachableError(shell.name, message) from fault
    finally:
        signal.signal(signal.SIGINT, before)


def _job_directory(job_id: str, known: str | None) -> str | None:
    """Return the directory of a job on its host, by a path in it; `None` where that lies elsewhere."""
    head, mark, _rest = (known or "").partition(f"/jobs/{job_id}/")
    return f"{head}{mark}".rstrip("/") if mark and head.startswith("/") else None


def _at_a_terminal(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that reaches a host, with what makes it pass on a terminal, where that is known."""
    program, *rest = os.path.expanduser(words[0]), *words[1:]
    option = _TERMINAL.get(os.path.basename(program))
    if option is None or option in rest:
        return (program, *rest)
    if option == "--pty":
        return (program, option, *rest)
    at = rest.index(_INTERACTIVE) if _INTERACTIVE in rest else None
    return (program, *rest) if at is None else (program, *rest[: at + 1], option, *rest[at + 1 :])


def _ssh(environment: Environment) -> list[str]:
    """Return the ssh that goes where dttui's own connection goes."""
    words = ["ssh", "-t"]
    config, keys = locations.ssh_config_override(), locations.known_hosts_file()
    if config is not None:
        words += ["-F", str(config)]
    for option, value in (
        ("-l", environment.user),
        ("-p", environment.port),
        ("-i", environment.identity_file),
        ("-J", environment.proxy_jump),
    ):
        words += [option, os.path.expanduser(str(value))] if value is not None else []
    if environment.known_hosts is not None:
        words += ["-o", f"UserKnownHostsFile={_quoted(os.path.expanduser(environment.known_hosts))}"]
    elif keys.exists():  # What a person has confirmed here need not be confirmed again.
        usual = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
        words += ["-o", f"GlobalKnownHostsFile={usual} {_quoted(str(keys))}"]
    return [*words, "--", environment.host or environment.name]


def _quoted(path: str) -> str:
    """Return a path as ssh's configuration has it."""
    return f'"{path}"' if " " in path else path
