"""Logging in: keys, passphrases, agents, certificates, passwords and second factors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from dttui.errors import AuthenticationError
from dttui.inventory.models import Environment
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.deadline import Deadline
from dttui.transport.ssh.known_hosts import append, entry_name
from dttui.transport.ssh.transport import SshTransport
from tests.integration.scripted_ssh_server import USER as ALICE
from tests.integration.scripted_ssh_server import Script, ScriptedServer, make_client_key, scripted_server
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S, Person, configure
from tests.integration.sshd import USER, Sshd, make_key, run, running_sshd
from tests.waiting import until

pytestmark = pytest.mark.sshd


@contextlib.contextmanager
def ssh_agent(*keys: Path) -> Iterator[Path]:
    """A real ssh-agent that holds some keys, named to this process by SSH_AUTH_SOCK."""
    output = run("ssh-agent", "-s")
    path = re.search(r"SSH_AUTH_SOCK=([^;]+);", output)
    pid = re.search(r"SSH_AGENT_PID=(\d+);", output)
    assert path
    assert pid
    os.environ["SSH_AUTH_SOCK"] = path[1]
    try:
        for key in keys:
            run("ssh-add", "-q", str(key), env={**os.environ})
        yield Path(path[1])
    finally:
        del os.environ["SSH_AUTH_SOCK"]
        os.kill(int(pid[1]), signal.SIGTERM)


async def connects(transport: SshTransport, environment: Environment, person: Person = NOBODY) -> None:
    await (await transport.connect(environment, person, TIMEOUT_S)).close()


async def refused(transport: SshTransport, environment: Environment, person: Person = NOBODY) -> AuthenticationError:
    with pytest.raises(AuthenticationError) as caught:
        await transport.connect(environment, person, TIMEOUT_S)
    return caught.value


# Key files


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_each_kind_of_key_file_is_accepted(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / kind, kind)
    sshd.authorize(key.with_suffix(".pub"))
    await connects(transport, sshd.environment(identity_file=str(key)))


async def test_a_right_key_is_let_in_without_asking_what_else_the_server_takes(
    sshd: Sshd, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    original = paramiko.Transport.auth_none

    def asking(self: paramiko.Transport, username: str) -> list[str]:
        asked.append(username)
        return original(self, username)

    monkeypatch.setattr(paramiko.Transport, "auth_none", asking)
    await connects(transport, sshd.environment())
    assert asked == []
    wrong = make_key(sshd.directory / "wrong")
    await refused(transport, sshd.environment(identity_file=str(wrong)))
    assert asked == [USER]


async def test_a_pem_key_is_accepted(sshd: Sshd, transport: SshTransport, tmp_path: Path) -> None:
    key = tmp_path / "pem"
    run("ssh-keygen", "-q", "-t", "rsa", "-m", "PEM", "-N", "", "-f", str(key))
    sshd.authorize(key.with_suffix(".pub"))
    await connects(transport, sshd.environment(identity_file=str(key)))


async def test_a_key_in_the_home_directory_is_found_by_its_usual_name(sshd: Sshd, transport: SshTransport) -> None:
    home = Path(os.environ["HOME"]) / ".ssh"
    home.mkdir()
    (home / "id_ed25519").write_bytes(sshd.client_key.read_bytes())
    await connects(transport, sshd.environment(identity_file=None))


async def test_a_refusal_names_what_the_server_takes_and_what_was_tried(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    stranger = make_key(tmp_path / "stranger")
    error = await refused(transport, sshd.environment(identity_file=str(stranger)))
    assert error.host == "gpu1"
    assert f"let {USER} not in: it takes publickey; tried: {stranger}" in error.message
    assert f"ssh-copy-id -p {sshd.port} {USER}@127.0.0.1" in error.hint


async def test_a_key_file_that_is_missing_or_no_key_is_named(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    error = await refused(transport, sshd.environment(identity_file=str(tmp_path / "none")))
    assert f"{tmp_path / 'none'}: no such file" in error.message
    (tmp_path / "text").write_text("not a key")
    error = await refused(transport, sshd.environment(identity_file=str(tmp_path / "text")))
    assert f"{tmp_path / 'text'}: not a private key" in error.message


async def test_too_many_wrong_keys_are_explained(transport: SshTransport, tmp_path: Path) -> None:
    keys = [make_key(tmp_path / f"key{number}") for number in range(4)]
    with running_sshd(tmp_path / "sshd", {"MaxAuthTries": "2"}) as server, ssh_agent(*keys):
        error = await refused(transport, server.environment(identity_file=None))
    assert "Too many authentication failures" in error.message
    assert "IdentitiesOnly" in error.hint


# Passphrases


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
async def test_a_passphrase_is_asked_for_until_it_is_right(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / "locked", kind, passphrase="open sesame")
    sshd.authorize(key.with_suffix(".pub"))
    person = Person(passphrase=["wrong", "also wrong", "open sesame"])
    await connects(transport, sshd.environment(identity_file=str(key)), person)
    assert [prompt.secret for prompt in person.asked] == [True] * 3
    assert all(str(key) in prompt.text for prompt in person.asked)
    # Once open it stays open.
    await connects(transport, sshd.environment(identity_file=str(key)))


async def test_open_keys_are_tried_before_a_passphrase_is_asked_for(
    sshd: Sshd, transport: SshTransport, ssh_config: Path, tmp_path: Path
) -> None:
    locked = make_key(tmp_path / "locked", passphrase="open sesame")
    wrong = make_key(tmp_path / "wrong")
    sshd.authorize(locked.with_suffix(".pub"))
    configure(ssh_config, f"IdentityFile {locked}", f"IdentityFile {wrong}", f"IdentityFile {sshd.client_key}")
    person = Person(passphrase=["open sesame"])
    await connects(transport, sshd.environment(identity_file=None), person)
    assert person.asked == []


async def test_ten_hosts_with_one_locked_key_ask_once(sshd: Sshd, transport: SshTransport, tmp_path: Path) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    sshd.authorize(key.with_suffix(".pub"))
    person = Person(passphrase=["open sesame"])
    environments = [sshd.environment(f"gpu{number}", identity_file=str(key)) for number in range(10)]
    await asyncio.gather(*(connects(transport, environment, person) for environment in environments))
    assert len(person.asked) == 1


@pytest.mark.parametrize("answers", [[None], ["wrong"] * 3 + ["open sesame"]])
async def test_a_key_that_stays_locked_is_an_error_that_says_what_to_do(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, answers: list[str | None]
) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    sshd.authorize(key.with_suffix(".pub"))
    error = await refused(transport, sshd.environment(identity_file=str(key)), Person(passphrase=answers))
    assert f"{key}: locked by a passphrase" in error.message
    assert f"ssh-add {key}" in error.hint
    assert "terminal" in error.hint


async def test_batch_mode_never_asks(sshd: Sshd, ssh_config: Path, transport: SshTransport, tmp_path: Path) -> None:
    configure(ssh_config, "BatchMode yes")
    key = make_key(tmp_path / "locked", passphrase="open sesame")
    person = Person(passphrase=["open sesame"])
    await refused(transport, sshd.environment(identity_file=str(key)), person)
    assert person.asked == []


# Agents


async def test_a_key_in_the_agent_is_enough(sshd: Sshd, transport: SshTransport) -> None:
    with ssh_agent(sshd.client_key):
        await connects(transport, sshd.environment(identity_file=None))


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
async def test_a_locked_key_file_that_the_agent_holds_needs_no_passphrase(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, kind: str
) -> None:
    key = make_key(tmp_path / "key", kind)
    sshd.authorize(key.with_suffix(".pub"))
    with ssh_agent(key):
        run("ssh-keygen", "-q", "-p", "-N", "open sesame", "-f", str(key))
        await connects(transport, sshd.environment(identity_file=str(key)))


async def test_identities_only_leaves_the_agents_other_keys_alone(
    sshd: Sshd, ssh_config: Path, transport: SshTransport
) -> None:
    configure(ssh_config, "IdentitiesOnly yes")
    with ssh_agent(sshd.client_key):
        error = await refused(transport, sshd.environment(identity_file=None))
    assert "agent key" not in error.message


async def test_an_agent_that_refuses_to_sign_costs_one_attempt_and_no_more(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blob = sshd.client_key.with_suffix(".pub").read_text().split()[1]
    with refusing_agent(tmp_path / "agent", blob):
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        error = await refused(transport, sshd.environment(identity_file=None))
        assert "agent key sulky" in error.message
        other = make_key(tmp_path / "other")
        sshd.authorize(other.with_suffix(".pub"))
        home = Path(os.environ["HOME"]) / ".ssh"
        home.mkdir()
        (home / "id_ed25519").write_bytes(sshd.client_key.read_bytes())
        (home / "id_ecdsa").write_bytes(other.read_bytes())
        await connects(transport, sshd.environment(identity_file=None))


@contextlib.contextmanager
def refusing_agent(path: Path, blob_base64: str) -> Iterator[None]:
    """Lists one key and signs nothing."""

    def text(value: bytes) -> bytes:
        return struct.pack(">I", len(value)) + value

    listing = struct.pack(">BI", 12, 1) + text(base64.b64decode(blob_base64)) + text(b"sulky\x1b[2J")

    def serve() -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return
            with client:
                while len(header := client.recv(4, socket.MSG_WAITALL)) == 4:
                    request = client.recv(struct.unpack(">I", header)[0], socket.MSG_WAITALL)
                    client.sendall(text(listing if request[0] == 11 else b"\x05"))

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "answer", [b"", b"\x00\x00\x00\x01\x05", b"\xff\xff\xff\xff", b"\x00\x00\x00\x05\x0c\xff\xff\xff\xff"]
)
async def test_something_that_is_no_agent_is_ignored(
    sshd: Sshd, transport: SshTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    path = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            client, _address = listener.accept()
            with client:
                client.recv(100)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        await connects(transport, sshd.environment())
        thread.join()


# Certificates


async def test_a_user_certificate_beside_the_key_is_used(transport: SshTransport, tmp_path: Path) -> None:
    authority = make_key(tmp_path / "authority")
    key = make_key(tmp_path / "key")
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", USER, str(key.with_suffix(".pub")))
    with running_sshd(tmp_path / "sshd", {"TrustedUserCAKeys": f"{authority}.pub"}) as server:
        await connects(transport, server.environment(identity_file=str(key)))
        assert "Accepted certificate ID" in server.log or "Accepted publickey" in server.log
        # Of another key it is of no use, and does no harm.
        other = make_key(tmp_path / "other")
        (tmp_path / "other-cert.pub").write_bytes((tmp_path / "key-cert.pub").read_bytes())
        server.authorize(other.with_suffix(".pub"))
        await connects(transport, server.environment(identity_file=str(other)))


async def test_a_key_is_tried_plain_when_its_certificate_is_not_taken(
    sshd: Sshd, transport: SshTransport, tmp_path: Path
) -> None:
    authority = make_key(tmp_path / "authority")
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", USER, str(sshd.client_key.with_suffix(".pub")))
    await connects(transport, sshd.environment())


# Several factors, with a real server


async def test_two_keys_are_given_where_the_server_wants_two(transport: SshTransport, tmp_path: Path) -> None:
    second = make_key(tmp_path / "second")
    options = {"AuthenticationMethods": "publickey,publickey"}
    with running_sshd(tmp_path / "sshd", options) as server, ssh_agent(second):
        server.authorize(second.with_suffix(".pub"))
        await connects(transport, server.environment())
        assert server.log.count("Postponed publickey") + server.log.count("Partial publickey") >= 1


# Passwords and codes, with a server that is scripted


def scripted(server: ScriptedServer, tmp_path: Path, **fields: object) -> Environment:
    known = tmp_path / "scripted_known_hosts"
    append(known, entry_name("127.0.0.1", server.port), server.host_key)
    usual: dict[str, object] = {
        "name": "bastion",
        "host": "127.0.0.1",
        "port": server.port,
        "user": ALICE,
        "known_hosts": str(known),
    }
    return Environment.model_validate({**usual, **fields})


async def test_a_password_is_asked_for_again_until_it_is_right(transport: SshTransport, tmp_path: Path) -> None:
    with scripted_server(Script(["password"])) as server:
        person = Person(password=["wrong", "right"])
        await connects(transport, scripted(server, tmp_path), person)
    assert [(prompt.kind, prompt.secret, prompt.host) for prompt in person.asked] == [
        (PromptKind.PASSWORD, True, "bastion")
    ] * 2
    assert server.script.attempts == ["password", "password"]


async def test_three_wrong_passwords_are_the_end(transport: SshTransport, tmp_path: Path) -> None:
    with scripted_server(Script(["password"])) as server:
        person = Person(password=["wrong"] * 5)
        error = await refused(transport, scripted(server, tmp_path), person)
    assert len(person.asked) == 3
    assert "it takes password; tried: password" in error.message


async def test_where_nobody_answers_the_remedy_is_named(transport: SshTransport, tmp_path: Path) -> None:
    for factor in ("password", "keyboard-interactive"):
        with scripted_server(Script([factor])) as server:
            error = await refused(transport, scripted(server, tmp_path))
        assert "Run dttui in a terminal" in error.hint
        assert f"ssh-copy-id -p {server.port} alice@127.0.0.1" in error.hint
        assert server.script.attempts == []


async def test_a_key_and_then_a_one_time_code(transport: SshTransport, tmp_path: Path) -> None:
    script = Script(
        ["publickey", "keyboard-interactive"],
        title="Two-step \x1b]52;c;ZXZpbA==\x07login",
        instructions="Enter the \u202ecode of your device.",
        prompts=[("Verification code: ", True), ("PIN: ", False)],
        answers=["123456", "0000"],
        public_key=make_client_key(tmp_path / "key"),
    )
    with scripted_server(script) as server:
        person = Person(one_time_code=["123456", "0000"])
        await connects(transport, scripted(server, tmp_path, identity_file=str(tmp_path / "key")), person)
    assert script.attempts == ["publickey", "keyboard-interactive"]
    assert [(prompt.said, prompt.secret) for prompt in person.asked] == [
        ("Two-step login\nEnter the code of your device.\nVerification code: ", False),
        ("Two-step login\nEnter the code of your device.\nPIN: ", True),
    ]
    assert {(prompt.account, prompt.text) for prompt in person.asked} == {
        ("alice@bastion", "answer for the server"),
        ("alice@bastion", "answer for the server, not shown"),
    }


async def test_a_password_asked_for_interactively_is_known_for_one(transport: SshTransport, tmp_path: Path) -> None:
    script = Script(["keyboard-interactive"], prompts=[("Password: ", False)], answers=["right"])
    with scripted_server(script) as server:
        person = Person(password=["wrong", "right"])
        await connects(transport, scripted(server, tmp_path), person)
    assert [prompt.kind for prompt in person.asked] == [PromptKind.PASSWORD] * 2


async def test_the_time_a_person_takes_does_not_count(
    transport: SshTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, taken_s = asyncio.get_running_loop(), 0.0
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + taken_s)

    class Slow(Person):
        async def ask(self, prompt: Prompt) -> str | None:
            nonlocal taken_s
            as_long = asyncio.ensure_future(Deadline(TIMEOUT_S).run(asyncio.Event().wait()))
            await asyncio.sleep(0)
            taken_s += TIMEOUT_S
            with pytest.raises(TimeoutError):
                await as_long
            return await super().ask(prompt)

    script = Script(["password", "keyboard-interactive"])
    with scripted_server(script) as server:
        person = Slow(password=["right"], one_time_code=["123456"])
        connection = await transport.connect(scripted(server, tmp_path), person, TIMEOUT_S)
        await connection.close()


async def test_giving_up_while_a_question_is_open_leaves_nothing_behind(
    transport: SshTransport, tmp_path: Path
) -> None:
    class Thinking(Person):
        def __init__(self) -> None:
            super().__init__()
            self.thinking = asyncio.Event()

        async def ask(self, prompt: Prompt) -> str | None:
            self.thinking.set()
            await asyncio.Event().wait()
            raise AssertionError

    for factor in ("password", "keyboard-interactive"):
        with scripted_server(Script([factor])) as server:
            person = Thinking()
            connecting = asyncio.create_task(transport.connect(scripted(server, tmp_path), person, TIMEOUT_S))
            await asyncio.wait_for(person.thinking.wait(), TIMEOUT_S)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
    # The fixture checks the threads.


async def test_one_person_is_asked_one_thing_at_a_time(transport: SshTransport, tmp_path: Path) -> None:
    class OneAtATime(Person):
        busy = False

        async def ask(self, prompt: Prompt) -> str | None:
            assert not self.busy
            self.busy = True
            await until(lambda: script.arrivals >= 5, "all have come as far as to ask")
            self.busy = False
            return await super().ask(prompt)

    script = Script(["password"])
    with scripted_server(script) as server:
        person = OneAtATime(password=["right"] * 5)
        environments = [scripted(server, tmp_path, name=f"bastion{number}") for number in range(5)]
        await asyncio.gather(*(connects(transport, environment, person) for environment in environments))
    assert len(person.asked) == 5
