"""What a controller could not write down is heard by any process, however much that one holds open."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from dtagent.protocol import rpc

from dttui.jobs.unwritten import Unwritten, unwritten_events

SELECTABLE = 1024
"""Descriptors that select(2) can wait for."""


@pytest.fixture
def many_open() -> Iterator[None]:
    """Hold so many descriptors that the next ones are beyond what select(2) takes."""
    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    if bounds[1] != resource.RLIM_INFINITY and bounds[1] < 2 * SELECTABLE:
        pytest.skip("this machine lets nobody open so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * SELECTABLE, bounds[1]))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, bounds)
        descriptor = 0
        while descriptor < SELECTABLE:
            descriptor = os.open(os.devnull, os.O_RDONLY)
            held.callback(os.close, descriptor)
        yield


@pytest.mark.usefixtures("many_open")
def test_a_process_that_holds_thousands_of_hosts_hears_of_what_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        watching = Unwritten(path)
        assert watching.read() == []
        link, _address = server.accept()
        with link:
            line = '{"seq": 7, "time": 1.0, "kind": "progress", "message": "hello"}'
            link.sendall(rpc.encode({"method": "event", "line": line}) + rpc.encode({"method": "told"}))
            assert [event.seq for event in watching.read(10.0)] == [7]
            assert watching.has_answered
        watching.close()


def test_a_controller_that_is_gone_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert unwritten_events(path) is None
