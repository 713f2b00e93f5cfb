"""Hosts reached by a command of the person's, such as `docker exec -i NAME`: it gives stdin and stdout of one there.

The command is given one word more, `sh`, and all else by stdin. So nothing is ever quoted, whether it starts what it is
given or hands it to a shell. `sh` may read ahead of the line it runs: nothing follows a line before it has answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import weakref

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.sanitize import shortened
from dttui.transport.base import Prompter, RemoteCommand
from dttui.transport.deadline import Deadline, within
from dttui.transport.open_files import raise_open_files
from dttui.transport.process_stream import ProcessStream
from dttui.transport.remote_commands import COMMANDS
from dttui.transport.turns import Turns
from dttui.variables import for_a_process

STARTS_AT_ONCE = 32
"""Commands that have not reached their host yet: each is a process that computes."""
START_S = 1.0
"""How long one usually takes at most."""
COMMAND_TIMEOUT_S = 20.0
"""How long a host that was reached may take to start a command."""
LAST_WORDS_S = 2.0
"""How long a command that has closed its stdout has to end, and so to say why."""
MAX_NOISE_BYTES = 64 * 1024
"""Of what is printed before the shell answers."""
MAX_SHOWN_CHARS = 200
"""Of a command, or of what it said, in a message."""

_HOME = 'HOME="${HOME:-/}"; export HOME'
"""As sshd and engines have it for a user without a home: programs refuse to run where there is no such variable."""
_MARK = "DTTUI_LOGIN_NODE"
"""A variable that a shell has only where the command passes on those of the login node."""
_KEPT = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "CUDA_VISIBLE_DEVICES"),
        # A shell's own, which it may refuse to unset.
        *("_", "PWD", "OLDPWD", "IFS", "UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"),
    )
)
"""Of the login node's; and what Slurm says of the step."""
_ANSWER = "[ -t 0 ]; echo dttui-$((40+2))-$?"
_ANSWERED = re.compile(rb"dttui-42-([01])(\r?)\n")
"""Other than what asks for it, which a terminal would give back."""
MAX_ANSWER_BYTES = 16
"""At least what it has."""
_STATUS_TOLD = re.compile(
    rb"^(command terminated with (non-zero )?exit code|srun: error: .*: Exited with exit code) ?[0-9]+\n?", re.MULTILINE
)
"""What kubectl and srun add about a status that they pass on: it would stand for the words of what ended with it."""


class ExecStream:
    """A shell on a host, and then the command that takes its place."""

    def __init__(self, environment: Environment, process: ProcessStream) -> None:
        self._environment = environment
        self._process = process
        self._ahead = b""
        self.write = process.write
        self.write_eof = process.write_eof
        self.close = process.close
        self.end = process.end

    async def answer(self, command: str = "") -> None:
        """Have the shell answer, and then run a command in its place where one is given.

        Raises:
            HostUnreachableError: It ended, prints without end, or is at a terminal.
        """
        with contextlib.suppress(HostUnreachableError):  # What it has said tells more.
            await self.write(f"{_forgetting()}; {_HOME}; {_ANSWER}; {command}\n".encode())
        noise = bytearray()
        unseen = 0
        while (found := _ANSWERED.search(noise, unseen)) is None:
            unseen = max(0, len(noise) - MAX_ANSWER_BYTES)
            data = await self._process.read()
            noise += data
            if not data:
                raise await self._ended(bytes(noise))
            if len(noise) > MAX_NOISE_BYTES:
                raise _failed(self._environment, _("{host}: `{program}` prints without end"))
        if found[1] == b"0" or found[2]:
            message = _("{host}: `{program}` makes a terminal there, which changes what goes through it")
            hint = _("Leave the option for a terminal out of `exec` in the inventory: -i alone, not -it.")
            raise _failed(self._environment, message, hint)
        self._ahead = bytes(noise[found.end() :])

    async def read(self) -> bytes:
        """Return the next bytes of its stdout; `b""` at the end."""
        ahead, self._ahead = self._ahead, b""
        return ahead or await self._process.read()

    async def wait(self) -> tuple[int | None, bytes]:
        """Return its exit status, `None` when a signal ended it, and the end of its stderr."""
        status, stderr = await self._process.wait()
        return status, _STATUS_TOLD.sub(b"", stderr)

    async def _ended(self, noise: bytes) -> HostUnreachableError:
        status = None
        with contextlib.suppress(asyncio.TimeoutError):
            status, _stderr = await within(self._process.wait(), LAST_WORDS_S)
        words = last_words(self._process.stderr_tail) or last_words(noise)
        if not words and status == 0:
            message = _("{host}: `{program}` ended at once, as if nothing had been written to it")
            hint = _("It must pass on its stdin: docker, podman and kubectl do with -i.")
            return _failed(self._environment, message, hint)
        if not words and status is not None:
            words = _("exit status {status}").format(status=status)
        message = _("{host}: not reached by `{program}`: {words}")
        return _failed(self._environment, message, words=words or _("it said nothing"))


class ExecConnection:
    """A host that a command has reached. Each stream is a process of that command."""

    def __init__(self, environment: Environment, ready: ExecStream) -> None:
        """`ready` is a shell that has answered: the first command takes its place."""
        self._environment = environment
        self._ready: ExecStream | None = ready
        self._streams = weakref.WeakSet([ready])
        self._is_closed = False

    @property
    def environment(self) -> Environment:
        """Where it leads."""
        return self._environment

    @property
    def address(self) -> str:
        """What the inventory says: the way that was taken need not be one of the network."""
        return self._environment.training_address

    async def run(self, command: RemoteCommand) -> ExecStream:
        """Start a command.

        Raises:
            HostUnreachableError: The host is not reached any more, or does not start the command in time.
        """
        if self._is_closed:
            message = _("the connection to {host} is closed").format(host=self._environment.name)
            raise HostUnreachableError(self._environment.name, message)
        root = self._environment.agent_root if command is RemoteCommand.AGENT else None
        line = COMMANDS[RemoteCommand.AGENT_AT if root is not None else command]
        try:
            stream = await Deadline(COMMAND_TIMEOUT_S).run(self._start(line))
        except TimeoutError as error:
            message = _("{host}: `{program}` did not start a command within {seconds:.0f} s")
            raise _failed(self._environment, message, seconds=COMMAND_TIMEOUT_S) from error
        if root is not None:
            with contextlib.suppress(HostUnreachableError):  # What it ended with is told to who reads.
                await stream.write(os.fsencode(root) + b"\n")
        return stream

    async def close(self) -> None:
        """Close all streams. Safe to call twice."""
        self._is_closed = True
        await asyncio.gather(*(stream.close() for stream in list(self._streams)))

    async def _start(self, line: str) -> ExecStream:
        ready, self._ready = self._ready, None
        if ready is not None:
            try:
                await ready.answer(line)
            except HostUnreachableError:  # The host was restarted, perhaps.
                await ready.end()
            except BaseException:
                await ready.end()
                raise
            else:
                return ready
        stream = await reach(self._environment, line)
        self._streams.add(stream)
        if self._is_closed:
            await stream.close()
        return stream


class ExecTransport:
    """Reaches environments by the command that their inventory says."""

    def __init__(self) -> None:
        raise_open_files()
        self._starts = Turns(STARTS_AT_ONCE, START_S)

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> ExecConnection:
        """Reach a shell on the host. Nobody is asked anything: what the command would ask belongs to its own set-up.

        Raises:
            HostUnreachableError: The command cannot be started, ends, or gives no shell within `timeout_s`.
        """
        deadline = Deadline(timeout_s)
        started: list[ProcessStream] = []

        async def take_turn() -> ExecStream:
            async with self._starts.turn(deadline):
                return await reach(environment, started=started)

        try:
            return ExecConnection(environment, await deadline.run(take_turn()))
        except TimeoutError as error:
            words = last_words(started[0].stderr_tail) if started else ""
            message = _("{host}: `{program}` gave no shell within {seconds:g} s")
            if words:
                message = _("{host}: `{program}` gave no shell within {seconds:g} s; it said: {words}")
            raise _failed(environment, message, seconds=timeout_s, words=words) from error

    async def close(self) -> None:
        """Connections have nothing in common but their turns."""


async def reach(environment: Environment, line: str = "", started: list[ProcessStream] | None = None) -> ExecStream:
    """Start the command that reaches a host, and have a shell there answer and run a line.

    Raises:
        HostUnreachableError: there is no such command, or it did not reach a shell.
    """
    words = environment.exec or ()
    program = _expanded(words[0])
    try:
        process = await ProcessStream.start(
            (program, *words[1:], "sh"), environment.name, {**for_a_process(), _MARK: "1"}
        )
    except OSError as error:
        message = _("{host}: {program} cannot be started on this machine: {reason}").format(
            host=environment.name, program=program, reason=error.strerror or error
        )
        hint = _("Install it here, or correct `exec` of {host} in the inventory.").format(host=environment.name)
        raise HostUnreachableError(environment.name, message, hint) from error
    if started is not None:
        started.append(process)
    stream = ExecStream(environment, process)
    try:
        await stream.answer(line)
    except BaseException:
        await stream.end()
        raise
    return stream


def _forgetting() -> str:
    """Return the line by which a shell forgets the login node's variables where nsenter or srun passed them on.

    Ranks are to have none of them, least of all secrets, as over SSH. What an image has of the same names stays.
    """
    names = [
        name
        for name in for_a_process()
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name not in _KEPT and not name.startswith(("LC_", "SLURM"))
    ]
    return f'[ -z "${_MARK}" ] || unset {" ".join([_MARK, *names])}'


def _expanded(program: str) -> str:
    return os.path.expanduser(program)


def last_words(output: bytes) -> str:
    """Return the last line that a command printed, for a message; nothing where it printed none."""
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return shortened(lines[-1], MAX_SHOWN_CHARS) if lines else ""


def _failed(environment: Environment, message: str, hint: str = "", **values: object) -> HostUnreachableError:
    """Return an error about the command that was to reach a host, by default with the advice to try it by hand."""
    program, command = (shortened(text, MAX_SHOWN_CHARS) for text in ((environment.exec or ("",))[0], environment.way))
    by_hand = _("Try it by hand: `echo id | {command} sh` must print who you are there.")
    return HostUnreachableError(
        environment.name,
        message.format(host=environment.name, program=program, **values),
        (hint or by_hand).format(command=command),
    )
