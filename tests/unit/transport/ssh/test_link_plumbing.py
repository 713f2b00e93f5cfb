"""What lies between paramiko's threads, the event loop and the kernel: wake-ups, sockets, and paramiko's own seams."""

from __future__ import annotations

import ast
import asyncio
import errno
import itertools
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import paramiko
import pytest
from paramiko.auth_handler import AuthHandler
from paramiko.buffered_pipe import BufferedPipe
from paramiko.packet import Packetizer

from dttui.transport import ssh
from dttui.transport.ssh.bounded_pipe import BoundedPipe
from dttui.transport.ssh.link_socket import AHEAD_BYTES, LinkSocket
from dttui.transport.ssh.threads import GATHER_S, MANY_STREAMS, Wakeups


@pytest.fixture
def pair() -> Iterator[tuple[LinkSocket, socket.socket]]:
    """Our end of a TCP connection, and the other one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = LinkSocket(socket.AF_INET, socket.SOCK_STREAM)
        ours.connect(server.getsockname())
        ours.prepare()
        theirs, _address = server.accept()
    with ours, theirs:
        yield ours, theirs


def test_a_socket_that_reads_ahead_gives_the_bytes_in_the_pieces_that_are_asked_for(
    pair: tuple[LinkSocket, socket.socket],
) -> None:
    ours, theirs = pair
    sent = bytes(range(256)) * (AHEAD_BYTES // 64)
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    pieces: list[bytes] = []
    while piece := ours.recv(len(pieces) * 7 + 1):
        assert len(piece) <= len(pieces) * 7 + 1
        pieces.append(piece)
    assert b"".join(pieces) == sent


def test_a_read_with_a_time_limit_ends_by_it_and_by_a_shutdown(pair: tuple[LinkSocket, socket.socket]) -> None:
    ours, _theirs = pair
    ours.settimeout(0.05)
    with pytest.raises(TimeoutError):
        ours.recv(16)
    ours.settimeout(60.0)
    reading = threading.Thread(target=ours.recv, args=(16,))
    reading.start()
    ours.shutdown(socket.SHUT_RDWR)
    reading.join(10.0)
    assert not reading.is_alive()


def test_a_link_that_the_kernel_gave_up_is_no_read_that_took_too_long(
    pair: tuple[LinkSocket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _theirs = pair

    def give_up(*_: object) -> bytes:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(socket.socket, "recv", give_up, raising=False)
    with pytest.raises(ConnectionAbortedError, match="timed out"):  # paramiko goes on after a TimeoutError.
        ours.recv(16)


async def test_word_of_one_stream_is_passed_on_at_once_however_often_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    wakeups, loop = Wakeups(), asyncio.get_running_loop()
    later = Mock(wraps=loop.call_later)
    monkeypatch.setattr(loop, "call_later", later)
    arrived = asyncio.Event()
    for _ in range(200):
        arrived.clear()
        await asyncio.to_thread(wakeups.call, arrived.set)
        await asyncio.wait_for(arrived.wait(), 10.0)
    assert GATHER_S not in [call.args[0] for call in later.call_args_list]


async def test_word_of_many_streams_is_gathered_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    wakeups, loop = Wakeups(), asyncio.get_running_loop()
    wake = Mock(wraps=loop.call_soon_threadsafe)
    monkeypatch.setattr(loop, "call_soon_threadsafe", wake)
    count = MANY_STREAMS * 50
    counts = [0] * count
    finished = asyncio.Event()

    def step(number: int) -> None:
        counts[number] += 1
        if sum(counts) == count:
            finished.set()

    steps = [lambda number=number: step(number) for number in range(count)]

    def from_threads(first: int) -> None:
        for call in steps[first::4]:
            wakeups.call(call)

    threads = [threading.Thread(target=from_threads, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    await asyncio.wait_for(finished.wait(), 10.0)
    for thread in threads:
        thread.join()
    assert counts == [1] * count
    assert wake.call_count < count / 4
    arrived = asyncio.Event()
    wakeups.call(arrived.set)
    await asyncio.wait_for(arrived.wait(), 10.0)


async def test_no_word_is_lost_that_comes_while_others_are_passed_on() -> None:
    """What waits for a lost one waits until its deadline: an answer of a host that is there and is never read."""
    wakeups, speakers, words = Wakeups(), MANY_STREAMS - 1, 100_000
    counts: list[Iterator[int]] = [itertools.count() for _ in range(speakers)]

    def speak(count: Iterator[int]) -> None:
        hear = partial(next, count)
        for _ in range(words):
            wakeups.call(hear)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        await asyncio.gather(*(asyncio.to_thread(speak, count) for count in counts))
    finally:
        sys.setswitchinterval(interval)
    arrived = asyncio.Event()
    await asyncio.to_thread(wakeups.call, arrived.set)
    await asyncio.wait_for(arrived.wait(), 10.0)
    assert [next(count) for count in counts] == [words] * speakers


async def test_a_call_after_the_loop_has_ended_is_no_error() -> None:
    wakeups = await asyncio.to_thread(lambda: asyncio.run(_made()))
    wakeups.call(lambda: None)


async def _made() -> Wakeups:
    return Wakeups()


def test_paramiko_has_the_seams_that_the_transport_relies_on() -> None:
    channel = paramiko.Channel(0)
    assert callable(Packetizer.start_handshake)
    assert channel.in_window_threshold == channel.in_window_sofar == 0
    assert callable(channel.in_buffer.set_event)
    assert callable(channel.in_stderr_buffer.set_event)
    assert channel.status_event.is_set() is False
    assert callable(channel.in_buffer.close)


def test_the_version_string_that_went_ahead_goes_out_once_however_paramiko_hands_it_over(
    pair: tuple[LinkSocket, socket.socket],
) -> None:
    ours, theirs = pair
    version = b"SSH-2.0-x\r\n"
    for pieces in ([version], [version[:4], version[4:]], [version + b"more"], [b"other"]):
        pipe = BoundedPipe(ours)
        pipe.greet(version)
        for piece in [*pieces, b"rest"]:
            while piece:
                piece = piece[pipe.send(piece) :]
        expected = version + b"".join(pieces).removeprefix(version) + b"rest"
        assert theirs.recv(len(expected), socket.MSG_WAITALL) == expected


def test_one_private_name_of_paramiko_is_used_and_only_where_it_is_there() -> None:
    kinds = (paramiko.Transport, Packetizer, paramiko.Channel, AuthHandler, BufferedPipe, paramiko.Message)
    theirs = {name for kind in kinds for name in vars(kind) if name.startswith("_") and not name.endswith("__")}
    assert {"_send_user_message", "_send_kex_init", "_active_check_timeout"} <= theirs
    used = set()
    for path in Path(ssh.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        own = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
        own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        if path.name == "packets.py":  # What derives from paramiko's has no names beside theirs.
            own = set()
        named = {node.attr for node in attributes} | {node.value for node in nodes if isinstance(node, ast.Constant)}
        used |= {(path.name, name) for name in named if name in theirs - own}
    assert used == {("packets.py", "_send_user_message")}
