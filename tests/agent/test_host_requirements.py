"""What a prepare finds on a host where disks hang, paths are missing, or the interpreter is behind something."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from dtagent.attempts import host_requirements
from dtagent.attempts.attempts import Attempts
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.preparation import PrepareRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.system.readings import Readings


def request(python: str = "sh", *paths: str, is_behind_prefix: bool = False) -> PrepareRequest:
    key = AttemptKey("job", 0)
    return PrepareRequest(
        key, 0, python, "127.0.0.1", False, (29500, 29999), 0, list(paths), is_behind_prefix=is_behind_prefix
    )


@pytest.fixture
def dead_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A directory that nobody gets an answer about; so long a limit that what does answer has, however busy all is."""
    is_over = threading.Event()
    exists = os.path.exists

    def hang(path: str) -> bool:
        return is_over.wait(20) if path.startswith("/dead") else exists(path)

    monkeypatch.setattr("dtagent.attempts.host_requirements.os.path.exists", hang)
    monkeypatch.setattr(host_requirements, "LIMIT_S", 2.0)
    yield "/dead/data"
    is_over.set()


def test_a_disk_that_hangs_is_named_and_waited_for_no_longer_than_the_limit(dead_disk: str, tmp_path: Path) -> None:
    began = time.monotonic()
    found = host_requirements.look(request("sh", str(tmp_path), dead_disk))
    assert str(found.refusal) == "the file system of /dead/data does not answer"
    assert str(host_requirements.look(request("sh", dead_disk, "/no/dir")).refusal) == "there is no /no/dir here"
    assert time.monotonic() - began < 15


def test_a_name_service_that_hangs_is_told_from_a_master_that_there_is_no_way_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dtagent.system.interfaces.socket.getaddrinfo", fail := Mock(side_effect=socket.gaierror(-2, ""))
    )
    no_way = host_requirements.look(request("sh"))
    assert (no_way.interface, no_way.refusal) == (None, None)
    is_over = threading.Event()
    fail.side_effect = lambda *_args, **_options: is_over.wait(20)
    monkeypatch.setattr(host_requirements, "LIMIT_S", 2.0)
    refusal = host_requirements.look(request("sh")).refusal
    is_over.set()
    assert str(refusal) == "the way to 127.0.0.1 cannot be looked up: the name service does not answer"
    with pytest.raises(RpcError, match="the name service does not answer"):
        Attempts(tmp_path, list).prepare(request("sh"), host_requirements.HostRequirements(refusal=refusal))


def test_a_host_where_no_look_can_start_is_busy_and_no_disk_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_requirements, "_LOOKS", Readings(most=0))
    refusal = host_requirements.look(request("sh", "/")).refusal
    assert refusal is not None
    assert refusal.code is ErrorCode.BUSY
    assert str(refusal) == "this host lets no more looks at it start: too many threads run, or hang"


def test_what_was_looked_at_is_not_looked_at_again_where_others_wait(dead_disk: str, tmp_path: Path) -> None:
    attempts = Attempts(tmp_path, list)
    found = host_requirements.look(request("sh"))
    assert attempts.prepare(request("sh", dead_disk), found).python == found.python
    with pytest.raises(RpcError, match="does not answer"):
        Attempts(tmp_path / "other", list).prepare(request("sh", dead_disk))


def test_an_interpreter_behind_a_prefix_is_nothing_that_the_host_has_to_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/li")
    assert str(host_requirements.look(request("/no/python")).refusal) == "there is no interpreter /no/python here"
    for python, told in (("/no/python", "/no/python"), ("python3", "python3"), ("~/bin/python", "/home/li/bin/python")):
        found = host_requirements.look(request(python, is_behind_prefix=True))
        assert (found.python, found.refusal) == (told, None)
    assert Attempts(tmp_path, list).prepare(request("/no/python", is_behind_prefix=True)).python == "/no/python"
