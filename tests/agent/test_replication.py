"""Copies of checkpoints from host to host: whole or none, whatever is cut, altered or claimed on the way."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from dtagent.errors import RpcError
from dtagent.protocol.replication import STORE, CopiesRequest, SendReply, SendRequest, TakeRequest
from dtagent.replication import kept, sending, taking
from dtagent.replication.manifest import CopyError, decoded, manifest_of
from dtagent.replication.peer_connection import PeerLink, PeerLinkError, admit, reach
from dtagent.replication.service import Replication

from tests.agent.conversation import Conversation
from tests.waiting import wait_until

MIB = 1 << 20


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    with Conversation(tmp_path_factory.mktemp("agent") / "root") as begun:
        yield begun


def _checkpoint(place: Path, step: int, size: int = 3 * MIB) -> Path:
    path = place / f"step-{step}"
    (path / "optim").mkdir(parents=True)
    (path / "model.bin").write_bytes(os.urandom(size))
    (path / "optim" / "rank0.bin").write_bytes(os.urandom(100_000))
    (path / "empty").touch()
    (path / "COMPLETE").touch()
    return path


def _content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def _store(tmp_path: Path) -> Path:
    return tmp_path / "other" / STORE / "job"


def _take(host: Conversation, store: Path, key: str, **more: Any) -> int:
    request = {"key": key, "store": str(store), "address": "127.0.0.1", "port_range": [20000, 29000], **more}
    return int(host.call("copy_take", request)["port"])


def _asked(key: str, path: Path, port: int, step: int | None = None, **more: Any) -> dict[str, Any]:
    told = {"key": key, "path": str(path), "form": "complete-file", "attempt": 0, "node_rank": 0}
    return {**told, "address": "127.0.0.1", "port": port, "step": step, "time": 1.0, **more}


def _copy(host: Conversation, path: Path, store: Path, step: int | None = None, **more: Any) -> Any:
    key = secrets.token_hex(32)
    sent = {
        name: more.pop(name)
        for name in ("bytes_per_s", "form", "node_rank", "attempt", "size_bytes", "changed_ns", "time")
        if name in more
    }
    return host.call("copy_send", _asked(key, path, _take(host, store, key, **more), step, **sent))


def test_a_copy_is_the_checkpoint_byte_for_byte_and_is_told_with_all_that_is_known_of_it(
    host: Conversation, tmp_path: Path
) -> None:
    path, store = _checkpoint(tmp_path / "own", 20), _store(tmp_path)
    reply = _copy(host, path, store, 20)
    assert reply.get("detail", "") == ""
    assert _content(Path(reply["path"])) == _content(path)
    assert (reply["size_bytes"], reply["sent_bytes"]) == (3 * MIB + 100_000, 3 * MIB + 100_000)
    (held,) = host.call("copies", {"stores": [str(store)]})["held"]
    assert (held["path"], held["source"], held["step"]) == (reply["path"], str(path), 20)
    assert Path(held["path"]).name == "step-20"
    again = _copy(host, path, store, 20)
    assert (again["path"], again["sent_bytes"]) == (reply["path"], 0)


def test_a_single_file_and_what_loaders_look_for_beside_a_checkpoint_are_copied_too(
    host: Conversation, tmp_path: Path
) -> None:
    file = tmp_path / "last.ckpt"
    file.write_bytes(b"x" * 1000)
    assert Path(_copy(host, file, _store(tmp_path), form="lightning")["path"]).read_bytes() == b"x" * 1000
    for form, name, beside, told in (
        ("deepspeed", "global_step20", "latest", "global_step20"),
        ("megatron", "iter_0000020", "latest_checkpointed_iteration.txt", "20"),
    ):
        path = tmp_path / name
        path.mkdir()
        (path / "mp_rank_00_model_states.pt").write_bytes(b"y")
        copy = Path(_copy(host, path, _store(tmp_path / form), 20, form=form)["path"])
        assert (copy.name, (copy.parent / beside).read_text()) == (name, told)


@pytest.mark.parametrize("how", ["shorter", "as long as before"])
def test_what_was_found_complete_and_is_being_written_over_is_no_copy(
    how: str, host: Conversation, tmp_path: Path
) -> None:
    """The writer stands still meanwhile, or has died: nothing changes from the first look of the copy to its last."""
    file = tmp_path / "own" / "last.ckpt"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data/0", os.urandom(100_000))
    (of_directory,) = host.call("checkpoints", {"directories": [str(file.parent)]})["directories"]
    (found,) = of_directory["complete"]
    told = {name: found[name] for name in ("form", "size_bytes", "changed_ns")}
    before = file.read_bytes()
    store = _store(tmp_path)
    assert Path(_copy(host, file, store, **told)["path"]).read_bytes() == before
    file.write_bytes(before[:30_000].ljust(len(before) if how == "as long as before" else 0, b"\0"))
    os.utime(file, ns=(found["changed_ns"] + 1_000_000, found["changed_ns"] + 1_000_000))
    reply = _copy(host, file, store, **told)
    assert (reply["path"], reply["detail"]) == ("", f"{file} has changed meanwhile")
    (held,) = host.call("copies", {"stores": [str(store)]})["held"]
    assert Path(held["path"]).read_bytes() == before


def test_no_more_stay_than_are_to_be_kept_of_each_node_over_all_attempts(host: Conversation, tmp_path: Path) -> None:
    store, older = _store(tmp_path), _store(tmp_path / "before")
    for step in (10, 20, 30):
        _copy(host, _checkpoint(tmp_path / "own", step, 1000), older, step, keep=2)
    other = _copy(host, _checkpoint(tmp_path / "second", 10, 1000), older, 10, keep=2, node_rank=1)
    _copy(host, _checkpoint(tmp_path / "later", 5, 1000), store, 5, keep=2, older=[str(older)], attempt=1)
    held = host.call("copies", {"stores": [str(store), str(older)]})["held"]
    assert [(item["attempt"], item["node_rank"], item["step"]) for item in held] == [(1, 0, 5), (0, 0, 30), (0, 1, 10)]
    assert Path(other["path"]).is_dir()
    host.call("copies", {"stores": [str(store), str(older)], "drop": True})
    assert not store.parent.exists()
    assert not older.parent.exists()


def test_copies_are_let_go_though_an_earlier_try_of_that_was_cut_short(tmp_path: Path) -> None:
    store = _store(tmp_path)
    for name in ("job", ".removed-job"):
        _checkpoint(store.with_name(name), 20, 1000)
    kept.drop([str(store)])
    assert not store.parent.exists()


@pytest.mark.parametrize("keep", [1, 2])
def test_a_copy_that_was_just_taken_stays_though_newer_ones_are_there(
    keep: int, host: Conversation, tmp_path: Path
) -> None:
    """The next attempt goes on from it: the newer ones came to nothing."""
    store, older = _store(tmp_path), _store(tmp_path / "before")
    for step in (20, 30):
        _copy(host, _checkpoint(tmp_path / "own", step, 1000), older, step, keep=keep, attempt=1)
    taken = _copy(host, _checkpoint(tmp_path / "first", 10, 1000), store, 10, keep=keep, older=[str(older)], attempt=0)
    assert (Path(taken["path"]) / "COMPLETE").is_file()
    held = host.call("copies", {"stores": [str(store), str(older)]})["held"]
    assert [item["step"] for item in held] == ([10] if keep == 1 else [30, 10])


def test_a_copy_that_a_clock_which_was_set_back_dates_before_another_stays(host: Conversation, tmp_path: Path) -> None:
    file, store = tmp_path / "last.ckpt", _store(tmp_path)
    for hour, content in ((7200.0, b"first"), (3600.0, b"then")):
        file.write_bytes(content)
        reply = _copy(host, file, store, form="lightning", time=hour, keep=1)
        assert reply.get("detail", "") == ""
        assert Path(reply["path"]).read_bytes() == content


def test_a_host_listens_before_it_tells_where() -> None:
    """What it tells goes into a pipe that takes nothing more: until somebody reads, it is not told."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    told, telling = os.pipe()
    os.set_blocking(telling, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(telling, b"x" * 4096)
    os.set_blocking(telling, True)
    argv = [sys.executable, "-m", "dtagent.replication", "mark ", "take"]
    request = TakeRequest("0" * 64, f"/nowhere/{STORE}/job", "127.0.0.1", (port, port))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=telling) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(request)).encode() + b"\n")
        process.stdin.flush()

        def listens() -> bool:
            with socket.socket() as stream:
                return stream.connect_ex(("127.0.0.1", port)) == 0

        try:
            wait_until(listens, "somebody to listen", 30)
        finally:
            process.kill()
            os.close(told)
            os.close(telling)


class _Line(socket.socket):
    """One end of a connection that is cut after some writes, or keeps what is written to itself."""

    writes_left: int | None = None
    kept: bytearray | None = None

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        if self.kept is not None:
            self.kept += data
            return
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise ConnectionAbortedError
        super().sendall(data, flags)


def _linked(key: bytes = b"k" * 32) -> tuple[PeerLink, PeerLink]:
    return _linked_by(*socket.socketpair(), key)


def _linked_by(left: socket.socket, right: socket.socket, key: bytes = b"k" * 32) -> tuple[PeerLink, PeerLink]:
    found: list[PeerLink] = []
    thread = threading.Thread(target=lambda: found.append(admit(right, key)))
    thread.start()
    link = reach(left, key)
    thread.join()
    return link, found[0]


@pytest.mark.parametrize("flips", [False, True], ids=["cut", "cut and then altered on the disk"])
def test_cut_after_any_write_there_is_no_copy_and_the_next_try_goes_on(
    flips: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, store = _checkpoint(tmp_path / "own", 20, 200_000), _store(tmp_path)
    monkeypatch.setattr(sending, "CHUNK_BYTES", 64 * 1024)
    told = {"form": "complete-file", "attempt": 0, "node_rank": 0, "step": 20, "time": 1.0}
    manifest, request = manifest_of(path, **told), TakeRequest("", str(store), "", (0, 0))

    def attempt(most: int) -> tuple[bool, int]:
        left, right = socket.socketpair()
        line = _Line(fileno=left.detach())
        link, other = _linked_by(line, right)
        line.writes_left = most
        errors: list[BaseException] = []

        def take() -> None:
            try:
                other.say(path=str(taking.take_from(request, other)))
            except (PeerLinkError, CopyError) as error:
                errors.append(error)
                if isinstance(error, CopyError):
                    other.say(refusal=str(error.why))
            finally:
                other.close()

        thread = threading.Thread(target=take)
        thread.start()
        try:
            return True, sending.exchange(link, manifest, lambda _count: None)[1]
        except (PeerLinkError, CopyError):
            return False, 0
        finally:
            link.close()
            thread.join()

    for most in range(200):
        is_whole, sent = attempt(most)
        held = kept.held([str(store)])
        assert bool(held) == is_whole, f"after {most} writes"
        if is_whole:
            assert _content(Path(held[0].path)) == _content(path)
            assert sent < manifest.size_bytes
            return
        partial = next(iter(store.rglob("model.bin")), None)
        if flips and most == 6 and partial is not None and partial.stat().st_size:
            data = bytearray(partial.read_bytes())
            data[0] ^= 1
            partial.write_bytes(data)
    pytest.fail("it never came to its end")


def test_what_changes_while_it_is_sent_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = _checkpoint(tmp_path / "own", 20), _store(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    key = secrets.token_hex(32)
    taker = threading.Thread(target=taking.take, args=(TakeRequest(key, str(store), "", (0, 0)), listener))
    taker.start()
    spend = sending.RateLimit.spend

    def meddle(limit: sending.RateLimit, count: int) -> None:
        spend(limit, count)
        (path / "optim" / "rank0.bin").write_bytes(b"z" * 100_000)

    monkeypatch.setattr(sending.RateLimit, "spend", meddle)
    reply = sending.send(SendRequest(**_asked(key, path, listener.getsockname()[1])))
    taker.join()
    assert reply.path == ""
    assert reply.detail.endswith("has changed meanwhile")
    assert kept.held([str(store)]) == []


def test_who_does_not_know_the_key_takes_nothing_sends_nothing_and_keeps_nobody_out(
    host: Conversation, tmp_path: Path
) -> None:
    path, store = _checkpoint(tmp_path / "own", 20), _store(tmp_path)
    key = secrets.token_hex(32)
    port = _take(host, store, key)
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
    for stranger in strangers[:3]:
        stranger.sendall(b"dttcopy1" + b"\0" * 200)
    with socket.create_connection(("127.0.0.1", port)) as stranger, pytest.raises(PeerLinkError):
        reach(stranger, b"another key")
    wrong = host.call("copy_send", _asked(secrets.token_hex(32), path, port))
    assert (wrong.get("path", ""), bool(wrong["detail"])) == ("", True)
    assert not store.exists()
    assert host.call("copy_send", _asked(key, path, port))["path"]
    for stranger in strangers:
        stranger.close()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            told = [Path("/proc", pid, name).read_bytes() for name in ("cmdline", "environ")]
            assert not any(key.encode() in text for text in told)


def test_a_frame_that_is_altered_repeated_or_too_long_ends_the_connection() -> None:
    for alter in (
        lambda frame: frame[:8] + bytes([frame[8] ^ 1]) + frame[9:],
        lambda frame: frame * 2,
        lambda _frame: b"\xff\xff\xff\xff" + b"x" * 100,
        lambda frame: frame[:-1],
    ):
        left, right = socket.socketpair()
        line = _Line(fileno=left.detach())
        link, other = _linked_by(line, right)
        line.kept = bytearray()
        link.say(word="a")
        frame, line.kept = bytes(line.kept), None
        line.sendall(alter(frame))
        link.close()
        with pytest.raises(PeerLinkError):
            _heard(other, 2)
        other.close()


def _heard(link: PeerLink, count: int) -> list[Any]:
    return [link.hear() for _ in range(count)]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../x"}, {"name": ""}, {"name": "a/b"}, {"name": ".."}, {"node_rank": -1}, {"files": []},
        {"files": [{"path": "../../etc/x", "size": 1, "time_ns": 1}]},
        {"files": [{"path": "/etc/x", "size": 1, "time_ns": 1}]},
        {"files": [{"path": "a//b", "size": 1, "time_ns": 1}]},
        {"files": [{"path": "a\0b", "size": 1, "time_ns": 1}]},
        {"files": [{"path": "a", "size": -1, "time_ns": 1}]},
        {"files": [{"path": "a", "size": 1, "time_ns": 1}] * 2},
        {"files": "all"}, {"more": 1},
    ],
)  # fmt: skip
def test_a_manifest_that_names_what_lies_elsewhere_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = _checkpoint(tmp_path, 20, 10)
    told = {"form": "complete-file", "attempt": 0, "node_rank": 0, "step": 20, "time": 1.0}
    good = json.loads(json.dumps(asdict(manifest_of(path, **told))))
    assert decoded(good).name == "step-20"
    with pytest.raises(CopyError):
        decoded({**good, **change})


def test_what_is_no_file_is_refused_with_the_reason(host: Conversation, tmp_path: Path) -> None:
    path = _checkpoint(tmp_path / "own", 20)
    os.mkfifo(path / "pipe")
    assert "is no file" in _copy(host, path, _store(tmp_path))["detail"]
    (path / "pipe").unlink()
    (path / "away").symlink_to("/etc")
    assert "is a link to a directory" in _copy(host, path, _store(tmp_path))["detail"]
    gone = _copy(host, tmp_path / "gone", _store(tmp_path))
    assert (gone.get("path", ""), bool(gone["detail"])) == ("", True)


def test_a_disk_without_room_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "SPARE_BYTES", 1 << 60)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Use", (), {"total": 100 * MIB, "free": 7 * MIB}))
    path, store = _checkpoint(tmp_path / "own", 20), _store(tmp_path)
    listener = socket.create_server(("127.0.0.1", 0))
    key = secrets.token_hex(32)
    taker = threading.Thread(target=taking.take, args=(TakeRequest(key, str(store), "", (0, 0)), listener))
    taker.start()
    reply: SendReply = sending.send(SendRequest(**_asked(key, path, listener.getsockname()[1])))
    taker.join()
    assert "has room for 7 MiB, and 3 are to come" in reply.detail
    assert list(store.rglob("*.bin")) == []


def test_an_end_that_is_killed_leaves_what_the_next_try_goes_on_with(host: Conversation, tmp_path: Path) -> None:
    path, store = _checkpoint(tmp_path / "own", 20, 24 * MIB), _store(tmp_path)
    key = secrets.token_hex(32)
    port = _take(host, store, key)
    replies: list[Any] = []
    sender = threading.Thread(
        target=lambda: replies.append(host.call("copy_send", _asked(key, path, port, bytes_per_s=2 * MIB)))
    )
    sender.start()

    def has_begun() -> bool:
        return any(file.stat().st_size > 2 * MIB for file in store.rglob("model.bin"))

    wait_until(has_begun, "some of it has come")
    (taker,) = wait_until(lambda: _writers(store), "who takes it")
    os.kill(taker, signal.SIGKILL)
    sender.join()
    assert "the connection was cut" in replies[0]["detail"]
    assert host.call("copies", {"stores": [str(store)]})["held"] == []
    reply = _copy(host, path, store, bytes_per_s=0)
    assert 0 < reply["sent_bytes"] < reply["size_bytes"]
    assert _content(Path(reply["path"])) == _content(path)


def test_a_copy_that_is_under_way_ends_as_all_are_dropped_and_makes_no_directory_anew(
    host: Conversation, tmp_path: Path
) -> None:
    path, store = _checkpoint(tmp_path / "own", 20, 24 * MIB), _store(tmp_path)
    key = secrets.token_hex(32)
    request = _asked(key, path, _take(host, store, key), bytes_per_s=8 * MIB)
    replies: list[Any] = []
    sender = threading.Thread(target=lambda: replies.append(host.call("copy_send", request)))
    sender.start()
    wait_until(lambda: any(file.stat().st_size > MIB for file in store.rglob("model.bin")), "some of it has come")
    with Conversation(host.root, keep_daemon=True) as other:
        other.call("copies", {"stores": [str(store)], "drop": True})
    sender.join()
    assert "the connection was cut" in replies[0]["detail"]
    assert not store.parent.exists()


def _writers(store: Path) -> list[int]:
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _writes(pid, store)]


def _writes(pid: int, store: Path) -> bool:
    try:
        if b"dtagent.replication" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        return any(str(store) in os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def test_a_stranger_who_says_his_words_byte_by_byte_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtagent.replication.peer_connection.PROOF_LIMIT_S", 0.3)
    left, right = socket.socketpair()
    over, words = threading.Event(), b"dttcopy1" + b"\0" * 64
    sent: list[int] = []

    def trickle() -> None:
        for byte in words:
            if over.wait(0.05):
                return
            left.sendall(bytes([byte]))
            sent.append(byte)

    stranger = threading.Thread(target=trickle)
    stranger.start()
    with left, right:
        with pytest.raises(PeerLinkError):
            admit(right, b"key")
        over.set()
        stranger.join()
    assert len(sent) < len(words)


async def test_copies_that_cannot_be_removed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount point, say, or a directory that only reads: its host must not count as one that has let go of them."""
    store = _store(tmp_path)
    store.mkdir(parents=True)

    def refuse(self: Path, _target: Path) -> Path:
        raise OSError(errno.EBUSY, "Device or resource busy", str(self))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RpcError, match=f"{store} cannot be removed: Device or resource busy"):
        await Replication().copies(CopiesRequest([str(store)], drop=True))
