"""Which files of a working directory go to the hosts, and how they are sent to agents good and bad."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from dtagent.protocol.jobs import AttemptKey, UploadRequest

from dttui.errors import AgentError, UsageError
from dttui.services import upload
from dttui.services.agent import AgentClient
from dttui.services.upload import list_upload, send, survey

KEY = AttemptKey("job", 0)


class Host:
    """An agent that keeps what it is sent, unless it is told how to answer."""

    name = "gpu1"

    def __init__(self, answer: Callable[[int], int] | None = None) -> None:
        self.answer = answer
        self.content = b""
        self.calls = 0

    async def call(self, _method: str, request: UploadRequest, _reply: type[int], _timeout_s: float = 30.0) -> int:
        self.calls += 1
        assert self.calls < 100, "it goes on without end"
        if self.answer is not None:
            return self.answer(self.calls)
        if request.offset == len(self.content):
            self.content += base64.b64decode(request.data)
        return len(self.content)


async def send_to(host: Host, directory: Path) -> int:
    return await send(cast(AgentClient, cast(Any, host)), KEY, list_upload(directory))


def names(directory: Path) -> list[str]:
    return [file.relative for file in survey(directory).files]


def write(directory: Path, *relative: str) -> None:
    for name in relative:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)


def test_secrets_stay_here_and_are_named(tmp_path: Path) -> None:
    secret = [".aws/credentials", ".env", "keys/id_rsa", "keys/server.PEM", "prod.env"]
    write(tmp_path, "train.py", "keys/readme.md", ".git/config", "__pycache__/x.pyc", *secret)
    assert names(tmp_path) == ["train.py", "keys/readme.md"]
    assert sorted(survey(tmp_path).left_out) == [".aws", ".env", "keys/id_rsa", "keys/server.PEM", "prod.env"]


def test_links_are_followed_only_to_what_would_be_sent_anyway(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    write(outside, "passwords.txt", "folder/file")
    write(work, "a.py", ".env")
    (work / "alias.py").symlink_to("a.py")
    (work / "hidden.txt").symlink_to(".env")
    (work / "away.txt").symlink_to(outside / "passwords.txt")
    (work / "folder").symlink_to(outside / "folder")
    (work / "loop").symlink_to("loop")
    assert names(work) == ["a.py", "alias.py"]
    assert set(survey(work).left_out) == {".env", "hidden.txt", "away.txt", "folder"}


def test_a_name_that_is_not_utf8_is_told_in_letters_that_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("")
    assert survey(tmp_path).misnamed == ("caf\N{REPLACEMENT CHARACTER}.py",)
    assert names(tmp_path) == []


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_FILES", 2)
    write(tmp_path, "a", "b", "c")
    with pytest.raises(UsageError, match="too large"):
        list_upload(tmp_path)


async def test_a_file_of_many_parts_arrives_whole_and_an_empty_one_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "MAX_CHUNK_BYTES", 3)
    (tmp_path / "data").write_bytes(b"0123456789")
    host = Host()
    assert await send_to(host, tmp_path) == 10
    assert host.content == b"0123456789"
    (tmp_path / "data").write_bytes(b"")
    assert await send_to(Host(), tmp_path) == 0


async def test_a_file_that_is_partly_there_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_CHUNK_BYTES", 3)
    (tmp_path / "data").write_bytes(b"0123456789")
    host = Host()
    host.content = b"01234"
    await send_to(host, tmp_path)
    assert host.content == b"0123456789"
    assert host.calls == 3


@pytest.mark.parametrize("answer", [lambda _: 0, lambda _: -1, lambda _: 11, lambda call: call % 2 + 1])
async def test_an_agent_that_never_takes_a_file_is_an_error_and_no_endless_loop(
    answer: Callable[[int], int], tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(b"0123456789")
    with pytest.raises(AgentError, match="gpu1: the agent does not take data"):
        await send_to(Host(answer), tmp_path)


async def test_a_file_that_shrinks_meanwhile_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"0123456789")
    files = list_upload(tmp_path)
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(UsageError, match="became shorter"):
        await send(cast(AgentClient, cast(Any, Host())), KEY, files)
