"""The SSH transport against a real OpenSSH server, on this machine's loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from dtagent.protocol.rpc import MAGIC

from dttui import locations
from dttui.errors import HostKeyError, HostUnreachableError
from dttui.transport.base import PromptKind, RemoteCommand
from dttui.transport.remote_commands import COMMANDS, bootstrap_input
from dttui.transport.ssh.stream import ChannelStream
from dttui.transport.ssh.transport import SshTransport
from tests.integration.ssh_fixtures import ECHO, NOBODY, TIMEOUT_S, Person, configure, echoed, read_all
from tests.integration.sshd import Sshd, fingerprint, make_key, running_sshd
from tests.waiting import until

pytestmark = pytest.mark.sshd

COUNT_AFTER_SIGNAL = b"""
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.write(1, b"%d\\n" % os.getpid())
signal.sigwait([signal.SIGUSR1])
count = 0
while data := stdin.read(1 << 20):
    count += len(data)
print(count)
"""


async def start(stream: ChannelStream, program: bytes) -> None:
    await stream.write(bootstrap_input(program, None))


# Running commands


async def test_a_program_runs_and_its_output_status_and_stderr_come_back(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    assert connection.address == "127.0.0.1"
    assert connection.environment.name == "gpu1"
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await start(stream, b"import sys\nprint(stdin.readline())\nprint('words', file=sys.stderr)\nsys.exit(7)")
    await stream.write(b"hello\n")
    assert await read_all(stream) == b"b'hello\\n'\n"
    assert await stream.wait() == (7, b"words\n")
    assert await stream.read() == b""
    await connection.close()
    await connection.close()


async def test_megabytes_go_there_and_back_unchanged_on_several_channels(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)

    async def echo(data: bytes) -> bytes:
        stream = await connection.run(RemoteCommand.BOOTSTRAP)
        await start(stream, ECHO.encode())

        return await echoed(stream, data)

    blocks = [os.urandom(6_000_000), os.urandom(3_000_001), b"x"]
    assert await asyncio.gather(*map(echo, blocks)) == blocks
    await connection.close()


async def test_a_host_that_writes_more_than_is_read_has_to_wait(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    total = 24_000_000
    await start(stream, b"import os\nfor _ in range(24): os.write(1, b'x' * 1_000_000)\n")
    other = await connection.run(RemoteCommand.BOOTSTRAP)
    channel = stream.channel
    await until(lambda: len(channel.in_buffer) >= 2_000_000, "the window is full")
    # Another channel of the same connection goes on meanwhile.
    await start(other, b"print('alive')")
    assert await read_all(other) == b"alive\n"
    assert len(channel.in_buffer) <= 2 * 1024 * 1024
    assert len(await read_all(stream)) == total
    await connection.close()


async def test_writing_waits_for_a_host_that_does_not_read(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await start(stream, COUNT_AFTER_SIGNAL)
    pid = int((await stream.read()).split()[0])
    writing = asyncio.create_task(stream.write(b"y" * 8_000_000))
    await until(lambda: not stream.channel.send_ready(), "the window is used up")
    assert not writing.done()
    os.kill(pid, signal.SIGUSR1)
    await writing
    await stream.write_eof()
    assert int(await read_all(stream)) == 8_000_000
    await connection.close()


async def test_a_read_that_is_cancelled_loses_nothing(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await start(stream, ECHO.encode())
    sent = received = b""
    for number in range(60):
        reading = asyncio.create_task(stream.read())
        line = b"%d\n" % number
        await stream.write(line)
        sent += line
        for _step in range(number % 12):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait({reading})
        received += b"" if reading.cancelled() else reading.result()
    await stream.write_eof()
    assert received + await read_all(stream) == sent
    await connection.close()


async def test_only_the_end_of_a_long_stderr_is_kept(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await start(stream, b"import os\nfor _ in range(40): os.write(2, b'e' * 100_000)\nos.write(2, b'the end')")
    status, stderr = await stream.wait()
    assert status == 0
    assert len(stderr) == 16 * 1024
    assert stderr.endswith(b"the end")
    await connection.close()


async def test_a_command_that_a_signal_ends_has_no_status(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    await start(stream, b"import os\nos.kill(os.getpid(), 9)")
    assert (await stream.wait())[0] is None
    with pytest.raises(HostUnreachableError, match="has ended"):
        await stream.write(b"x" * 3_000_000)
    await connection.close()


async def test_closing_a_stream_ends_its_input_on_the_host_and_leaves_the_connection(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.BOOTSTRAP)
    mark = tmp_path / "ended"
    await start(stream, f"stdin.read()\nopen({str(mark)!r}, 'w').close()".encode())
    await stream.close()
    await stream.close()
    assert await stream.read() == b""
    await until(mark.exists, "the program saw the end of its input")
    again = await connection.run(RemoteCommand.BOOTSTRAP)
    await start(again, b"print(1)")
    assert await read_all(again) == b"1\n"
    await connection.close()


async def test_the_agent_command_finds_the_agent_or_exits_127(sshd: Sshd, transport: SshTransport) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.AGENT)
    await stream.write_eof()
    output = await read_all(stream)
    status, _stderr = await stream.wait()
    # Machines that tests run on have none as a rule, but a developer's may.
    assert status == 127 or output.startswith(MAGIC)
    await connection.close()


@pytest.mark.lab
@pytest.mark.parametrize("trap", ["directory", "link"])
def test_an_agent_that_another_user_put_there_is_not_run(can_have_lab: None, tmp_path: Path, trap: str) -> None:
    victim, intruder = 54321, 54322
    root = Path(f"/var/tmp/dtagent-{victim}")
    real = root if trap == "directory" else tmp_path / "elsewhere"
    try:
        (real / "current/bin").mkdir(parents=True)
        program = real / "current/bin/python"
        program.write_text("#!/bin/sh\necho mine now\n")
        program.chmod(0o755)
        if trap == "link":
            root.symlink_to(real)
        for path in (root, real):
            os.chown(path, intruder, intruder, follow_symlinks=False)
        command = ["sh", "-c", COMMANDS[RemoteCommand.AGENT]]
        done = subprocess.run(command, user=victim, capture_output=True, timeout=120, check=False, cwd="/")
        assert (done.returncode, done.stdout) == (127, b"")
    finally:
        if root.is_symlink():
            root.unlink()
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("mode", [0o700, 0o777])
async def test_the_agent_of_another_root_is_run_where_nobody_else_can_have_put_it(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, mode: int
) -> None:
    root = tmp_path / "a 'root' of $HOME; %1"
    (root / "current/bin").mkdir(parents=True)
    (root / "current/bin/python").write_text('#!/bin/sh\nread line; echo "$line:$*"\n')
    (root / "current/bin/python").chmod(0o700)
    root.chmod(mode)
    connection = await transport.connect(sshd.environment(agent_root=str(root)), NOBODY, TIMEOUT_S)
    stream = await connection.run(RemoteCommand.AGENT)
    with contextlib.suppress(HostUnreachableError):  # One that has ended already takes nothing.
        await stream.write(b"hello\n")
    output = await read_all(stream)
    status, _stderr = await stream.wait()
    if mode == 0o700:
        assert (status, output) == (0, f"hello:-I -m dtagent connect --root {root}\n".encode())
    else:
        assert (status, output) == (127, b"")
    await connection.close()


async def test_a_session_limit_of_the_server_is_named(tmp_path: Path, transport: SshTransport) -> None:
    with running_sshd(tmp_path / "sshd", {"MaxSessions": "1"}) as server:
        connection = await transport.connect(server.environment(), NOBODY, TIMEOUT_S)
        await connection.run(RemoteCommand.BOOTSTRAP)
        with pytest.raises(HostUnreachableError, match="opens no further session") as caught:
            await connection.run(RemoteCommand.BOOTSTRAP)
        assert "MaxSessions" in caught.value.hint
        await connection.close()


async def test_many_connections_stand_at_once_and_all_their_threads_end(sshd: Sshd, transport: SshTransport) -> None:
    before = threading.active_count()

    async def one(number: int) -> bytes:
        connection = await transport.connect(sshd.environment(f"gpu{number}"), NOBODY, TIMEOUT_S)
        stream = await connection.run(RemoteCommand.BOOTSTRAP)
        await start(stream, b"print(%d)" % number)
        return await read_all(stream)

    assert await asyncio.gather(*map(one, range(16))) == [b"%d\n" % number for number in range(16)]
    assert threading.active_count() > before
    # That they end is what the fixture checks.


# Host keys


async def test_an_unknown_key_is_shown_with_its_fingerprint_and_taken_on_yes(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    person = Person(host_key=["yes"])
    environment = sshd.environment(known_hosts=None)
    connection = await transport.connect(environment, person, TIMEOUT_S)
    await connection.close()
    expected = fingerprint(sshd.host_key())
    assert [(prompt.kind, prompt.fingerprint, prompt.secret) for prompt in person.asked] == [
        (PromptKind.HOST_KEY, expected, False)
    ]
    assert expected in person.asked[0].text
    own = locations.known_hosts_file()
    assert own.read_text() == sshd.known_hosts.read_text()
    assert not (tmp_path / "user_known_hosts").exists()
    await (await transport.connect(environment, NOBODY, TIMEOUT_S)).close()


async def test_a_confirmed_key_goes_into_the_file_that_the_inventory_names(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    named = tmp_path / "named"
    connection = await transport.connect(sshd.environment(known_hosts=str(named)), Person(host_key=["yes"]), TIMEOUT_S)
    await connection.close()
    assert named.read_text() == sshd.known_hosts.read_text()
    assert not locations.known_hosts_file().exists()


@pytest.mark.parametrize("answer", [None, "no", "", "y"])
async def test_an_unknown_key_that_nobody_confirms_is_refused_with_the_remedy(
    sshd: Sshd, transport: SshTransport, answer: str | None
) -> None:
    person = Person(host_key=[answer])
    with pytest.raises(HostKeyError) as caught:
        await transport.connect(sshd.environment("gpu 1", id="env-001", known_hosts=None), person, TIMEOUT_S)
    expected = fingerprint(sshd.host_key())
    assert caught.value.fingerprint == expected
    assert caught.value.host == "gpu 1"
    assert f"dttui envs trust 'gpu 1' --fingerprint {expected}" in caught.value.hint
    assert not locations.known_hosts_file().exists()


async def test_a_changed_key_is_refused_without_a_question_and_both_fingerprints_are_named(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    old = make_key(tmp_path / "old").with_suffix(".pub")
    kind, blob = old.read_text().split()[:2]
    sshd.known_hosts.write_text(f"# old\n[127.0.0.1]:{sshd.port} {kind} {blob}\n")
    person = Person(host_key=["yes"])
    with pytest.raises(HostKeyError) as caught:
        await transport.connect(sshd.environment(), person, TIMEOUT_S)
    assert person.asked == []
    for part in (fingerprint(old), fingerprint(sshd.host_key()), f"{sshd.known_hosts}:2"):
        assert part in caught.value.message
    with pytest.raises(HostKeyError, match="has changed"):
        await transport.trust(sshd.environment(), await transport.fetch_host_key(sshd.environment(), TIMEOUT_S))


async def test_a_known_hosts_file_that_changes_between_two_connects_is_read_again(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    connection = await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    before = sshd.known_hosts.read_text()
    kind, blob = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {blob}\n")
    assert len(sshd.known_hosts.read_text()) == len(before)
    with pytest.raises(HostKeyError, match="has changed"):
        await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)
    await connection.close()


async def test_a_key_of_another_type_than_the_known_one_counts_as_changed(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    kind, blob = make_key(tmp_path / "old", "ecdsa").with_suffix(".pub").read_text().split()[:2]
    sshd.known_hosts.write_text(f"[127.0.0.1]:{sshd.port} {kind} {blob}\n")
    with pytest.raises(HostKeyError, match="has changed"):
        await transport.connect(sshd.environment(), Person(host_key=["yes"]), TIMEOUT_S)


async def test_a_revoked_key_is_refused(sshd: Sshd, transport: SshTransport) -> None:
    kind, blob = sshd.host_key().read_text().split()[:2]
    with sshd.known_hosts.open("a") as file:
        file.write(f"@revoked * {kind} {blob}\n")
    with pytest.raises(HostKeyError, match="revoked"):
        await transport.connect(sshd.environment(), Person(host_key=["yes"]), TIMEOUT_S)


async def test_the_server_is_asked_for_the_type_of_key_that_is_known(tmp_path: Path, transport: SshTransport) -> None:
    with running_sshd(tmp_path / "sshd", host_key_kinds=("ed25519", "ecdsa", "rsa")) as server:
        entries = server.known_hosts.read_text().splitlines(keepends=True)
        assert len(entries) == 3
        for entry in entries:
            server.known_hosts.write_text(entry)
            await (await transport.connect(server.environment(), NOBODY, TIMEOUT_S)).close()


async def test_the_entry_of_the_usual_port_vouches_for_the_same_key_on_another(
    sshd: Sshd, transport: SshTransport
) -> None:
    kind, blob = sshd.host_key().read_text().split()[:2]
    sshd.known_hosts.write_text(f"127.0.0.1 {kind} {blob}\n")
    await (await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)).close()


async def test_a_key_that_is_fetched_and_trusted_is_not_asked_about(sshd: Sshd, transport: SshTransport) -> None:
    environment = sshd.environment(known_hosts=None)
    key = await transport.fetch_host_key(environment, TIMEOUT_S)
    assert key.fingerprint == fingerprint(sshd.host_key())
    await transport.trust(environment, key)
    await transport.trust(environment, key)
    assert locations.known_hosts_file().read_text() == sshd.known_hosts.read_text()
    await (await transport.connect(environment, NOBODY, TIMEOUT_S)).close()


async def test_ten_who_meet_an_unknown_key_at_once_ask_once(sshd: Sshd, transport: SshTransport) -> None:
    person = Person(host_key=["yes"])
    connections = await asyncio.gather(
        *(transport.connect(sshd.environment(f"gpu{n}", known_hosts=None), person, TIMEOUT_S) for n in range(10))
    )
    assert len(person.asked) == 1
    for connection in connections:
        await connection.close()


@pytest.mark.parametrize(("policy", "connects"), [("accept-new", True), ("no", True), ("yes", False)])
async def test_strict_host_key_checking_of_the_configuration_holds(
    sshd: Sshd, ssh_config: Path, transport: SshTransport, policy: str, connects: bool
) -> None:
    configure(ssh_config, f"StrictHostKeyChecking {policy}")
    person = Person(host_key=["yes"])
    environment = sshd.environment(known_hosts=None)
    if connects:
        await (await transport.connect(environment, person, TIMEOUT_S)).close()
        assert locations.known_hosts_file().read_text() == sshd.known_hosts.read_text()
    else:
        with pytest.raises(HostKeyError):
            await transport.connect(environment, person, TIMEOUT_S)
    assert person.asked == []


async def test_bad_lines_of_a_known_hosts_file_are_told_and_do_not_matter(sshd: Sshd, transport: SshTransport) -> None:
    sshd.known_hosts.write_bytes(b"gpu\xfc rubbish\n@cert-authority * bad\n" + sshd.known_hosts.read_bytes())
    await (await transport.connect(sshd.environment(), NOBODY, TIMEOUT_S)).close()
    assert [warning.split(": ")[0] for warning in transport.warnings] == [f"{sshd.known_hosts}:{n}" for n in (1, 2)]
