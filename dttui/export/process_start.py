"""How a script starts the process of a node, or several at once, the first failure of which ends the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dttui.export.shell import Shell, comment, in_quotes, lines_of
from dttui.frameworks.bundle import Hole, PlannedProcess
from dttui.frameworks.parts.environment import VARIABLES_DIRECTORY
from dttui.i18n import _

GRACE_S = 15
"""How long processes may take to end once one has failed, as long as a stop of dttui gives them."""
_ENVIRONMENT = '"${environment[@]}"'
# Not `wait -n`, which may miss one of two processes that end at once, and before bash 5.1 tells of none which it was.
_SEVERAL = """\
set -m         # {groups}
exec 3<> <(:)  # {pipe}
groups=()

start() {{  # NAME COMMAND…
  (
    exec 4>&2 2>/dev/null
    trap : TERM
    (exec 2>&4 3>&- 4>&- && exec "${{@:2}}") && code=0 || code=$?
    echo "$1 $code" >&3
  ) </dev/null &
  groups+=("$!")
}}

finish() {{  # {finish}
  exec 2>/dev/null
  trap '' HUP INT TERM
  for group in "${{groups[@]}}"; do kill -TERM -- "-$group" || true; done
  for ((tenth = 0; tenth < {tenths}; tenth++)); do
    alive=
    for group in "${{groups[@]}}"; do kill -0 "$group" && alive=yes; done
    [ -n "$alive" ] || break
    sleep 0.1
  done
  for group in "${{groups[@]}}"; do kill -KILL -- "-$group" || true; done
  exit "$1"
}}
trap 'finish 129' HUP
trap 'finish 130' INT
trap 'finish 143' TERM
"""
_WAIT = """\
left={count}  # {what}
while ((left > 0)); do
  read -ru 3 name code
  if ((code != 0)); then
    echo "{failed}" >&2
    finish "$code"
  fi
  {counting}
done
finish 0"""


def environment(processes: Sequence[PlannedProcess], shell: Shell) -> str:
    """Return the variables that all processes have alike, as an array."""
    shared = _shared(processes)
    words = [_variable(name, value, shell) for name, value in shared.items()]
    long = shared.get("DTTUI_VARIABLES", "").split()
    words += [f'"{name}=$(<"$DIRECTORY/{VARIABLES_DIRECTORY}/{name}")"' for name in long]
    what = comment(_("What the processes find in their environment, besides all that this shell has."))
    return "\n".join([what, "environment=(", *(f"  {item}" for item in words), ")"])


def start(processes: Sequence[PlannedProcess], shell: Shell) -> str:
    """Return what starts the processes, and ends with them."""
    if len(processes) == 1:
        return "exec " + lines_of(_words(processes[0], processes, shell))
    commands = {shell.word(item.name): lines_of(_words(item, processes, shell)) for item in processes}
    services = [shell.word(item.name) for item in processes if item.is_service]
    failed = "run.sh: " + in_quotes(_("process {name} ended with {code}")).format(name="$name", code="$code")
    return several(commands, services, failed)


def several(commands: Mapping[str, str], services: Collection[str], failed: str) -> str:
    """Return what starts commands beside each other, and ends with the last of them.

    Args:
        commands: by name, which is one word.
        services: names of those that are ended once all others have ended well. Where there are no others, they are
            ended from outside.
        failed: what is said of the first that fails, of whose `$name` and `$code` it may tell.
    """
    helpers = _SEVERAL.format(
        groups=_("a group for each process, so that all of it can be ended"),
        pipe=_("by it each process tells how it has ended"),
        finish=_("ends what still runs, and this script with the code given"),
        tenths=GRACE_S * 10,
    )
    starts = [f"start {name} {command}" for name, command in commands.items()]
    counting = "left=$((left - 1))"
    awaited = len(commands) - len(services)
    if awaited and services:
        counting = f"case $name in {'|'.join(services)}) ;; *) {counting} ;; esac"
    waiting = _WAIT.format(
        count=awaited or len(commands),
        what=_("that all end well; the first that fails ends the others"),
        failed=failed,
        counting=counting,
    )
    return "\n\n".join([helpers + "\n" + "\n".join(starts), waiting])


def _shared(processes: Sequence[PlannedProcess]) -> dict[str, str]:
    first, *others = processes
    return {name: value for name, value in first.env.items() if all(item.env.get(name) == value for item in others)}


def _words(process: PlannedProcess, processes: Sequence[PlannedProcess], shell: Shell) -> list[str]:
    shared = _shared(processes)
    own = [_variable(name, value, shell) for name, value in process.env.items() if name not in shared]
    directory = [f"--chdir={shell.word(process.cwd)}"] if process.cwd != processes[0].cwd else []
    return ["env", *directory, _ENVIRONMENT, *own, *map(shell.word, process.argv)]


def _variable(name: str, value: str, shell: Shell) -> str:
    """Return a variable as a word; one that names the network interface is left out where that is not known."""
    interface = Hole.INTERFACE.value
    return shell.assignment(name, value, unless_empty=interface if interface in shell.variables_in([value]) else None)
