"""Launchers that start ranks of their own, in a command that a job starts once a GPU: two of them fight for a port."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from dttui.i18n import _
from dttui.launch.command_line import files_of
from dttui.planning.models import Plan
from dttui.spec.findings import Finding, error, warning
from dttui.spec.models import Run

MOST_BYTES = 1 << 18
"""Of a script of a shell that is read."""
MOST_CHARACTERS = 2000
"""Of a line of it."""
_BEGIN = re.compile(r"(?:^|[;&|(){}`]|\b(?:then|do|else|exec|time|nohup|env)\b)\s*")
"""Where a command begins in a line of a shell's."""
_BEFORE = re.compile(
    r"""(?x)
    [A-Za-z_]\w* = (?: "[^"]*" | '[^']*' | [^\s"']* ) \s+  # a variable of this command alone
    | (?: uv | conda | poetry | pdm ) \s+ run \s+
    | (?: numactl | sudo | timeout | nice | stdbuf | env | exec | nohup | time | srun ) \s+
    | (?: -n | --name | -p | --prefix | --with | --extra ) \s+ \S+ \s+
    | -\S+ \s+ (?: \d\S* \s+ )?  # an option of theirs, and its number
    | \d\S* \s+  # seconds of timeout
    """
)
"""What may stand before the program itself."""
_LAUNCHER = re.compile(
    r"""(?x)
    (?: [^\s/;&|(){}`]*/ )*
    (
        torchrun | deepspeed
        | accelerate \s+ launch
        | (?: python[\d.]* | "?\$\{?\w+\}?"? ) \s+ (?: -\w \s+ )* -m
          \s+ (?: torch\.distributed\.(?: run | launch ) | accelerate\.commands\.launch )
        | llamafactory-cli \s+ train | axolotl \s+ train | swift \s+ (?: pt | sft | rlhf )
    )
    (?= \s | $ )
    """
)
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}


def launcher_in(text: str) -> str | None:
    """Return the first launcher that a text of a shell's starts, as it is written there."""
    for line in text.replace("\\\n", " ").splitlines():
        told = _COMMENT.sub("", line[:MOST_CHARACTERS])
        for begin in _BEGIN.finditer(told):
            place = begin.end()
            while before := _BEFORE.match(told, place):
                place = before.end()
            if found := _LAUNCHER.match(told, place):
                return " ".join(found[1].split())
    return None


def check_launchers(run: Run, plan: Plan, directory: Path | None) -> Iterator[Finding]:
    """Yield a finding where a command that is started once a GPU starts a launcher: of a script of a shell's a warning.

    Such a script may start it in some cases alone, which only running it would tell.

    Args:
        run: of the job.
        plan: with its nodes.
        directory: which is sent, whose scripts are read; `None` where none is.
    """
    if run.command is None or run.per == "node" or all(node.slots < 2 for node in plan.nodes):
        return
    hint = _("Use run.per: node, by which it is started once a node and told its place.")
    # Quoted as one word each: what a word holds is a script's.
    name = launcher_in(
        " ".join(word if shlex.quote(word) == word or word.startswith("$") else "''" for word in run.command)
    )
    if name is not None:
        message = _(
            "{program} starts ranks of its own, and the job starts it once a GPU: two copies would fight for the port"
        )
        yield error("launcher-inside", "run.command", message.format(program=name), hint)
        return
    for where, text in _scripts(run.command, directory):
        name = launcher_in(text)
        if name is not None:
            message = _(
                "{file} runs {program}, which starts ranks of its own, and the job starts it once a GPU: two copies "
                "would fight for the port"
            )
            yield warning("launcher-inside", "run.command", message.format(program=name, file=where), hint)
            return


def _scripts(command: tuple[str, ...], directory: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the scripts of a shell that a command gives or runs, by their names."""
    is_shells = Path(command[0]).name in _SHELLS
    given = next((place for place, word in enumerate(command[:-1]) if re.fullmatch(r"-\w*c", word)), None)
    if is_shells and given is not None:
        yield f"{Path(command[0]).name} -c", command[given + 1]
    if directory is None:
        return
    for file in files_of(command):
        path = directory / file
        if is_shells or path.suffix in (".sh", ".bash", ".slurm", ".sbatch"):
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_size <= MOST_BYTES:
                    yield file, path.read_text(encoding="utf-8", errors="replace")
