"""The constant command strings of `RemoteCommand`, and what `BOOTSTRAP` expects first on its stdin."""

from __future__ import annotations

from dttui.errors import UsageError
from dttui.i18n import _
from dttui.transport.base import RemoteCommand

NO_PYTHON_EXIT_STATUS = 42
"""Exit status of `BOOTSTRAP` where the host has no Python ≥ 3.10; one line on stderr lists those it has."""

TRUNCATED_EXIT_STATUS = 43
"""Exit status of `BOOTSTRAP` where stdin ended before the whole program had come."""

# Everything below is quoted once with '…' and inside that with "…", which sh, bash, csh and fish read alike, so it
# holds no single quote, no backslash, no `!` and no newline. Python code inside must do without quotes of any kind.

# /var/tmp is everybody's: a directory that is not our own, or that others write to, may hold another user's program.
# Where the usual one is another user's, another was taken and recorded in the home, with those of other hosts that
# share it, as `dtagent.protocol.places` has it in Python.
_OWN = 'own() { [ -O "$1" ] && case $(ls -ld "$1") in d????-??-*) ;; *) false;; esac; }; '
_CONNECT = 'exec "$d/current/bin/python" -I -m dtagent connect --root "$d"'
_AGENT = (
    f"exec sh -c '{_OWN}"
    "u=/var/tmp/dtagent-$(id -u); d=$u; "
    'if own "$d"; then :; else [ -d "$d" ] && [ -O "$d" ] && { [ -L "$d" ] || exit 127; }; '
    'd=; h="$HOME/.local/state/dtagent/roots"; own "$h" || exit 127; '
    "{ IFS= read -r m </etc/machine-id; IFS= read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null; "
    'for f in "$h/$m-$b-"* "$h"/*; do [ -L "$f" ] && continue; [ -O "$f" ] && [ -f "$f" ] || continue; '
    'IFS= read -r d <"$f"; case $d in "$u"-*) own "$d" && break;; esac; d=; done; fi; '
    f'[ -n "$d" ] || exit 127; {_CONNECT}\''
)
_AGENT_AT = f"exec sh -c '{_OWN}IFS= read -r d; own \"$d\" || exit 127; {_CONNECT}'"

# The program finds the rest of stdin in two globals: `stdin`, an unbuffered `io.FileIO`, and `read_exactly(count)`,
# which returns fewer bytes only at the end of the input.
_LOADER = (
    "import io, sys; "
    "stdin = io.FileIO(0, closefd=False); "
    "read_exactly = lambda n: (b := bytearray(), "
    "all(iter(lambda: len(b) < n and (c := stdin.read(n - len(b))) and not b.extend(c), None)), bytes(b))[2]; "
    "size = int(stdin.readline() or 0); "
    "program = read_exactly(size); "
    f"exec(program) if size and len(program) == size else sys.exit({TRUNCATED_EXIT_STATUS})"
)

_CANDIDATES = (
    "python3 python3.14 python3.13 python3.12 python3.11 python3.10 /usr/bin/python3 /opt/conda/bin/python "
    '"$HOME/miniconda3/bin/python" "$HOME/.pyenv/shims/python3"'
)

# `read` takes one byte at a time from a pipe, so the rest of stdin stays for the program. The version test reads from
# /dev/null for the same reason, and prints the version so that something else than a Python is never taken for one.
_BOOTSTRAP = (
    "exec sh -c '"
    'p=; IFS= read -r p; case "$p" in "~"/*) p="$HOME/${p#*/}";; esac; f=; '
    f'for c in "$p" {_CANDIDATES}; do [ -n "$c" ] || continue; '
    'v=$("$c" -c "import sys; print(sys.version.split()[0]); sys.exit(sys.version_info < (3, 10))" '
    "</dev/null 2>/dev/null); s=$?; "
    'case "$v" in *[0-9].[0-9]*) ;; *) continue;; esac; '
    f'[ $s -eq 0 ] && exec "$c" -I -c "{_LOADER}"; '
    'f="$f $c=$v"; done; '
    'echo "dttui-bootstrap: no python>=3.10 (found:${f:- none})" >&2; '
    f"exit {NO_PYTHON_EXIT_STATUS}'"
)

COMMANDS = {
    RemoteCommand.AGENT: _AGENT,
    RemoteCommand.AGENT_AT: _AGENT_AT,
    RemoteCommand.BOOTSTRAP: _BOOTSTRAP,
}
"""What the remote login shell is given, the same for every host."""


def bootstrap_input(program: bytes, python: str | None = None) -> bytes:
    """Return what to write to `BOOTSTRAP`'s stdin before anything that is for the program itself.

    Args:
        program: Python source, UTF-8. It runs as `__main__` and reads on by its globals `stdin` and `read_exactly`.
        python: Interpreter to prefer; a leading `~/` is the remote home.

    Raises:
        UsageError: The interpreter's path has a line break in it.
    """
    wanted = python or ""
    if "\n" in wanted or "\r" in wanted or "\0" in wanted:
        raise UsageError(
            _("the interpreter {path!r} is not a path").format(path=wanted),
            _("Write the path of a Python, such as /opt/conda/bin/python."),
        )
    return b"%s\n%d\n%s" % (wanted.encode(), len(program), program)
