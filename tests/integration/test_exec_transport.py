"""Hosts reached by a command: real child processes that act as docker, kubectl and others do, on bad days too."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from dttui.errors import HostUnreachableError, UsageError
from dttui.inventory.models import Environment
from dttui.transport.base import Nobody, RemoteCommand
from dttui.transport.exec import ExecConnection, ExecStream, ExecTransport
from dttui.transport.remote_commands import bootstrap_input
from dttui.transport.routes import Transports
from tests.integration.ssh_fixtures import ECHO, echoed, read_all
from tests.waiting import until, wait_until

END_S = 60.0
"""In which a command that does not answer has to be gone after its time, loaded as the machine is; it takes 600 s."""
LIMITS_S = (1.0, 10.0, 30.0)
"""The first is enough for a command to be run, but for a machine that stands still meanwhile."""

Reaches = Callable[[str], Environment]
"""Makes an environment whose command is a script of sh; "$@" is what it is to run on the host."""


@pytest.fixture
def reaches(tmp_path: Path) -> Reaches:
    def write(script: str) -> Environment:
        path = tmp_path / "reach"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return at([str(path), "exec", "train 1"])

    return write


def at(words: Sequence[str]) -> Environment:
    return Environment(name="train1", host=None, exec=tuple(words), address="10.0.0.1")


async def connected(environment: Environment, timeout_s: float = 20.0) -> ExecConnection:
    return await ExecTransport().connect(environment, Nobody(), timeout_s)


async def started(connection: ExecConnection, program: str) -> ExecStream:
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await stream.write(bootstrap_input(program.encode(), sys.executable))
    return stream


async def refusal(environment: Environment, timeout_s: float = 20.0) -> HostUnreachableError:
    with pytest.raises(HostUnreachableError) as caught:
        await connected(environment, timeout_s)
    assert caught.value.host == "train1"
    return caught.value


def children() -> set[int]:
    """Processes that this one has started and not reaped, zombies too."""
    return {pid for pid in every_process() if stat_of(pid)[1:2] == [str(os.getpid())]}


def every_process() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def stat_of(pid: int) -> list[str]:
    """State, parent, process group and more; nothing of one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def members(group: str) -> list[int]:
    return [pid for pid in every_process() if stat_of(pid)[2:3] == [group] and is_running(pid)]


def told_pid(directory: Path) -> str:
    """Return the process that a command has said to be; nothing where it has not come to that."""
    path = directory / "pid"
    text = path.read_text() if path.exists() else ""
    return text.strip() if text.endswith("\n") else ""


def is_running(pid: int) -> bool:
    return stat_of(pid)[:1] not in ([], ["Z"])


@pytest_asyncio.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No command and no zombie of one outlives its test."""
    before = children()
    yield
    wait_until(lambda: children() <= before, "what was started here to be gone", END_S)


async def test_a_program_runs_and_its_output_status_and_stderr_come_back(reaches: Reaches) -> None:
    connection = await connected(reaches('shift 2; exec "$@"'))
    assert connection.address == "10.0.0.1"
    stream = await started(
        connection, "import sys\nprint(stdin.readline())\nprint('e' * 20000 + 'end', file=sys.stderr)\nsys.exit(7)"
    )
    await stream.write(b"hello\n")
    assert await read_all(stream) == b"b'hello\\n'\n"
    status, stderr = await stream.wait()
    assert (status, len(stderr)) == (7, 16 * 1024)
    assert stderr.endswith(b"eend\n")
    await connection.close()
    with pytest.raises(HostUnreachableError, match="is closed"):
        await connection.run(RemoteCommand.BOOTSTRAP)


SHELLS = [("sh",), ("bash",), ("dash",), ("zsh", "-f"), ("ksh",), ("busybox", "sh")]
LOGIN_SHELLS = [*SHELLS, ("csh", "-f"), ("tcsh", "-f"), ("fish",)]


@pytest.mark.parametrize("shell", [shell for shell in SHELLS if shutil.which(shell[0])], ids=" ".join)
async def test_megabytes_go_through_unchanged_whatever_sh_is(shell: tuple[str, ...], reaches: Reaches) -> None:
    connection = await connected(reaches(f"exec {shlex.join(shell)}"))
    stream = await started(connection, ECHO)
    data = os.urandom(3_000_000)

    assert await echoed(stream, data) == data
    await connection.close()


@pytest.mark.parametrize("shell", [shell for shell in LOGIN_SHELLS if shutil.which(shell[0])], ids=" ".join)
async def test_a_command_may_hand_what_it_is_given_to_any_login_shell(shell: tuple[str, ...], reaches: Reaches) -> None:
    """As ssh, su and what is made of them do, with the words joined to one line."""
    connection = await connected(reaches(f'shift 2; exec {shlex.join(shell)} -c "$*"'))
    stream = await started(connection, "print(6 * 7)")
    assert await read_all(stream) == b"42\n"
    await connection.close()


async def test_an_agent_with_a_root_of_its_own_is_looked_for_there(reaches: Reaches, tmp_path: Path) -> None:
    python = tmp_path / "own root/current/bin/python"
    python.parent.mkdir(parents=True)
    (tmp_path / "own root").chmod(0o700)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    environment = reaches('shift 2; exec "$@"').model_copy(update={"agent_root": str(tmp_path / "own root")})
    connection = await connected(environment)
    stream = await connection.run(RemoteCommand.AGENT)
    assert await read_all(stream) == f"-I -m dtagent connect --root {tmp_path}/own root\n".encode()
    await connection.close()


async def test_one_process_reaches_the_host_for_the_first_command_and_one_for_each_after_it(
    reaches: Reaches, tmp_path: Path
) -> None:
    connection = await connected(reaches(f'echo >>{tmp_path}/times; shift 2; exec "$@"'))
    for expected in (1, 2, 3):
        stream = await started(connection, "print(1)")
        assert await read_all(stream) == b"1\n"
        assert (tmp_path / "times").read_text().count("\n") == expected
    several = await asyncio.gather(*(started(connection, f"print({number})") for number in range(5)))
    assert [await read_all(stream) for stream in several] == [b"%d\n" % number for number in range(5)]
    await connection.close()


async def test_variables_of_the_login_node_go_no_further_where_the_command_passes_them_on(
    reaches: Reaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nsenter and srun do. What a container has by the same name is its own, and stays."""
    monkeypatch.setenv("API_TOKEN", "s3cret")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    told = "import os; print(*(os.environ.get(name) for name in ('API_TOKEN', 'PATH', 'LC_ALL', 'DTTUI_LOGIN_NODE')))"
    path = os.environ["PATH"]
    for script, expected in (
        ('shift 2; exec "$@"', f"None {path} C.UTF-8 None"),
        ('shift 2; exec env -i PATH=/bin:/usr/bin API_TOKEN=own "$@"', "own /bin:/usr/bin None None"),
    ):
        connection = await connected(reaches(script))
        for _time in range(2):
            stream = await started(connection, told)
            assert (await read_all(stream)).decode().strip() == expected
        await connection.close()


async def test_where_there_is_no_home_there_is_one_as_over_ssh(reaches: Reaches) -> None:
    connection = await connected(reaches('shift 2; exec env -i PATH=/bin:/usr/bin "$@"'))
    stream = await started(connection, "import os; print(os.environ['HOME'])")
    assert await read_all(stream) == b"/\n"
    await connection.close()


# What goes wrong


async def test_a_command_that_does_not_exist_is_named_with_what_to_correct() -> None:
    error = await refusal(at(["no-such-docker", "exec", "-i", "x"]))
    assert error.message == "train1: no-such-docker cannot be started on this machine: No such file or directory"
    assert error.hint == "Install it here, or correct `exec` of train1 in the inventory."


async def test_a_command_that_may_not_be_run_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no program")
    assert "Permission denied" in (await refusal(at([str(tmp_path / "x")]))).message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Error: No such container: train1' >&2; exit 1", "Error: No such container: train1"),
        ("echo noise >&2; printf 'last \\033[31mwords' >&2; exit 127", "last words"),
        ("echo on stdout; exit 1", "on stdout"),
        ("exit 9", "exit status 9"),
        ("exec <&-; exec >&-; echo closed >&2; exit 1", "closed"),
        ("kill -9 $$", "it said nothing"),
    ],
)
async def test_a_command_that_ends_at_once_is_told_with_its_words(reaches: Reaches, script: str, words: str) -> None:
    environment = reaches(script)
    error = await refusal(environment)
    shown = shlex.join(environment.exec or ())
    assert error.message == f"train1: not reached by `{(environment.exec or ())[0]}`: {words}"
    assert error.hint == f"Try it by hand: `echo id | {shown} sh` must print who you are there."


async def test_a_command_that_passes_no_stdin_on_is_told_what_to_add(reaches: Reaches) -> None:
    error = await refusal(reaches('shift 2; "$@" </dev/null'))
    assert "as if nothing had been written to it" in error.message
    assert "docker, podman and kubectl do with -i" in error.hint


@pytest.mark.parametrize(
    "script", ["exec sleep 600", "sleep 600 & exec sleep 600", "trap '' TERM; sleep 600; sleep 600"]
)
async def test_a_command_that_hangs_without_a_word_is_given_up_in_time_with_all_it_started(
    reaches: Reaches, tmp_path: Path, script: str
) -> None:
    environment = reaches(f"echo $$ >{tmp_path}/pid; {script}")
    for limit_s in LIMITS_S:
        began = time.monotonic()
        error = await refusal(environment, limit_s)
        assert time.monotonic() - began < limit_s + END_S
        assert error.message == f"train1: `{tmp_path}/reach` gave no shell within {limit_s:g} s"
        if group := told_pid(tmp_path):
            break
    assert group
    wait_until(lambda: not members(group), "its process group to be gone", END_S)


async def test_a_command_that_may_not_be_ended_is_let_go_of_in_time(
    reaches: Reaches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sudo makes one: it is another user's, and no signal of ours reaches it."""
    refused: list[object] = []

    def refuse(process: object, *_: object) -> None:
        refused.append(process)
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refuse)
    monkeypatch.setattr(subprocess.Popen, "kill", refuse)
    began = time.monotonic()
    error = await refusal(reaches(f"echo $$ >{tmp_path}/pid; exec sleep 600"), 1.0)
    assert error.message.endswith("gave no shell within 1 s")
    assert time.monotonic() - began < END_S
    await until(lambda: told_pid(tmp_path), "it to run", END_S)
    os.kill(int(told_pid(tmp_path)), signal.SIGKILL)
    process = refused[-1]
    assert isinstance(process, subprocess.Popen)
    # Else whoever collects garbage later is told that it still runs.
    await until(lambda: process.returncode is not None, "word of its end", END_S)


async def test_what_a_command_said_before_it_hung_is_told(reaches: Reaches) -> None:
    environment = reaches("echo Waiting for pod train1 >&2; exec sleep 600")
    for limit_s in LIMITS_S:
        error = await refusal(environment, limit_s)
        assert f"gave no shell within {limit_s:g} s" in error.message
        if "it said" in error.message:
            break
    assert error.message.endswith(" s; it said: Waiting for pod train1")


async def test_a_banner_before_the_first_byte_is_passed_over(reaches: Reaches) -> None:
    banner = "echo 'Welcome to dttui-42'; yes | head -c 60000; printf 'no line end'; echo Defaulted container >&2"
    connection = await connected(reaches(f'shift 2; {banner}; exec "$@"'))
    stream = await started(connection, "print(1)")
    assert await read_all(stream) == b"1\n"
    again = await started(connection, "import sys; sys.exit('why')")
    assert await read_all(again) == b""
    assert (await again.wait())[1].splitlines()[-1] == b"why"
    await connection.close()


async def test_a_command_that_prints_without_end_is_given_up(reaches: Reaches) -> None:
    assert "prints without end" in (await refusal(reaches("exec yes"))).message


async def test_a_terminal_is_refused_since_it_changes_what_goes_through(reaches: Reaches) -> None:
    script = (
        "exec script -qec sh /dev/null"
        if shutil.which("script")
        else f"exec {sys.executable} -c 'import pty; pty.spawn(\"sh\")'"
    )
    error = await refusal(reaches(script))
    assert "makes a terminal" in error.message
    assert "-i alone, not -it" in error.hint


async def test_a_command_that_closes_its_stdin_ends_what_is_written(reaches: Reaches) -> None:
    connection = await connected(reaches('shift 2; exec "$@"'))
    stream = await started(connection, "import os, time; os.close(0); print(1, flush=True); time.sleep(600)")
    assert await stream.read() == b"1\n"
    with pytest.raises(HostUnreachableError, match="has ended"):
        await asyncio.wait_for(stream.write(b"x" * 10_000_000), 20)
    await connection.close()


async def test_a_command_that_dies_ends_its_stream_and_the_next_one_reaches_the_host_again(
    reaches: Reaches, tmp_path: Path
) -> None:
    environment = reaches(f'echo $$ >{tmp_path}/pid; shift 2; "$@"')
    connection = await connected(environment)
    stream = await started(connection, "print(1, flush=True)\nimport time\ntime.sleep(600)")
    assert await stream.read() == b"1\n"
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert await read_all(stream) == b""
    assert (await stream.wait())[0] is None
    again = await started(connection, "print(2)")
    assert await read_all(again) == b"2\n"
    await connection.close()


async def test_a_ready_shell_that_has_gone_meanwhile_is_replaced(reaches: Reaches, tmp_path: Path) -> None:
    connection = await connected(reaches(f'echo $$ >{tmp_path}/pid; shift 2; "$@"'))
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    stream = await started(connection, "print(1)")
    assert await read_all(stream) == b"1\n"
    await connection.close()


async def test_a_host_that_has_gone_meanwhile_is_told_as_such_and_not_as_one_without_an_agent(
    reaches: Reaches, tmp_path: Path
) -> None:
    environment = reaches(f'[ -e {tmp_path}/gone ] && {{ echo is not running >&2; exit 127; }}; shift 2; exec "$@"')
    connection = await connected(environment)
    await read_all(await started(connection, "print(1)"))
    (tmp_path / "gone").touch()
    with pytest.raises(HostUnreachableError, match="is not running"):
        await connection.run(RemoteCommand.AGENT)
    await connection.close()


async def test_a_command_that_is_not_started_in_time_is_given_up(
    reaches: Reaches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await connected(reaches(f'[ -e {tmp_path}/slow ] && exec sleep 600; shift 2; exec "$@"'))
    await read_all(await started(connection, "print(1)"))
    (tmp_path / "slow").touch()
    monkeypatch.setattr("dttui.transport.exec.COMMAND_TIMEOUT_S", 0.5)
    with pytest.raises(HostUnreachableError, match="did not start a command within"):
        await connection.run(RemoteCommand.AGENT)
    await connection.close()


async def test_a_connect_that_is_given_up_leaves_no_process(reaches: Reaches, tmp_path: Path) -> None:
    task = asyncio.create_task(connected(reaches(f"echo $$ >{tmp_path}/pid; exec sleep 600")))
    await until(lambda: told_pid(tmp_path), "it to start", END_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "said", ["command terminated with exit code 3", "srun: error: node1: task 0: Exited with exit code 3"]
)
async def test_what_a_command_adds_about_a_status_does_not_hide_the_words_before_it(
    reaches: Reaches, said: str
) -> None:
    connection = await connected(reaches(f'shift 2; "$@"; status=$?; echo "{said}" >&2; exit $status'))
    stream = await started(connection, "import sys; print('why', file=sys.stderr); sys.exit(3)")
    assert await stream.wait() == (3, b"why\n")
    await connection.close()


async def test_many_hosts_take_turns_and_one_that_hangs_holds_up_none() -> None:
    transport = ExecTransport()

    def connecting(name: str, *words: str) -> asyncio.Task[ExecConnection]:
        environment = Environment(name=name, host=None, exec=words)
        return asyncio.create_task(transport.connect(environment, Nobody(), 100.0))

    hanging = [connecting(f"hangs{number}", "sh", "-c", "exec sleep 600", "#") for number in range(40)]
    for outcome in await asyncio.gather(*(connecting(f"n{number}", "env") for number in range(20))):
        await outcome.close()
    assert not any(task.done() for task in hanging)
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


# Who picks it


async def test_an_environment_chooses_its_transport() -> None:
    transports = Transports()
    connection = await transports.connect(at(["env"]), Nobody(), 20.0)
    assert isinstance(connection, ExecConnection)
    await connection.close()
    with pytest.raises(UsageError, match="reached by a command, `exec`, and not by SSH: it has no SSH host key"):
        await transports.fetch_host_key(at(["env"]), 1.0)
    await transports.close()


async def test_a_program_in_the_home_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "reach").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "reach").chmod(0o755)
    connection = await connected(at(["~/reach"]))
    await connection.close()
