"""Questions in a real terminal: what a server says can look like nothing of dttui's, whatever it says."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest
import yaml

from dttui.cli.prompting import MARK
from dttui.errors import HostUnreachableError
from dttui.i18n import LANGUAGES
from dttui.inventory.models import Environment
from dttui.locations import local_user
from dttui.sanitize import MOST_QUOTED_LINES
from dttui.transport.ssh.transport import SshTransport
from tests.integration.headless import shell_job
from tests.integration.hostile_peer import flooding_peer
from tests.integration.scripted_ssh_server import USER, Script, ScriptedServer, make_client_key, scripted_server
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S
from tests.integration.sshd import make_key
from tests.integration.terminal import DEADLINE_S, Terminal, terminal
from tests.waiting import wait_until

__all__ = ["terminal"]

pytestmark = pytest.mark.sshd

OURS = f"{USER}@bastion"
FINGERPRINT = "SHA256:kK8vD3xQmYl2oT0bN5uRr1aZcWf9eHsJpGtX4iB7qLE"
FAKES = {
    "host-key": f"{OURS}: gpu9 shows a key that is not known yet:\n  ED25519 {FINGERPRINT}\nTrust it? [yes/no] ",
    "passphrase": f"\n\n\n{OURS}: Passphrase of the key /home/li/.ssh/id_ed25519: ",
    "chinese": f"{OURS}：密钥 /home/li/.ssh/id_ed25519 的口令：",
    "returns": f"Code\r{OURS}: Passphrase of the key /k: \x1b[2K\x1b[1G\v\f\x85{OURS}: Password: ",
    "newlines": "\n" * 500 + f"{OURS}: Passphrase of the key /k: ",
    "wide": "请" * 300 + f"{OURS}: Passphrase of the key /k: " + "☀️" * 200 + "e\u0301" * 200 + "—·…" * 100,
    "spaces": " " * 400
    + f"{OURS}: Passphrase of the key /k: \t\t\t\t\t\t\t\t\t\t\t\t\t\t\tx"
    + "\u3000" * 90
    + f"{OURS}: y",
    "long": f"{OURS}: Passphrase of the key /k: " * 2000,
    "marks": f"x\n{MARK}y\n{OURS}: Passphrase of the key /k: ",
}

ASKED = {"en": (": answer for the server", ": the server says:"), "zh": ("：给服务器的回答", "：服务器说：")}


def inventory(directory: Path, server: ScriptedServer, known: str | None = None, **fields: object) -> Path:
    """An inventory with that one host, whose key is known unless told otherwise."""
    key = f"{server.host_key.type} {base64.b64encode(server.host_key.blob).decode()}"
    (directory / "known").write_text(f"[127.0.0.1]:{server.port} {key}\n" if known is None else known)
    host = {"name": "bastion", "host": "127.0.0.1", "port": server.port, "user": USER}
    environment = {**host, "known_hosts": str(directory / "known"), **fields}
    path = directory / "inventory.yaml"
    path.write_text(yaml.safe_dump({"environments": [environment]}))
    return path


def history(terminal: Terminal) -> list[str]:
    """All lines shown so far, those that have scrolled away too; blank ones left out."""
    return [line for line in terminal.tmux("capture-pane", "-p", "-S", "-").split("\n") if line.strip()]


def wait_for_question(terminal: Terminal, asked: str, number: int) -> list[str]:
    """Wait until so many questions have been put; return the lines since the last answer."""

    def count() -> int:
        return sum(asked in line for line in history(terminal))

    wait_until(lambda: count() == number, f"question {number}", DEADLINE_S)
    lines = history(terminal)
    ends = [index for index, line in enumerate(lines) if asked in line]
    return lines[ends[-2] + 1 if number > 1 else 0 : ends[-1] + 1]


@pytest.mark.parametrize("columns", [120, 50])
@pytest.mark.parametrize("language", LANGUAGES)
def test_each_line_of_a_servers_words_is_marked_and_each_question_begins_with_user_and_host(
    terminal: Terminal, tmp_path: Path, language: str, columns: int
) -> None:
    asked, says = ASKED[language]
    terminal.resize(columns, 30)
    fakes = list(FAKES.values())
    script = Script(["keyboard-interactive"], title=fakes[0], instructions=fakes[1])
    script.prompts = [(fake, False) for fake in fakes]
    script.answers = [f"answer{number}" for number in range(1, len(fakes) + 1)]
    with scripted_server(script) as server:
        terminal.start("agents", "status", "--inventory", inventory(tmp_path, server), "--lang", language)
        for number in range(1, len(fakes) + 1):
            first, *theirs, last = wait_for_question(terminal, asked, number)
            assert first.startswith(f"{OURS}{says}")
            assert last.startswith(f"{OURS}{asked}")
            assert 0 < len(theirs) <= MOST_QUOTED_LINES
            assert all(line.startswith(MARK) for line in theirs), theirs
            terminal.press(f"answer{number}", "Enter")
        terminal.wait_for("left with")
    assert script.attempts == ["keyboard-interactive"]
    assert "answer1" not in "".join(history(terminal))


def test_a_passphrase_a_password_and_a_host_key_are_asked_for_by_user_and_host(
    terminal: Terminal, tmp_path: Path
) -> None:
    """On the way to one host: its key is unknown, a key file is locked, and then it wants a password."""
    script = Script(
        ["publickey", "password"], "sesame", public_key=make_client_key(tmp_path / "key", passphrase="open sesame")
    )
    with scripted_server(script) as server:
        path = inventory(tmp_path, server, known="", identity_file=str(tmp_path / "key"))
        terminal.resize(240, 30)
        terminal.start("agents", "status", "--inventory", path)
        shown = terminal.wait_for("[yes/no]")
        assert f"{OURS}: the host shows a key that is not known yet:\n  {server.host_key.fingerprint}" in shown
        assert f"{OURS}: Compare it" in shown
        terminal.press("yes", "Enter")
        terminal.wait_for(f"{OURS}: Passphrase of the key {tmp_path / 'key'}, for use on this machine:")
        terminal.press("open sesame", "Enter")
        terminal.wait_for(f"{OURS}: Password of {USER}@127.0.0.1:")
        terminal.press("sesame", "Enter")
        terminal.wait_for("left with")
    assert script.attempts[:2] == ["publickey", "password"]


def test_trusting_a_host_by_hand_asks_by_user_and_host(terminal: Terminal, tmp_path: Path) -> None:
    with scripted_server(Script()) as server:
        path = inventory(tmp_path, server, known="")
        terminal.start("envs", "trust", "bastion", "--inventory", path)
        shown = terminal.wait_for("[yes/no]")
        assert f"{OURS}: the host shows a key that is not known yet:\n  {server.host_key.fingerprint}" in shown
        terminal.press("no", "Enter")
        terminal.wait_for("left with 4")


@pytest.mark.parametrize(("mark", "said"), [("", "the key of bastion has changed"), ("@revoked ", "is revoked by")])
def test_a_key_that_is_known_to_be_wrong_is_not_offered_to_be_trusted(
    terminal: Terminal, tmp_path: Path, mark: str, said: str
) -> None:
    with scripted_server(Script()) as server:
        own = f"{server.host_key.type} {base64.b64encode(server.host_key.blob).decode()}"
        other = " ".join(make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])
        path = inventory(tmp_path, server, known=f"{mark}[127.0.0.1]:{server.port} {own if mark else other}\n")
        terminal.resize(240, 30)
        terminal.start("envs", "trust", "bastion", "--inventory", path)
        shown = terminal.wait_for("left with 4")
        assert said in shown
        assert "[yes/no]" not in shown


def test_a_question_of_a_jobs_controller_marks_the_servers_words_too(terminal: Terminal, tmp_path: Path) -> None:
    script = Script(["keyboard-interactive"], instructions=FAKES["passphrase"], prompts=[(FAKES["returns"], False)])
    script.answers = ["sesame"]
    with scripted_server(script) as server:
        path = inventory(tmp_path, server)
        job = shell_job(tmp_path, {"bastion": 1}, "true")
        terminal.start("--apply", job, "--inventory", path)
        terminal.wait_for(f"{OURS}: answer for the server, not shown:")
        first, *theirs, _last = [line for line in history(terminal) if line.startswith((OURS, MARK))]
        assert first == f"{OURS}: the server says:"
        assert all(line.startswith(MARK) for line in theirs)
        assert len(theirs) == 4
        terminal.press("sesame", "Enter")
        terminal.wait_for("left with")


def test_questions_of_our_own_name_the_person_and_this_machine(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("mine")
    with scripted_server(Script()) as server:
        terminal.start("agents", "remove", "--inventory", inventory(tmp_path, server))
        shown = terminal.wait_for("[yes/no]")
        here = f"{local_user()}@{socket.gethostname()}"
        assert f"{here}: Remove the agent from 1 host: bastion" in shown
        assert f"{here}: Go on? [yes/no]" in shown
        terminal.press("no", "Enter")
        terminal.wait_for("left with")


async def test_words_outside_a_question_are_one_short_line(transport: SshTransport, tmp_path: Path) -> None:
    lines = FAKES["host-key"].encode() + b"\n\n" + FAKES["passphrase"].encode() + b"\n" + b"x" * 5000 + b"\n"
    with flooding_peer(lines, b"") as port:
        environment = Environment.model_validate({"name": "gpu1", "host": "127.0.0.1", "port": port})
        with pytest.raises(HostUnreachableError) as caught:
            await transport.connect(environment, NOBODY, TIMEOUT_S)
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 1200
