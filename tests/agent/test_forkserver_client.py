"""What the supervisor makes of what a stem tells: one that tells nonsense, or half of something, harms no job."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from dtagent.supervision import forkserver_client
from dtagent.supervision.forkserver_client import ChildUsage, ForkServerClient, usage_of


@pytest.fixture
def ends() -> Iterator[tuple[ForkServerClient, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(20.0)
        yield ForkServerClient(ours), theirs


def test_the_end_and_the_use_of_what_it_waited_for_are_told(ends: tuple[ForkServerClient, socket.socket]) -> None:
    forkserver, theirs = ends
    theirs.sendall(b'{"usage": [1, 2.5, 1024]}\n{"note": "x"}\n{"exit": -9, "usage": [3, 4, 5]}\n{"exit": 0, "us')
    assert list(forkserver.messages()) == [{"usage": [1, 2.5, 1024]}, {"note": "x"}, {"exit": -9, "usage": [3, 4, 5]}]
    assert forkserver.below == ChildUsage(1.0, 2.5, 1024)
    assert list(forkserver.messages()) == [], "half a word is not waited for"
    theirs.sendall(b'age": [6, 7, 8]}\n')
    (body,) = forkserver.messages()
    assert usage_of(body) == ChildUsage(6.0, 7.0, 8)
    theirs.close()
    assert list(forkserver.messages()) == [{"gone": True}]


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense",
        b"[]",
        b'"exit"',
        b'["exit"]',
        b'{"exit": 0}',
        b'{"exit": "x", "usage": [1, 2, 3]}',
        b'{"exit": null, "usage": [1, 2, 3]}',
        b'{"usage": [1, 2]}',
        b'{"usage": 5}',
        b'{"usage": [1, null, 3]}',
        b'{"usage": [1, 2, Infinity]}',
        b"[" * 100_000,
    ],
)
def test_one_that_tells_nonsense_is_taken_for_gone(ends: tuple[ForkServerClient, socket.socket], said: bytes) -> None:
    forkserver, theirs = ends
    theirs.sendall(said + b"\n")
    assert list(forkserver.messages()) == [{"gone": True}]
    assert forkserver.below == ChildUsage()


def test_one_that_talks_without_end_is_taken_for_gone(
    ends: tuple[ForkServerClient, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forkserver_client, "MOST_BYTES", 1000)
    forkserver, theirs = ends
    theirs.sendall(b"x" * 2000)
    assert list(forkserver.messages()) == [{"gone": True}]
