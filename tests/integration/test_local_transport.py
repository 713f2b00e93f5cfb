"""This machine as a host, with real child processes; and the bootstrap command under every shell there is."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dttui.errors import HostUnreachableError, UsageError
from dttui.inventory.models import Environment
from dttui.transport.base import Connection, Prompt, RemoteCommand
from dttui.transport.local import LocalConnection, LocalTransport
from dttui.transport.process_stream import ProcessStream
from dttui.transport.remote_commands import COMMANDS, NO_PYTHON_EXIT_STATUS, TRUNCATED_EXIT_STATUS, bootstrap_input
from dttui.transport.routes import Transports
from tests.integration.ssh_fixtures import ECHO, echoed, read_all
from tests.waiting import PATIENCE_S, wait_until

HERE = Environment(name="here", host="localhost", local=True)


class Nobody:
    async def ask(self, prompt: Prompt) -> str | None:
        return None


@pytest_asyncio.fixture
async def connection() -> AsyncIterator[LocalConnection]:
    made = await LocalTransport().connect(HERE, Nobody(), 5.0)
    yield made
    await made.close()


async def started(connection: LocalConnection, program: str) -> ProcessStream:
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(program.encode(), sys.executable))
    return stream


async def test_a_program_runs_and_its_output_status_and_stderr_come_back(connection: LocalConnection) -> None:
    assert connection.address == "127.0.0.1"
    assert connection.environment is HERE
    stream = await started(
        connection, "import sys\nprint(stdin.readline())\nprint('e' * 20000 + 'end', file=sys.stderr)\nsys.exit(7)"
    )
    await stream.write(b"hello\n")
    assert await read_all(stream) == b"b'hello\\n'\n"
    status, stderr = await stream.wait()
    assert status == 7
    assert len(stderr) == 16 * 1024
    assert stderr.endswith(b"eend\n")


async def test_megabytes_go_through_unchanged(connection: LocalConnection) -> None:
    stream = await started(connection, ECHO)
    data = os.urandom(5_000_000)

    assert await echoed(stream, data) == data


async def test_a_command_that_a_signal_ends_has_no_status(connection: LocalConnection) -> None:
    stream = await started(connection, "import os\nos.kill(os.getpid(), 9)")
    assert (await stream.wait())[0] is None
    with pytest.raises(HostUnreachableError, match="has ended"):
        await stream.write(b"x" * 1_000_000)


async def test_closing_ends_the_whole_process_group_and_nothing_else(connection: LocalConnection) -> None:
    program = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", ignore], stdout=subprocess.PIPE)
own = subprocess.Popen([sys.executable, "-c", ignore], stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline(), own.stdout.readline()
print(os.getpid(), child.pid, own.pid, flush=True)
while True: signal.pause()
"""
    stream = await started(connection, program)
    leader, child, own = map(int, (await stream.read()).split())
    try:
        await stream.close()
        await stream.close()
        wait_until(lambda: not is_running(leader) and not is_running(child), "the group has ended")
        assert is_running(own)
        assert await stream.read() == b""
    finally:
        os.kill(own, signal.SIGKILL)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # Gone, or going while this reads.
        return False


async def test_closing_knows_of_the_end_of_what_it_has_killed_though_word_of_it_comes_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second and a half late, as on a machine that is busy: else a process is left that nobody waits for."""
    wait_for_pid = os.waitpid

    def wait_long(pid: int, options: int) -> tuple[int, int]:
        found = wait_for_pid(pid, options)
        time.sleep(1.5)
        return found

    monkeypatch.setattr(os, "waitpid", wait_long)
    stream = await ProcessStream.start(["sh", "-c", "trap '' TERM; echo ready; sleep 600 & wait"], "here")
    assert await stream.read() == b"ready\n"
    await stream.end()
    knowing = asyncio.ensure_future(stream.wait())
    for _turn in range(20):  # Of the loop: word that has yet to come takes far more of them.
        await asyncio.sleep(0)
    assert knowing.done()
    assert (await knowing)[0] is None


async def test_a_grandchild_that_keeps_the_pipes_does_not_keep_us(connection: LocalConnection) -> None:
    program = """
import os, subprocess, sys
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(sleeper.pid, flush=True)
"""
    stream = await started(connection, program)
    sleeper = int((await stream.read()).split()[0])
    try:
        assert (await asyncio.wait_for(stream.wait(), PATIENCE_S))[0] == 0
        await asyncio.wait_for(stream.close(), PATIENCE_S)
    finally:
        os.kill(sleeper, signal.SIGKILL)


async def test_the_agent_is_started_with_its_root_and_ends_when_nobody_needs_it(tmp_path: Path) -> None:
    transport = LocalTransport((sys.executable, "-c", "import sys; print(*sys.argv[1:])"))
    embedded = f"--root {tmp_path} --idle-exit 300\n".encode()
    for root, expected in ((None, b"\n"), (str(tmp_path), embedded)):
        connection = await transport.connect(HERE.model_copy(update={"agent_root": root}), Nobody(), 5.0)
        stream = await connection.run(RemoteCommand.AGENT)
        assert await read_all(stream) == expected
        await connection.close()
        with pytest.raises(HostUnreachableError, match="is closed"):
            await connection.run(RemoteCommand.AGENT)


async def test_a_command_that_cannot_be_started_is_an_error() -> None:
    connection = await LocalTransport(("/no/such/program",)).connect(HERE, Nobody(), 5.0)
    with pytest.raises(HostUnreachableError, match="cannot be started"):
        await connection.run(RemoteCommand.AGENT)


async def test_an_environment_chooses_its_transport() -> None:
    transports = Transports()
    connection: Connection = await transports.connect(HERE, Nobody(), 5.0)
    assert isinstance(connection, LocalConnection)
    with pytest.raises(UsageError, match="is this machine"):
        await transports.fetch_host_key(HERE, 1.0)
    far = Environment(name="far", host="no-such-host.invalid")
    with pytest.raises(HostUnreachableError, match="no host named"):
        await transports.connect(far, Nobody(), PATIENCE_S)
    await connection.close()
    await transports.close()


def test_paramiko_is_not_imported_before_it_is_needed() -> None:
    program = (
        "import sys, dttui.transport.base, dttui.transport.remote_commands, dttui.transport.routes\n"
        "dttui.transport.routes.Transports()\n"
        "assert not {'paramiko', 'cryptography'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# The bootstrap command

SHELLS = [("sh",), ("bash",), ("dash",), ("zsh", "-f"), ("csh", "-f"), ("tcsh", "-f"), ("fish",), ("busybox", "sh")]
PROGRAM = b"print(__name__, read_exactly(5), stdin.readline(), stdin.read(100))  # " + b"x" * 200_000


def login_shell(shell: tuple[str, ...], data: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """What sshd does with an exec request."""
    command = [*shell, "-c", COMMANDS[RemoteCommand.BOOTSTRAP]]
    env = {**os.environ, **environment}
    return subprocess.run(command, input=data, capture_output=True, timeout=60, env=env)


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)
def test_the_bootstrap_command_works_under(shell: tuple[str, ...]) -> None:
    for python in (None, sys.executable, "~/none", "/bin/echo", "-c"):
        done = login_shell(shell, bootstrap_input(PROGRAM, python) + b"helloline\nrest\n")
        assert done.stdout == b"__main__ b'hello' b'line\\n' b'rest\\n'\n", (python, done)
        assert done.returncode == 0


def test_both_commands_are_safe_in_single_quotes_of_any_shell() -> None:
    for command in COMMANDS.values():
        inner = command.removeprefix("exec sh -c '").removesuffix("'")
        assert len(inner) == len(command) - len("exec sh -c ''")
        assert not set(inner) & set("'\\!\n")
        assert inner.isascii()


def test_the_preferred_interpreter_is_taken_first(tmp_path: Path) -> None:
    wanted = tmp_path / "python"
    wanted.write_text(f'#!/bin/sh\nWANTED=1 exec {sys.executable} "$@"\n')
    wanted.chmod(0o755)
    program = b"import os; print(os.environ.get('WANTED'))"
    assert login_shell(("sh",), bootstrap_input(program, str(wanted))).stdout == b"1\n"
    assert login_shell(("sh",), bootstrap_input(program, "~/python"), HOME=str(tmp_path)).stdout == b"1\n"
    assert login_shell(("sh",), bootstrap_input(program)).stdout == b"None\n"


def test_a_host_without_a_python_says_what_it_has(tmp_path: Path) -> None:
    old = tmp_path / "old"
    # Stands for 3.6: answers the question for its version, and no to the one whether it is new enough.
    old.write_text("#!/bin/sh\necho 3.6.9\nexit 1\n")
    old.chmod(0o755)
    command = COMMANDS[RemoteCommand.BOOTSTRAP].replace("/usr/bin/python3", "/none").replace("/opt/conda", "/none")
    sh = shutil.which("sh")
    assert sh is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to(sh)
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    for python, found in ((None, "none"), (str(old), f"{old}=3.6.9")):
        done = subprocess.run(
            [sh, "-c", command], input=bootstrap_input(b"print(1)", python), capture_output=True, env=env, timeout=60
        )
        assert done.returncode == NO_PYTHON_EXIT_STATUS
        assert done.stdout == b""
        assert found in done.stderr.decode()
        assert done.stderr.decode().startswith("dttui-bootstrap: no python>=3.10 (found: ")


def test_a_program_that_comes_in_part_is_not_run() -> None:
    whole = bootstrap_input(b"print('ran')\n" * 10)
    for size in (0, 1, len(whole) - 20, len(whole) - 1):
        done = login_shell(("sh",), whole[:size])
        assert (done.returncode, done.stdout) == (TRUNCATED_EXIT_STATUS, b"")


def test_a_path_with_a_line_break_is_refused() -> None:
    with pytest.raises(UsageError):
        bootstrap_input(b"", "/bin/python\nrm")
