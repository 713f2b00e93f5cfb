"""What ranks have sent to whom, by the kernel's count."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles
from dtagent.protocol.traffic import PeerTraffic
from dtagent.stacks.reading import processes_of
from dtagent.system import proc_stat
from dtagent.telemetry import rank_traffic

from tests.waiting import wait_until

SENDER = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
link.sendall(bytes(3_000_000))
sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: Path) -> AttemptFiles:
    found = AttemptFiles(tmp_path / "0")
    found.ranks.mkdir(parents=True)
    return found


@contextmanager
def listening(family: int, address: str) -> Iterator[tuple[int, list[socket.socket]]]:
    """Listen; what connects is in the list."""
    taken: list[socket.socket] = []
    with closing(socket.socket(family)) as listener:
        listener.bind((address, 0))
        listener.listen()
        threading.Thread(target=lambda: taken.append(listener.accept()[0]), daemon=True).start()
        yield listener.getsockname()[1], taken
    for link in taken:
        link.close()


def record(files: AttemptFiles, rank: int, pid: int) -> None:
    stat = proc_stat.read(pid)
    assert stat is not None
    (files.ranks / f"{rank}.json").write_text(json.dumps({"pid": pid, "start_time": stat.start_time}))


def peers_of(files: AttemptFiles) -> list[PeerTraffic]:
    return rank_traffic.read(processes_of(files)).peers


@pytest.mark.parametrize(
    ("family", "bound", "target", "told"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1", "::1"),
        (socket.AF_INET, "127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1"),
    ],
    ids=["v4", "v6", "v4 by v6"],
)
def test_what_a_rank_has_sent_is_told_with_the_time_that_it_had_to_wait_for_it(
    family: int, bound: str, target: str, told: str, files: AttemptFiles
) -> None:
    """A receiver that reads nothing for a second is not the link's fault."""
    with listening(family, bound) as (port, taken):
        rank = subprocess.Popen([sys.executable, "-c", SENDER, target, str(port)], stdin=subprocess.PIPE)
        try:
            record(files, 3, rank.pid)
            wait_until(lambda: taken, "it to connect")
            time.sleep(1.0)
            (link,) = taken
            got = 0
            while got < 3_000_000:
                got += len(link.recv(1 << 20))
            wait_until(lambda: peers_of(files)[0].sent_bytes >= 3_000_000, "all to be acknowledged")
            (peer,) = peers_of(files)
            assert (peer.address, peer.connections) == (told, 1)
            assert peer.sent_bytes <= 3_000_001  # The first packet counts as one.
            assert peer.busy_s < 0.9
        finally:
            rank.communicate()


def test_of_others_than_ranks_that_live_nothing_is_told(files: AttemptFiles) -> None:
    with listening(socket.AF_INET, "127.0.0.1") as (port, taken), socket.create_connection(("127.0.0.1", port)):
        wait_until(lambda: taken, "the connection")
        assert peers_of(files) == []
        record(files, 0, os.getpid())
        assert [peer.connections for peer in peers_of(files)] == [2]
        (files.ranks / "0.json").write_text(json.dumps({"pid": os.getpid(), "start_time": 1}))
        assert peers_of(files) == []


def test_of_a_kernel_that_tells_of_no_connection_nothing_is_told(
    files: AttemptFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_family: int) -> Iterator[object]:
        raise FileNotFoundError

    monkeypatch.setattr(rank_traffic, "_connections", refuse)
    with listening(socket.AF_INET, "127.0.0.1") as (port, taken), socket.create_connection(("127.0.0.1", port)):
        wait_until(lambda: taken, "the connection")
        record(files, 0, os.getpid())
        assert peers_of(files) == []
