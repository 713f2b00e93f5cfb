"""The rendezvous of Horovod jobs over real sockets: what its client asks, how much it takes, and whom it outlasts."""

from __future__ import annotations

import contextlib
import http.client
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dtagent.payload
import pytest
from dtagent.payload import horovod_rendezvous

from tests.ports import held_port
from tests.waiting import wait_until

SCRIPT = Path(dtagent.payload.__file__).with_name("horovod_rendezvous.py")
SIZE = 4
MOST_VALUE = (64 << 10) + 320 * SIZE


@contextmanager
def serving(size: int = SIZE, address: str = "127.0.0.1") -> Iterator[tuple[int, int]]:
    """Run the service; give its port and its pid."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())
        argv = [sys.executable, str(SCRIPT), "serve", address, str(port), str(size)]
        child = stack.enter_context(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            while "ranks can meet" not in line:
                assert line, "the service ended"
                line = child.stdout.readline()
            yield port, child.pid
            assert child.poll() is None, "the service died"
        finally:
            child.terminate()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as (number, _pid):
        yield number


def ask(port: int, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
    """Ask as Horovod's client does: one connection a request, HTTP/1.1, the length always given."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, body, {"Content-Length": str(len(body))})
        answer = connection.getresponse()
        assert answer.getheader("Content-Length") is not None
        return answer.status, answer.read()


def raw(port: int, data: bytes) -> bytes:
    """Send bytes as they are; return all that comes back."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as link:
        link.sendall(data)
        found = b""
        while part := link.recv(65536):
            found += part
        return found


def test_what_is_put_can_be_got_until_all_ranks_of_its_scope_have_done_with_it(port: int) -> None:
    value = bytes(range(256)) * 5
    assert ask(port, "PUT", "/global/0", value) == (200, b"")
    assert ask(port, "GET", "/global/0") == (200, value)
    assert ask(port, "PUT", "/global/0", b"") == (200, b"")
    assert ask(port, "PUT", "/global/1", b"one") == (200, b"")
    assert ask(port, "PUT", "/global/rank_0", b"host") == (200, b"")
    assert ask(port, "GET", "/local_node0/rank_0") == (404, b"")
    for rank in ("0", "0", "rank_0", "7"):
        assert ask(port, "DELETE", f"/global/{rank}") == (200, b"")
    assert [ask(port, "GET", f"/global/{key}") for key in ("0", "1", "rank_0")] == [
        (200, b""),
        (200, b"one"),
        (200, b"host"),
    ]
    assert ask(port, "DELETE", "/global/1") == (200, b"")
    assert [ask(port, "GET", f"/global/{key}")[0] for key in ("0", "1", "rank_0")] == [404] * 3


def test_a_rank_that_comes_again_is_waited_for_again(port: int) -> None:
    for rank in (0, 1):
        assert ask(port, "PUT", f"/again/{rank}", b"old") == (200, b"")
    assert ask(port, "DELETE", "/again/0") == (200, b"")
    assert ask(port, "PUT", "/again/0", b"new") == (200, b"")
    assert ask(port, "DELETE", "/again/1") == (200, b"")
    assert ask(port, "GET", "/again/0") == (200, b"new")


def test_the_answer_about_addresses_waits_for_them_a_while_so_that_nobody_asks_a_hundred_times(port: int) -> None:
    answers: list[tuple[int, bytes]] = []

    def ask_until_it_is_there() -> None:
        while not answers or answers[-1][0] == 404:  # Where this was held up, it has been waited for long enough.
            answers.append(ask(port, "GET", "/waiting/2"))

    asking = threading.Thread(target=ask_until_it_is_there)
    began = time.monotonic()
    asking.start()
    assert ask(port, "PUT", "/waiting/1", b"other") == (200, b"")
    assert ask(port, "PUT", "/waiting/2", b"here") == (200, b"")
    asking.join(30)
    assert answers[-1] == (200, b"here")
    assert len(answers) - 1 <= time.monotonic() - began
    assert ask(port, "GET", "/waiting/3") == (404, b"")
    assert time.monotonic() - began >= 1.0


def test_the_answer_is_one_that_the_clients_own_parser_takes(port: int) -> None:
    assert ask(port, "PUT", "/exact/rank_1", b"v")[0] == 200
    answer = raw(port, b"GET /exact/rank_1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n")
    assert answer == b"HTTP/1.1 200 -\r\nContent-Length: 1\r\nConnection: close\r\n\r\nv"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /only-a-scope HTTP/1.1\r\n\r\n", 400),
        (b"GET /a/b/c HTTP/1.1\r\n\r\n", 400),
        (b"GET //b HTTP/1.1\r\n\r\n", 400),
        (b"GET http://elsewhere/a HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00 not http \xff\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"POST /a/b HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 400),
        ("PUT /a/b HTTP/1.1\r\nContent-Length: ²\r\n\r\n".encode("latin-1"), 400),
        (b"PUT /a/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MOST_VALUE + 1), 413),
        (b"PUT /a/b HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", 413),
        (b"GET /a/" + b"k" * 9000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"x" * 9000, 431),
    ],
)
def test_what_is_no_request_of_a_rank_is_refused_and_the_next_is_answered(
    port: int, request_bytes: bytes, status: int
) -> None:
    assert raw(port, request_bytes).startswith(b"HTTP/1.1 %d " % status)
    assert ask(port, "PUT", "/after/rank_0", b"well") == (200, b"")


def test_what_is_kept_is_bounded() -> None:
    with serving(1) as (port, pid):
        value = b"x" * 65_000
        statuses = [ask(port, "PUT", f"/full/{number}", value)[0] for number in range(300)]
        assert statuses.index(507) == (16 << 20) // (len(value) + 256)
        assert set(statuses[statuses.index(507) :]) == {507}
        assert ask(port, "PUT", "/full/0", value)[0] == 200
        assert {ask(port, "DELETE", f"/full/{number}")[0] for number in range(300)} == {200}
        assert [ask(port, "PUT", "/full/0", value)[0] for _ in range(2)] == [200, 200]
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
        assert resident < 80 << 20


def test_silent_connections_keep_no_rank_out() -> None:
    with serving(1) as (port, _pid):
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(300)]
        for link in held[::2]:
            link.sendall(b"PUT /a/b HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf")
        assert ask(port, "PUT", "/global/rank_0", b"in") == (200, b"")
        for link in held:
            link.close()
        assert ask(port, "GET", "/global/rank_0") == (200, b"in")


def test_peers_that_go_away_at_any_point_leave_it_serving(port: int) -> None:
    whole = b"PUT /gone/rank_0 HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"
    for length in range(0, len(whole), 7):
        with closing(socket.create_connection(("127.0.0.1", port))) as link:
            link.sendall(whole[:length])
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # The end is a reset.
    assert ask(port, "GET", "/gone/rank_0") == (404, b"")


def test_it_listens_on_the_one_address_and_on_all_only_where_that_is_not_of_this_host() -> None:
    def is_open(address: str, port: int) -> bool:
        try:
            socket.create_connection((address, port), timeout=5).close()
        except ConnectionRefusedError:
            return False
        return True

    with serving() as (port, _pid):
        assert [is_open(address, port) for address in ("127.0.0.1", "127.0.0.2")] == [True, False]
    with serving(address="192.0.2.1") as (port, _pid):
        assert is_open("127.0.0.2", port)


@pytest.mark.parametrize(
    ("address", "resolved", "expected"),
    [
        ("10.0.0.5", ["10.0.0.5"], "10.0.0.5"),
        ("127.0.0.1", ["127.0.0.1"], "127.0.0.1"),
        ("localhost", ["127.0.0.1"], "127.0.0.1"),
        ("gpu1", ["10.0.0.5"], "10.0.0.5"),
        ("gpu1", ["127.0.1.1"], None),
        ("gpu1", [], None),
    ],
)
def test_a_host_that_takes_its_own_name_for_loopback_listens_on_all(
    monkeypatch: pytest.MonkeyPatch, address: str, resolved: list[str], expected: str | None
) -> None:
    def resolve(*_arguments: object) -> list[tuple[object, ...]]:
        if not resolved:
            raise socket.gaierror("unknown")
        return [(0, 0, 0, "", (item, 0)) for item in resolved]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert horovod_rendezvous.only_address(address) == expected


def test_a_taken_port_is_told_and_ends_it() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        argv = [sys.executable, str(SCRIPT), "serve", "127.0.0.1", str(port), "1"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert f"dttui: no rendezvous at 127.0.0.1, port {port}: " in done.stderr
    assert "Traceback" not in done.stderr


def awaiting(port: int, limit_s: float) -> subprocess.Popen[str]:
    variables = {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port)}
    env = {**os.environ, **variables, "HOROVOD_GLOO_TIMEOUT_SECONDS": str(limit_s)}
    argv = [sys.executable, str(SCRIPT), "await", sys.executable, "-c", "import os; print(os.getpid())"]
    return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_rank_starts_as_the_same_process_once_the_rendezvous_is_there() -> None:
    with held_port() as port, awaiting(port, 30) as rank:
        wait_until(lambda: Path(f"/proc/{rank.pid}/cmdline").read_bytes().count(b"await"), "the rank to wait")
        with closing(socket.create_server(("127.0.0.1", port))):
            out, _err = rank.communicate(timeout=120)
    assert (rank.returncode, int(out)) == (0, rank.pid)


def test_a_rank_whose_rendezvous_never_comes_says_so() -> None:
    with held_port() as port, awaiting(port, 0.3) as rank:
        _out, err = rank.communicate(timeout=120)
    assert rank.returncode == 1
    assert err == f"dttui: nothing answers at 127.0.0.1, port {port}, after 0.3 s\n"
