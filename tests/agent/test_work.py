"""The files that come along: what a list of them may say, where they may lie, and what the store keeps."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from dtagent.attempts import work as work_module
from dtagent.attempts.attempts import Attempts
from dtagent.attempts.store import ContentStore, Incoming
from dtagent.errors import RpcError
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.jobs import StopRequest
from dtagent.protocol.preparation import PrepareRequest, PushRequest, WorkReply, WorkRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.tree import TreeEntry, decode_tree, digest_of, encode_tree

KEY = AttemptKey("job", 0)
DIGEST = hashlib.sha256(b"abc").hexdigest()


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    found = Attempts(tmp_path, lambda: [])
    found.prepare(PrepareRequest(KEY, 0, "sh", "127.0.0.1", False, (29500, 29999), 0))
    return found


def fill(attempts: Attempts, text: str) -> WorkReply:
    return attempts.work(WorkRequest(KEY, digest_of(text), len(text.encode()), text))


def row(path: object, digest: object = DIGEST, size: object = 3, executable: object = 0) -> list[object]:
    return [path, digest, size, executable]


@pytest.mark.parametrize(
    "rows",
    [
        [row("../x")],
        [row("/etc/x")],
        [row("a/../../x")],
        [row("a//x")],
        [row("./x")],
        [row("")],
        [row("a\0b")],
        [row("x" * 256)],
        [row("/".join(["d" * 200] * 6))],
        [row("x"), row("x")],
        [row("x"), row("x/y")],
        [row("x", "../../etc/passwd")],
        [row("x", DIGEST.upper())],
        [row("x", size=-1)],
        [row("x", size=True)],
        [row("x", size=3 * 10**12)],
        [row("x", executable=2)],
        [row(3)],
        [["x", DIGEST]],
        ["x"],
        {"x": 1},
        7,
    ],
)
def test_a_list_that_would_lead_elsewhere_is_refused_and_nothing_is_written(
    attempts: Attempts, tmp_path: Path, rows: object
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RpcError, match="not a list of files") as caught:
        fill(attempts, json.dumps(rows))
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["[" * 100_000, '["\\ud800"]', "nonsense"])
def test_a_list_that_is_no_json_is_refused(attempts: Attempts, text: str) -> None:
    with pytest.raises(RpcError, match="not a list of files"):
        fill(attempts, text)


def test_a_list_says_the_same_whatever_the_order_of_its_files() -> None:
    entries = [TreeEntry("b", DIGEST, 3, True), TreeEntry("a/ü", DIGEST, 3, False)]
    assert encode_tree(entries) == encode_tree(reversed(entries))
    assert decode_tree(encode_tree(entries)) == [entries[1], entries[0]]


def test_files_are_laid_out_for_their_user_alone_even_where_links_lie_in_the_way(
    attempts: Attempts, tmp_path: Path
) -> None:
    text = encode_tree([TreeEntry("a/run.sh", DIGEST, 3, True), TreeEntry("a/b", DIGEST, 3, False)])
    work = tmp_path / "jobs/job/0/work"
    outside = tmp_path / "outside"
    outside.mkdir()
    (work / "a").symlink_to(outside)
    assert fill(attempts, text) == WorkReply(False, [DIGEST], 3)
    assert attempts.push(PushRequest(KEY, 0, base64.b64encode(b"ab").decode())) == 2
    assert attempts.push(PushRequest(KEY, 2, base64.b64encode(b"c").decode())) == 3
    assert fill(attempts, text).is_complete
    assert list(outside.iterdir()) == []
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (work / "a", work / "a/run.sh", work / "a/b")}
    assert modes == {"a": "0o700", "run.sh": "0o700", "b": "0o600"}
    (work / "a/b").write_text("changed")
    assert fill(attempts, text).is_complete  # Asked again: nothing is done twice.
    assert (work / "a/b").read_text() == "changed"


def test_parts_that_nobody_asked_for_are_refused(attempts: Attempts) -> None:
    push = PushRequest(KEY, 0, base64.b64encode(b"abcd").decode())
    with pytest.raises(RpcError, match="not asked for"):
        attempts.push(push)
    fill(attempts, encode_tree([TreeEntry("a", DIGEST, 3, False)]))
    with pytest.raises(RpcError, match="not asked for"):
        attempts.push(PushRequest(KEY, 1, ""))
    with pytest.raises(RpcError, match="more came"):
        attempts.push(push)
    with pytest.raises(RpcError, match="not asked for"):  # It asks anew after nonsense.
        attempts.push(push)


def test_a_content_under_another_ones_name_never_gets_in(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    with pytest.raises(ValueError, match="is not"):
        Incoming(store, [(DIGEST, 3)]).feed(b"abd")
    assert not store.has(DIGEST, 3)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_without_room_it_says_how_much_is_needed(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_module, "free_bytes", lambda _path: 80 * 1024**2)
    with pytest.raises(RpcError, match="20 MB are needed and 84 MB are free") as caught:
        fill(attempts, encode_tree([TreeEntry("a", DIGEST, 10_000_000, False)]))
    assert caught.value.code == ErrorCode.REFUSED


def test_an_attempt_that_was_given_up_takes_no_files(attempts: Attempts) -> None:
    attempts.stop(StopRequest(KEY))
    with pytest.raises(RpcError, match="given up"):
        fill(attempts, encode_tree([]))


def test_the_store_keeps_what_was_used_last_and_no_more_than_its_bound(tmp_path: Path) -> None:
    store = ContentStore(tmp_path)
    contents = [bytes([number]) * 1000 for number in range(5)]
    names = [hashlib.sha256(content).hexdigest() for content in contents]
    Incoming(store, [(name, 1000) for name in names]).feed(b"".join(contents))
    now = time.time()
    for age, name in enumerate(names):
        os.utime(store.path_of(name), (now - age * 86400, now - age * 86400))
    assert store.read(names[4], 1000) == contents[4]  # To use it is to keep it.
    store.prune(now, limit_bytes=3000)
    assert [store.has(name, 1000) for name in names] == [True, True, False, False, True]
    store.prune(now + 20 * 86400)
    assert not any(store.has(name, 1000) for name in names)
