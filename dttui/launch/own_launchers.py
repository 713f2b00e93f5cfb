"""Launchers that start ranks of their own, in a command that a job starts once a GPU: two of them fight for a port."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from dttui.i18n import _
from dttui.launch.command_line import files_of
from dttui.planning.models import Plan
from dttui.spec.findings import Finding, error
from dttui.spec.models import Run

MOST_BYTES = 1 << 20
"""Of a script of a shell that is read."""
_LAUNCHERS = re.compile(
    r"""(?mx)
    (?: ^ | [;&|(){}`] | \b(?:then|do|else|exec|time|nohup|env|sudo) \b ) \s*
    (?: [A-Za-z_]\w* = (?: "[^"]*" | '[^']*' | \S* ) \s+ )*  # variables of this command alone
    (?: (?: uv | conda | poetry | pdm ) \s+ run \s+ (?: -\S+ \s+ (?: [^-\s]\S* \s+ )? )* )?
    (?: numactl \s+ (?: -\S+ \s+ )* )?
    (?: \S*/ )?
    (
        torchrun | deepspeed
        | accelerate \s+ launch
        | python[\d.]* \s+ (?: -\w \s+ )* -m \s+ torch\.distributed\.(?: run | launch )
        | python[\d.]* \s+ (?: -\w \s+ )* -m \s+ accelerate\.commands\.launch
        | llamafactory-cli \s+ train | axolotl \s+ train
    )
    (?= \s | $ )
    """
)
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")
_CONTINUED = re.compile(r"\\\n")
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}


def launcher_in(text: str) -> str | None:
    """Return the first launcher that a text of a shell's starts, as it is written there."""
    found = _LAUNCHERS.search(_CONTINUED.sub(" ", _COMMENT.sub("", text)))
    return " ".join(found[1].split()) if found is not None else None


def check_launchers(run: Run, plan: Plan, directory: Path | None) -> Iterator[Finding]:
    """Yield an error where a command that is started once a GPU starts a launcher.

    Args:
        run: of the job.
        plan: with its nodes.
        directory: which is sent, whose scripts are read; `None` where none is.
    """
    if run.command is None or run.per == "node" or all(node.slots < 2 for node in plan.nodes):
        return
    for where, text in _texts(run.command, directory):
        name = launcher_in(text)
        if name is None:
            continue
        message = _(
            "{program} starts ranks of its own, and the job starts it once a GPU: two copies would fight for the port"
        )
        if where is not None:
            message = _(
                "{file} runs {program}, which starts ranks of its own, and the job starts it once a GPU: two copies "
                "would fight for the port"
            )
        hint = _("Use run.per: node, by which it is started once a node and told its place.")
        yield error("launcher-inside", "run.command", message.format(program=name, file=where), hint)
        return


def _texts(command: tuple[str, ...], directory: Path | None) -> Iterator[tuple[str | None, str]]:
    """Yield what a command says, and the scripts of a shell that it runs, by their names."""
    yield None, shlex.join(command)
    if len(command) > 2 and Path(command[0]).name in _SHELLS and command[1].startswith("-") and "c" in command[1]:
        yield None, command[2]
    if directory is None:
        return
    for file in files_of(command):
        path = directory / file
        is_shells = path.suffix in (".sh", ".bash", ".slurm", ".sbatch") or Path(command[0]).name in _SHELLS
        if is_shells and path.is_file() and path.stat().st_size <= MOST_BYTES:
            yield file, path.read_text(encoding="utf-8", errors="replace")
