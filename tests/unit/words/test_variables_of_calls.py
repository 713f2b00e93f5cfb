"""The environment variables of a call: they alone are read for it, and what is started for it gets them."""

from __future__ import annotations

import ast
import asyncio
import importlib
import pkgutil
from collections.abc import Iterator
from inspect import isfunction
from pathlib import Path

import pytest

import dttui
import dttui.app
from dttui.app import App, Caller
from dttui.app.caller import ForCaller
from dttui.errors import HostUnreachableError
from dttui.inventory.models import Environment
from dttui.launch.secrets_file import take_secrets
from dttui.transport import exec as by_command
from dttui.transport.ssh.sockets import ProxyCommand
from dttui.transport.ssh.ssh_config import HostQuery, SshConfig
from dttui.variables import bringing, for_a_process, learn, variables
from tests.waiting import until

ROOT = Path(str(dttui.__file__)).parent
OWN = {
    "variables.py",
    "locations.py",
    "cli/dispatch.py",
    "cli/printing.py",
    "engine/controller.py",
    "tui/job_notices.py",
}
"""What reads those of the process itself: who gives them to calls, directories, the terminal, and the entries."""
READS = {"environ", "environb", "getenv", "getenvb", "putenv"}
STARTS = {"subprocess.Popen", "subprocess.run", "asyncio.create_subprocess_exec", "loop.subprocess_exec"}
"""How processes are started; in no other way."""
OTHER_WAYS = {"check_output", "check_call", "getoutput", "create_subprocess_shell", "subprocess_shell", "popen"}


@pytest.fixture(autouse=True)
def of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "of-the-process")


def nodes(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield what the modules that run on the login node and have one of the words are made of, beside their paths."""
    for path in sorted(ROOT.rglob("*.py")):
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        if any(word in text for word in words) and not name.endswith("_program.py"):  # Those are sent to hosts.
            yield from ((name, node) for node in ast.walk(ast.parse(text)))


def test_nothing_but_the_entries_reads_the_variables_of_the_process() -> None:
    by_name = {name for name, node in nodes(*READS) if isinstance(node, ast.Attribute) and node.attr in READS}
    imported = [
        name
        for name, node in nodes(*READS)
        if isinstance(node, ast.ImportFrom) and node.module == "os" and READS & {item.name for item in node.names}
    ]
    assert by_name == OWN
    assert imported == []


def test_whatever_is_started_is_told_with_which_variables() -> None:
    calls = [(name, node) for name, node in nodes("process", *OTHER_WAYS) if isinstance(node, ast.Call)]
    started = [(name, node) for name, node in calls if ast.unparse(node.func) in STARTS]
    silent = [f"{name}:{node.lineno}" for name, node in started if "env" not in {item.arg for item in node.keywords}]
    assert len(started) > 10
    assert silent == []
    others = [(name, node) for name, node in calls if ast.unparse(node.func).rpartition(".")[2] in OTHER_WAYS]
    assert [f"{name}:{node.lineno}" for name, node in others] == []


def test_what_is_learnt_counts_for_the_call_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text("LATE=learnt-from-a-file\nTOKEN=another\n")
    (tmp_path / "secrets.env").chmod(0o600)
    with bringing({"TOKEN": "of-the-caller"}):
        assert take_secrets(tmp_path, ("LATE", "TOKEN", "NEVER")) == ("NEVER",)
        assert (variables()["LATE"], for_a_process()["TOKEN"]) == ("learnt-from-a-file", "of-the-caller")
        learn("NEVER", "learnt")
        assert take_secrets(tmp_path, ("NEVER",)) == ()
    assert not {"LATE", "NEVER"} & set(variables())


async def test_what_reaches_a_host_is_started_with_the_variables_of_the_caller(tmp_path: Path) -> None:
    program = tmp_path / "reach"
    program.write_text(f'#!/bin/sh\nprintf %s "$TOKEN" > {tmp_path}/told\n')
    program.chmod(0o755)
    with bringing({"TOKEN": "of-the-caller"}), pytest.raises(HostUnreachableError):
        await by_command.reach(Environment(name="a", host=None, exec=(str(program),)))
    assert (tmp_path / "told").read_text() == "of-the-caller"


async def test_ssh_and_a_proxy_command_are_started_with_the_variables_of_the_caller(tmp_path: Path) -> None:
    ssh, told = tmp_path / "ssh", tmp_path / "told"
    answers = ("hostname 127.0.0.1", "port 22", "user $TOKEN", f"proxycommand env > {told}")
    ssh.write_text("#!/bin/sh\n" + "".join(f'echo "{answer}"\n' for answer in answers))
    ssh.chmod(0o755)
    with bringing({"TOKEN": "of-the-caller"}):
        target = await asyncio.to_thread(SshConfig(binary=str(ssh)).resolve, HostQuery("gpu1"))
        proxy = ProxyCommand(target)
    assert target.user == "of-the-caller"
    await until(lambda: told.exists() and "TOKEN=of-the-caller" in told.read_text().split("\n"), "it tells", 20)
    proxy.end()
    proxy.socket.close()


def test_the_face_looks_at_the_session_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    theirs = {"SSH_CONNECTION": "10.0.0.1 22", "SSH_AUTH_SOCK": "/tmp/ssh-XXXXabcd/agent.1"}
    assert App(Caller(variables=theirs)).login_session().agent_is_forwarded
    assert not App().login_session().agent_is_forwarded
    with App(Caller(variables=theirs)).controller_ahead() as spare:
        assert spare is None


def test_each_call_of_the_face_speaks_for_who_calls() -> None:
    """In his language, with his environment: `for_caller` wraps it."""
    for module in pkgutil.iter_modules(dttui.app.__path__):
        importlib.import_module(f"dttui.app.{module.name}")
    parts: list[type] = [App, *ForCaller.__subclasses__()]
    calls = {f"{part.__name__}.{name}": call for part in parts for name, call in vars(part).items() if isfunction(call)}
    bare = {name for name, call in calls.items() if "._" not in name and not hasattr(call, "__wrapped__")}
    assert len(calls) > 30
    assert bare == {"App.close"}  # It says nothing and reads nothing.
